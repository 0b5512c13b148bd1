//go:build cgo

package cuda

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// lengths is a job whose large sizes follow the length of a batch: some in proportion, one with
// the square, some not at all. Each of its layers keeps something until the backward pass.
type lengths struct {
	layers int
	rows   bool   // most sizes do not vary, but no four in a row
	kept   uint64 // bytes that each layer keeps too, and that do not vary
	linear bool   // no size follows the square
	alike  bool   // all layers have the same sizes
	some   bool   // each layer has a small block that only the last of the recorded passes has
}

// someSize is the size of that block.
const someSize = 272

// lengthsStep is a request of the job: its size, and the request before which it is freed.
type lengthsStep struct {
	size uint64
	end  int // in the body
}

// body are the requests of a pass of a length.
func (j lengths) body(length uint64) []lengthsStep {
	var steps []lengthsStep
	saved, kept := make([]int, j.layers), make([]int, j.layers)
	add := func(size uint64, lives int) int {
		steps = append(steps, lengthsStep{size, len(steps) + 1 + lives})
		return len(steps) - 1
	}
	constant := func(kind int) {
		if j.rows {
			add(uint64(kind+1)*512, 1)
		}
	}
	factor := func(k int) uint64 {
		if j.alike {
			return 4
		}
		return uint64(k)
	}
	for k := range j.layers {
		saved[k] = add(factor(k+1)*mib/4*length, 0)
		if j.kept > 0 {
			kept[k] = add(j.kept, 0)
		}
		constant(k + 1000)
		if !j.linear {
			add(length*length*mib/64+512, 1) // attention
		}
		add(3*mib, 2) // does not vary
		add(4096, 1)
		constant(k)
	}
	for k := j.layers - 1; k >= 0; k-- {
		if j.some {
			add(someSize, 1)
		}
		add(factor(k+2)*mib/4*length, 2)
		add(2*mib, 1)
		constant(k + 2000)
		steps[saved[k]].end = len(steps)
		if j.kept > 0 {
			steps[kept[k]].end = len(steps)
		}
		add(length*mib/8, 1)
		constant(k + 3000)
		constant(k + 4000)
	}
	for i := range steps {
		steps[i].end = min(steps[i].end, len(steps))
	}
	return steps
}

// slots are those of passes with the least and the most length, one above the other but for
// those that do not live at the same time.
func (j lengths) slots(least, most, first uint64, passes uint32) (slots []planfile.Slot, top uint64) {
	small := j.body(least)
	for i, large := range j.body(most) {
		s := planfile.Slot{
			Start: uint64(i), RequestedEnd: uint64(large.end), CompletedEnd: uint64(large.end), Size: up(large.size),
			Least: small[i].size, Requested: large.size, Occurrences: passes, Cell: planfile.NoCell,
		}
		if s.Requested == someSize {
			s.Occurrences = 1
		}
		s.Offset = lowest(slots, &s, first)
		slots = append(slots, s)
		top = max(top, s.Offset+s.Size)
	}
	return slots, top
}

// plan is that of a recording with one first pass, and two others of these lengths.
func (j lengths) plan(once, least, longest uint64) planfile.Device {
	weights := []uint64{64 * mib, 8 * mib}
	d := periodic(weights, [][]uint64{{mib}}, []uint32{1, 1})
	first, top := j.slots(once, once, d.Slots[1].Offset+d.Slots[1].Size, 1)
	second, highest := j.slots(least, longest, d.Slots[1].Offset+d.Slots[1].Size, 2)
	d.Slots = d.Slots[:2]
	length := uint64(len(first)) + 2
	for i := range d.Slots {
		d.Slots[i].Start, d.Slots[i].RequestedEnd, d.Slots[i].CompletedEnd = uint64(i), length, length
	}
	for _, s := range first {
		s.Start, s.RequestedEnd, s.CompletedEnd = s.Start+2, s.RequestedEnd+2, s.CompletedEnd+2
		d.Slots = append(d.Slots, s)
	}
	d.Slots = append(d.Slots, second...)
	n := uint64(len(second))
	most, all := make([]uint64, (n+63)/64), make([]uint64, (n+63)/64)
	for i, s := range second {
		all[i/64] |= 1 << (i % 64)
		if s.Occurrences == 2 {
			most[i/64] |= 1 << (i % 64)
		}
	}
	d.ArenaBytes = max(top, highest)
	d.Phases = []planfile.Phase{
		{Kind: planfile.PhasePrologue, Occurrences: 1, Length: length, SlotCount: length},
		{Kind: planfile.PhaseBody, Occurrences: 2, Length: n, FirstSlot: length, SlotCount: n},
	}
	d.SteadyStart = length
	d.Passes = []planfile.Pass{{FirstEvent: length, Phase: 1, Present: most}, {FirstEvent: length + 1, Phase: 1, Present: all}}
	d.SteadyEnd = length + 2
	d.Events = d.SteadyEnd
	d.Certificate = planfile.Certificate{Kind: planfile.BoundLoad, Gap: d.ArenaBytes}
	d.PeakAllocated, d.PeakActive = d.ArenaBytes, d.ArenaBytes
	return d
}

func TestLayout(t *testing.T) {
	t.Parallel()
	program := compile(t, memorySanitizers, "layout.c")
	above := lengths{layers: 10}.plan(10, 8, 12)
	stays := &above.Slots[1]
	stays.Offset, stays.Size, stays.Requested, stays.Least = (above.ArenaBytes+2*mib)/(2*mib)*(2*mib), mib, mib, mib
	above.ArenaBytes = stays.Offset + stays.Size
	above.Certificate.Gap = above.ArenaBytes
	for name, c := range map[string]struct {
		plan   planfile.Device
		bottom int // bytes of what stays, below what is placed anew
	}{
		"weights.bin":            {lengths{layers: 6}.plan(10, 8, 12), 72 * mib},
		"a weight above all.bin": {above, 64 * mib},
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, encode(t, c.plan), 0o644); err != nil {
			t.Fatal(err)
		}
		execute(t, program, path, strconv.Itoa(c.bottom))
	}
}

func TestLaws(t *testing.T) {
	t.Parallel()
	execute(t, compile(t, memorySanitizers, "laws.c"))
}

// BenchmarkLayout is what finding the places of a pass anew takes, in the worst case: of a made-up
// job, and of those recordings whose large sizes vary, if they lie beside the clone.
func BenchmarkLayout(b *testing.B) {
	program := compile(b, "", "layout_time.c")
	made := filepath.Join(b.TempDir(), "made-up.bin")
	if err := os.WriteFile(made, encode(b, lengths{layers: 500}.plan(10, 8, 12)), 0o644); err != nil {
		b.Fatal(err)
	}
	b.Run("made-up", func(b *testing.B) { timeLayout(b, program, made) })
	for _, recording := range []string{"traces-third-party/sft", "traces-third-party/grpo", "traces-third-party/sd", "traces/llama-7b-lora-varlen"} {
		b.Run(filepath.Base(recording), func(b *testing.B) {
			path := "../../../shared/" + recording + ".pickle.gz"
			if _, err := os.Stat(path); err != nil || testing.Short() {
				b.Skip("in short mode, or no recordings in ../shared")
			}
			plan := filepath.Join(b.TempDir(), "plan.bin")
			if out, err := exec.Command("go", "run", "../../cmd/stplan", "-q", "compile", path, "-o", plan).CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			timeLayout(b, program, plan)
		})
	}
}

// timeLayout reports what layout_time.c prints of a plan.
func timeLayout(b *testing.B, program, plan string) {
	for b.Loop() {
		out, err := exec.Command(program, plan).CombinedOutput()
		var median, longest, request, steps float64
		if _, scan := fmt.Sscan(string(out), &median, &longest, &request, &steps); err != nil || scan != nil {
			b.Fatalf("%v: %q", errors.Join(err, scan), out)
		}
		b.ReportMetric(median, "us/pass")
		b.ReportMetric(longest, "us/longest-pass")
		b.ReportMetric(request, "us/longest-request")
		b.ReportMetric(steps, "requests/pass")
	}
}

// weights are what a run begins with.
func (j lengths) weights(t *testing.T, d *Device) {
	t.Helper()
	for _, size := range []uint64{64 * mib, 8 * mib} {
		if _, _, err := d.Malloc(size, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// serve serves passes of these lengths, and says which share of their bytes is on plan.
func (j lengths) serve(t *testing.T, d *Device, passes []uint64) float64 {
	t.Helper()
	before := d.Counters()
	for _, length := range passes {
		j.pass(t, d, j.body(length))
	}
	c := d.Counters()
	return float64(c.PlannedBytes-before.PlannedBytes) / float64(c.AllocationBytes-before.AllocationBytes)
}

// pass serves these requests, and frees what is left at their end.
func (j lengths) pass(t *testing.T, d *Device, steps []lengthsStep) {
	t.Helper()
	freed, live := make([][]uint64, len(steps)+1), map[uint64]bool{}
	free := func(addresses []uint64) {
		for _, address := range addresses {
			delete(live, address)
			if err := d.Free(address, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, s := range steps {
		free(freed[i])
		address, _, err := d.Malloc(s.size, 0)
		if err != nil {
			t.Fatal(err)
		}
		if live[address] {
			t.Fatalf("%#x is given twice", address)
		}
		live[address] = true
		end := min(s.end, len(steps))
		freed[end] = append(freed[end], address)
	}
	free(freed[len(steps)])
}

// TestLengthsThatWereNotRecorded: a run is served at places of the plan although its batches are
// up to twice as long as any that was recorded, and no memory moves.
func TestLengthsThatWereNotRecorded(t *testing.T) {
	job, rng := lengths{layers: 20}, rand.New(rand.NewPCG(3, 0))
	d := open(t, job.plan(10, 8, 12), Options{})
	var passes []uint64
	for pass := range 12 {
		length := uint64(8 + rng.IntN(5))
		if pass > 4 {
			length = uint64(6 + rng.IntN(19))
		}
		passes = append(passes, length)
	}
	job.weights(t, d)
	share, c := job.serve(t, d, passes), d.Counters()
	if share < 0.98 {
		t.Errorf("%.1f %% of the bytes are on plan, expected 98; %+v", 100*share, c)
	}
	if c.MovedBytes > c.PeakReserved/4 || c.PeakReserved > c.PeakAllocated+c.PeakAllocated/50 {
		t.Errorf("moved %d B and reserved %d B for %d B", c.MovedBytes, c.PeakReserved, c.PeakAllocated)
	}
}

// TestShorterBehindOptional: passes that are shorter than any recorded one lack what only some of those had. What
// comes behind it has the scale of what came before, and is found by that: here memory does not move, so no law says its size.
func TestShorterBehindOptional(t *testing.T) {
	recorded, job := lengths{layers: 40, linear: true, some: true}, lengths{layers: 40, linear: true}
	d := open(t, recorded.plan(10, 8, 12), Options{Capacity: 1 << 40, Granularity: 2 << 20})
	job.weights(t, d)
	share, c := job.serve(t, d, []uint64{10, 12, 8, 7, 6, 7, 6, 5, 6}), d.Counters()
	if share < 0.98 {
		t.Errorf("%.1f %% of the bytes are on plan, expected 98; %+v", 100*share, c)
	}
}

// TestUnknownPartThatCostsMemory: something that the plan does not know leaves pieces among its places, so that a large
// block needs more memory than the plan is worth. The plan is left for that. As the run had followed it, it
// is served again when the next pass has ended.
func TestUnknownPartThatCostsMemory(t *testing.T) {
	job := lengths{layers: 20}
	d := open(t, job.plan(10, 8, 12), Options{})
	job.weights(t, d)
	job.serve(t, d, []uint64{10, 8, 12, 8, 12})
	const piece = 5 * mib / 2
	idle := d.Counters().PeakAllocated - d.Counters().AllocatedBytes
	allocate := func(size uint64) uint64 {
		address, _, err := d.Malloc(size, 0)
		if err != nil {
			t.Fatal(err)
		}
		return address
	}
	free := func(address uint64) {
		if err := d.Free(address, 0); err != nil {
			t.Fatal(err)
		}
	}
	var pieces, kept []uint64
	for range idle / piece {
		pieces = append(pieces, allocate(piece))
	}
	for i, address := range pieces {
		if i%2 == 0 {
			free(address)
		} else {
			kept = append(kept, address)
		}
	}
	kept = append(kept, allocate(idle/3))
	if c := d.Counters(); c.State != Off && c.PeakReserved <= c.PeakAllocated+c.PeakAllocated/100 {
		t.Errorf("the plan is worth what it costs: %+v", c)
	}
	for _, address := range kept {
		free(address)
	}
	job.serve(t, d, []uint64{10})
	if share := job.serve(t, d, []uint64{12, 8, 10}); share < 0.95 {
		t.Errorf("%.1f %% of the bytes are on plan, expected 95; %+v", 100*share, d.Counters())
	}
}

// TestLittleVaries: if most of what a plan holds does not vary, the run keeps its places though some
// sizes are beyond those recorded. All that the plan holds would move otherwise.
func TestLittleVaries(t *testing.T) {
	job := lengths{layers: 20, kept: 1 << 30}
	d := open(t, job.plan(12, 8, 12), Options{})
	job.weights(t, d)
	share, c := job.serve(t, d, []uint64{12, 8, 13, 12, 14, 13}), d.Counters()
	if share < 0.95 {
		t.Errorf("%.1f %% of the bytes are on plan, expected 95; %+v", 100*share, c)
	}
	if c.MovedBytes > c.PeakReserved/2 {
		t.Errorf("moved %d B, and reserved %d B for %d B", c.MovedBytes, c.PeakReserved, c.PeakAllocated)
	}
}

// TestFirstLengthOfAnotherRun: the first pass, which was recorded once, may have any length that the
// later ones had, also one that is many times shorter or longer. Memory is added for what its
// length needs, and does not move from block to block.
func TestFirstLengthOfAnotherRun(t *testing.T) {
	job := lengths{layers: 20}
	for _, first := range []struct{ recorded, served uint64 }{{40, 6}, {40, 9}, {6, 40}, {6, 30}} {
		t.Run(fmt.Sprintf("%d for %d", first.served, first.recorded), func(t *testing.T) {
			d := open(t, job.plan(first.recorded, 6, 40), Options{})
			job.weights(t, d)
			share := job.serve(t, d, []uint64{first.served, 20, 40, 6})
			c := d.Counters()
			if share < 0.99 || c.DriftEvents > 0 {
				t.Errorf("%.1f %% of the bytes are on plan, expected 99, and the sequence was left %d times, expected 0", 100*share, c.DriftEvents)
			}
			if c.MovedBytes > c.PeakReserved/2 || c.PeakReserved > c.PeakAllocated+c.PeakAllocated/50 {
				t.Errorf("moved %d B and reserved %d B for %d B", c.MovedBytes, c.PeakReserved, c.PeakAllocated)
			}
		})
	}
}

// evaluation are the requests of a forward pass of a length, which keeps what a layer makes until the next has made it.
func (j lengths) evaluation(length uint64) []lengthsStep {
	var steps []lengthsStep
	for _, s := range j.body(length)[:4*j.layers] {
		steps = append(steps, lengthsStep{s.size, len(steps) + 5})
	}
	return steps
}

// withEvaluation is the plan of a recording two of whose passes had an evaluation behind them.
func (j lengths) withEvaluation(once, least, longest uint64, evaluation []lengthsStep) planfile.Device {
	d := j.plan(once, least, longest)
	body, first := d.Phases[1], uint64(len(d.Slots))
	slots := slices.Clone(d.Slots[body.FirstSlot:])
	from := d.Slots[1].Offset + d.Slots[1].Size
	for i, e := range evaluation {
		end := body.Length + uint64(min(e.end, len(evaluation)))
		s := planfile.Slot{
			Start: body.Length + uint64(i), RequestedEnd: end, CompletedEnd: end, Size: up(e.size), Least: e.size, Requested: e.size,
			Occurrences: 2, Cell: planfile.NoCell,
		}
		s.Offset = lowest(slots, &s, from)
		slots = append(slots, s)
	}
	d.Slots = append(d.Slots, slots...)
	n := uint64(len(slots))
	d.Phases = append(d.Phases, planfile.Phase{Kind: planfile.PhaseBody, Occurrences: 2, Length: n, FirstSlot: first, SlotCount: n})
	all := make([]uint64, (n+63)/64)
	for i := range n {
		all[i/64] |= 1 << (i % 64)
	}
	for range 2 {
		d.Passes = append(d.Passes, planfile.Pass{FirstEvent: d.SteadyEnd, Phase: 2, Present: all})
		d.SteadyEnd++
	}
	d.Events = d.SteadyEnd
	return d
}

// TestAKnownEvaluationIsNoLongerBatch: an evaluation begins as a pass does, with twice the length of the longest. The plan knows
// its sizes, so its places are not left for it, which would move what they hold. Batches that are as long are served at places all the same.
func TestAKnownEvaluationIsNoLongerBatch(t *testing.T) {
	job := lengths{layers: 20}
	evaluation := job.evaluation(24)
	d := open(t, job.withEvaluation(10, 8, 12, evaluation), Options{})
	job.weights(t, d)
	for i, length := range []uint64{10, 9, 12, 8, 11, 8, 10, 12, 9, 8, 12, 11} {
		job.serve(t, d, []uint64{length})
		if i%3 == 2 {
			job.pass(t, d, evaluation)
		}
	}
	if c := d.Counters(); c.MovedBytes > c.PeakReserved/8 {
		t.Errorf("moved %d B of %d", c.MovedBytes, c.PeakReserved)
	}
	job.serve(t, d, []uint64{24})
	if share := job.serve(t, d, []uint64{24, 23, 24}); share < 0.9 {
		t.Errorf("%.1f %% of the bytes of long batches are on plan, expected 90", 100*share)
	}
}

// TestAnUnknownEvaluation: something that the plan does not know, such as a first evaluation, does in
// part what a pass does. The run is in the body then and after it, and not in the first pass, where
// the same requests were recorded too and, as that was once, look as if they always had that size.
func TestAnUnknownEvaluation(t *testing.T) {
	job := lengths{layers: 200, rows: true}
	for _, recorded := range []struct{ once, least, most uint64 }{{10, 8, 12}, {12, 8, 12}, {12, 6, 24}} {
		t.Run(fmt.Sprint(recorded), func(t *testing.T) {
			d := open(t, job.plan(recorded.once, recorded.least, recorded.most), Options{})
			job.weights(t, d)
			job.serve(t, d, []uint64{recorded.once, recorded.least, recorded.most, recorded.least})
			for i := range uint64(300) {
				job.pass(t, d, []lengthsStep{{(i%7+1)*mib + 512*i, 1}})
			}
			job.pass(t, d, job.body(recorded.once)[600:1100])
			if c := d.Counters(); c.State != Body || c.DriftEvents == 0 {
				t.Errorf("state %d after it, expected %d, and the sequence was left %d times", c.State, Body, c.DriftEvents)
			}
			if share := job.serve(t, d, []uint64{recorded.once, recorded.least, recorded.most}); share < 0.95 {
				t.Errorf("%.1f %% of the bytes after it are on plan, expected 95", 100*share)
			}
		})
	}
}

// TestLostInALongerBatch: in batches that are longer than any recorded one, something in the midst of the pass is done in
// another way, as sorts are from some length on. The run is found behind it by the sizes that laws say of the places there.
func TestLostInALongerBatch(t *testing.T) {
	job := lengths{layers: 40, alike: true}
	d := open(t, job.plan(10, 8, 12), Options{})
	job.weights(t, d)
	job.serve(t, d, []uint64{10, 12, 8, 11, 9})
	before := d.Counters()
	for _, length := range []uint64{15, 17, 14} {
		steps := job.body(length)
		for i := 60; i < 68; i++ {
			if steps[i].end == i+1 || steps[i].end == i+2 {
				steps[i].size = 6144 + uint64(i)*512
			}
		}
		job.pass(t, d, steps)
	}
	c := d.Counters()
	share := float64(c.PlannedBytes-before.PlannedBytes) / float64(c.AllocationBytes-before.AllocationBytes)
	if share < 0.9 {
		t.Errorf("%.1f %% of the bytes are on plan, expected 90; %+v", 100*share, c)
	}
}
