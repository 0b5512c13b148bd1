package packing

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// milpBuffer is start, end, size and offset of a buffer; -1 is a free offset.
type milpBuffer [4]int64

// milp is the least makespan of each problem by another solver, HiGHS, or nil if that
// gives up. STPLAN_PYTHON names a Python with highspy.
func milp(t *testing.T, problems [][]milpBuffer) []*int64 {
	t.Helper()
	if testing.Short() {
		t.Skip("HiGHS takes seconds")
	}
	exe := os.Getenv("STPLAN_PYTHON")
	if exe == "" {
		exe = "python3"
	}
	if err := exec.Command(exe, "-c", "import highspy").Run(); err != nil {
		t.Skipf("%s cannot import highspy: %v", exe, err)
	}
	in, err := json.Marshal(problems)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, filepath.Join("testdata", "milp.py"))
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("milp.py: %v\n%s", err, stderr.String())
	}
	var optima []*int64
	if err := json.Unmarshal(out, &optima); err != nil || len(optima) != len(problems) {
		t.Fatalf("milp.py: expected %d answers, one per problem, found %d: %v", len(problems), len(optima), err)
	}
	return optima
}

// TestOptimaAgainstOutsideSolver compares the optima of problems of up to 25 buffers
// with HiGHS. In most of them the load is the same at every instant.
func TestOptimaAgainstOutsideSolver(t *testing.T) {
	rng := rand.New(rand.NewPCG(29, 30))
	var problems []*Problem
	for i := range 48 {
		p := fullProblem(rng, 8+i/8, 6, 5)
		if i%4 == 0 {
			p = randomProblem(rng, 8+i/8, 14, 20)
		}
		problems = append(problems, p)
	}
	for _, c := range aboveLoad {
		problems = append(problems, &c.p)
	}
	problems = append(problems, fullProblem(rng, 25, 5, 3))
	questions := make([][]milpBuffer, len(problems))
	for i, p := range problems {
		for _, b := range p.Buffers {
			questions[i] = append(questions[i], milpBuffer{int64(b.Start), int64(b.End), int64(b.Size), -1})
		}
	}
	decided := 0
	for i, best := range milp(t, questions) {
		if best == nil {
			continue
		}
		decided++
		if pl := mustPack(t, problems[i], Options{}); int64(pl.Makespan) != *best || int64(pl.LowerBound) != *best {
			t.Errorf("expected the optimum %d of HiGHS, found %d with lower bound %d: %v", *best, pl.Makespan, pl.LowerBound, problems[i].Buffers)
		}
	}
	if decided < 40 {
		t.Errorf("expected HiGHS to decide at least 40 of %d problems, found %d", len(problems), decided)
	}
}

// TestWindowsAgainstOutsideSolver compares windows of a layout with HiGHS. Buffers that
// cross the borders of a window are fixed, as in the refinement.
func TestWindowsAgainstOutsideSolver(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	var questions [][]milpBuffer
	var ours []int64
	for len(ours) < 36 {
		in := instanceOf(t, fullProblem(rng, 40, 9, 9))
		l, _ := firstFit(alone(in), byCrestSize.sorted(in))
		r := newRepairs(alone(in), l.off)
		lo := int32(rng.IntN(in.sections))
		hi := min(int32(in.sections), lo+3+int32(rng.IntN(8)))
		free, taken := r.window(lo, hi)
		if len(free) < 5 || len(free)+len(taken) > 25 || len(taken) == 0 {
			continue
		}
		w := in.within(free, lo, hi)
		question, least := []milpBuffer{}, int64(0)
		for b := range w.n {
			question = append(question, milpBuffer{int64(w.lo[b]), int64(w.hi[b]), w.size[b], -1})
		}
		for _, o := range taken {
			question = append(question, milpBuffer{int64(o.lo), int64(o.hi), o.at.hi - o.at.lo, o.at.lo})
			least = max(least, o.at.hi)
		}
		e := newExact(w)
		e.setObstacles(taken)
		for ; e.decide(least, 1<<22, never) == infeasible; least++ {
		}
		questions, ours = append(questions, question), append(ours, least)
	}
	for i, best := range milp(t, questions) {
		if best == nil || *best != ours[i] {
			t.Errorf("window %d: expected HiGHS to find %d too, found %v: %v", i, ours[i], best, questions[i])
		}
	}
}
