package stalloc

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

const mib trace.Bytes = 1 << 20

// job makes up a recording, with an annotation at the end of each iteration.
type job struct {
	d    trace.Device
	next uint64
	size map[uint64]trace.Bytes
}

func newJob() *job { return &job{next: 1 << 30, size: map[uint64]trace.Bytes{}} }

func (j *job) alloc(size trace.Bytes) uint64 {
	j.next += 1 << 30
	j.size[j.next] = size
	j.d.Events = append(j.d.Events, trace.Event{Action: trace.ActionAlloc, Addr: j.next, Size: size, Pool: -1})
	return j.next
}

func (j *job) free(addrs ...uint64) {
	for _, a := range addrs {
		for _, action := range []trace.Action{trace.ActionFreeRequested, trace.ActionFreeCompleted} {
			j.d.Events = append(j.d.Events, trace.Event{Action: action, Addr: a, Size: j.size[a], Pool: -1})
		}
	}
}

func (j *job) endIteration() {
	for _, end := range []bool{false, true} {
		j.d.Annotations = append(j.d.Annotations, trace.Annotation{Name: "Optimizer.step#SGD.step", End: end, At: trace.Time(len(j.d.Events))})
	}
}

// steps runs a job of n iterations: weights, a state that the first one leaves, and in each
// iteration the sizes that it asks for, in MiB, which are freed in reverse order.
func steps(n int, sizes func(iteration int) []trace.Bytes) *job {
	j := newJob()
	j.alloc(64 * mib)
	for i := range n {
		var kept []uint64
		for _, s := range sizes(i) {
			kept = append(kept, j.alloc(s*mib))
		}
		for k := range kept {
			j.free(kept[len(kept)-1-k])
		}
		if i == 0 {
			j.alloc(32 * mib)
		}
		j.endIteration()
	}
	return j
}

// usual are the sizes of an iteration that is like the others: enough requests for it to be
// found again.
var usual = slices.Repeat([]trace.Bytes{10, 20, 30, 40, 20, 10, 24, 12, 22, 14, 16, 18}, 3)

// analyse finds the buffers and the iterations of a job.
func analyse(t *testing.T, j *job) (*lifespan.Timeline, lifespan.Iterations) {
	t.Helper()
	tl, err := lifespan.Build(&j.d)
	if err != nil {
		t.Fatal(err)
	}
	it, err := lifespan.FindIterations(&trace.Stacks{}, &j.d, tl, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl, it
}

// serve simulates a job and returns the model too.
func serve(t *testing.T, j *job, c baseline.Config, hooks bool) (baseline.Result, *server) {
	t.Helper()
	tl, it := analyse(t, j)
	return simulate(t, &j.d, tl, it, c, hooks)
}

// checked is the server, with checks after each call.
type checked struct {
	*server
	t *testing.T
}

func (c checked) Alloc(buffer int32, r baseline.Request) bool {
	i := c.next
	ok := c.server.Alloc(buffer, r)
	if at, inArena := c.given[buffer]; inArena && at.high-at.low != c.tl.Buffers[i].Size {
		c.t.Fatalf("buffer %d has %v, and needs %d B", i, at, c.tl.Buffers[i].Size)
	}
	c.check()
	return ok
}

func (c checked) Free(buffer int32) {
	c.server.Free(buffer)
	c.check()
}

// check expects disjoint blocks within the arena, and their sum to be what is counted.
func (c checked) check() {
	c.t.Helper()
	sum, end := trace.Bytes(len(c.inSlab))*slab, trace.Bytes(0)
	for _, s := range union(slices.Concat(c.held, c.lent)) {
		if s.low < end || s.high <= s.low || s.high > c.arena {
			c.t.Fatalf("block %v after %d in an arena of %d B", s, end, c.arena)
		}
		sum, end = sum+s.high-s.low, s.high
	}
	if sum != c.stats.Allocated || len(c.given) != len(c.held)+len(c.lent) {
		c.t.Fatalf("%d B in %d blocks, %d B in %d counted", sum, len(c.held)+len(c.lent), c.stats.Allocated, len(c.given))
	}
}

func simulate(t *testing.T, d *trace.Device, tl *lifespan.Timeline, it lifespan.Iterations, c baseline.Config, hooks bool) (baseline.Result, *server) {
	t.Helper()
	p, err := baseline.ReadProgram(d, c)
	if err != nil {
		t.Fatal(err)
	}
	a := Allocators(tl, it, c)[map[bool]int{true: 0, false: 1}[hooks]]
	var s *server
	made := a.New
	a.New = func(p *baseline.Program) (baseline.Model, error) {
		m, err := made(p)
		if err != nil {
			return nil, err
		}
		s = m.(*server)
		return checked{s, t}, nil
	}
	r, err := baseline.Simulate(p, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r, s
}

// TestRepeatingJob: a job whose iterations are alike is served from the arena, which is as
// large as what is live at once.
func TestRepeatingJob(t *testing.T) {
	r, s := serve(t, steps(6, func(int) []trace.Bytes { return usual }), baseline.Config{}, false)
	sum := 96 * mib
	for _, u := range usual {
		sum += u * mib
	}
	if r.PeakReserved != sum || s.arena != sum || len(s.lines)-s.again != len(usual) || r.OOM != nil {
		t.Errorf("%d B reserved, arena %d, %d lines, expected %d B and %d lines", r.PeakReserved, s.arena, len(s.lines)-s.again, sum, len(usual))
	}
}

// TestDriftLasts: one request more in one iteration shifts every later one, whose sizes do
// not agree with the lines any more, for the rest of the job.
func TestDriftLasts(t *testing.T) {
	extra := func(at int) func(int) []trace.Bytes {
		return func(i int) []trace.Bytes {
			if i != at {
				return usual
			}
			return append([]trace.Bytes{3}, usual...)
		}
	}
	_, s := serve(t, steps(8, extra(5)), baseline.Config{}, false)
	// Iteration 5 takes a line too many, so that those after it begin with the second.
	if s.cursor != s.again+1 {
		t.Errorf("the next line is %d, expected %d", s.cursor, s.again+1)
	}
	if online := s.rest.Stats().PeakReserved; online < 200*mib {
		t.Errorf("%d MiB online: the job found its place again", online/mib)
	}
	// With a hook on what varies nothing is shifted.
	_, s = serve(t, steps(8, extra(5)), baseline.Config{}, true)
	if online := s.rest.Stats().PeakReserved; s.cursor != s.again || online > 60*mib {
		t.Errorf("the next line is %d, %d MiB online", s.cursor, online/mib)
	}
}

// TestLineIsCheckedBySizeAndPlace: a line of another size is not served, nor one whose place
// another line's request has. One whose place is lent is refused for good.
func TestLineIsCheckedBySizeAndPlace(t *testing.T) {
	_, s := serve(t, steps(4, func(int) []trace.Bytes { return usual }), baseline.Config{}, true)
	buffer := func(n trace.Bytes) *lifespan.Buffer { return &lifespan.Buffer{Requested: n, Size: trace.RoundUp(n)} }
	l := &line{size: 1000, offset: 2048}
	if _, ok := s.serveLine(l, buffer(1024)); ok || s.stream(7) != 0 {
		t.Error("served a line of another size, or with a stream")
	}
	s.held, s.lent, s.forgotten = nil, nil, false
	if at, ok := s.serveLine(l, buffer(1000)); !ok || at.span != (span{2048, 3072}) {
		t.Errorf("%v %t", at, ok)
	}
	other := span{1024, 2560}
	s.held.add(other)
	if _, ok := s.serveLine(l, buffer(1000)); ok || len(s.refused) > 0 {
		t.Error("served a place that a line has, or refused it for good")
	}
	s.held.remove(other)
	s.lent.add(other)
	s.forgotten = false
	if _, ok := s.serveLine(l, buffer(1000)); ok || s.stream(7) != 7 {
		t.Error("served a place that is lent, or without its stream")
	}
	s.lent.remove(other)
	if _, ok := s.serveLine(l, buffer(1000)); ok {
		t.Error("a refused place was served again")
	}
}

// TestDynamicGetsGaps: a request that varies gets a piece that the plan leaves it while it
// lives, and none of what lasts.
func TestDynamicGetsGaps(t *testing.T) {
	j := newJob()
	j.alloc(64 * mib)
	for i := range 7 {
		var kept []uint64
		for _, u := range usual {
			kept = append(kept, j.alloc(u*mib))
		}
		j.free(kept[1:]...)
		j.free(j.alloc(trace.Bytes(6+i%3) * mib)) // varies, when little else lives
		j.free(kept[0])
		j.endIteration()
	}
	lent := 0
	_, s := serve(t, j, baseline.Config{}, true)
	for slot, closed := range s.closed {
		if len(closed) == 0 || closed[0].low != 0 || closed[0].high < s.resident {
			t.Errorf("residents end at %d, slot %d is closed at %v", s.resident, slot, closed)
		}
		if at, ok := s.serveDynamic(slot, 512); ok {
			lent++
			if closed.meets(at.span) {
				t.Errorf("slot %d got %v of %v", slot, at, closed)
			}
		}
	}
	if lent == 0 {
		t.Error("no request that varies got a part of the arena")
	}
}

// TestThirdIterationMustBeLikeTheSecond: otherwise two are traced.
func TestThirdIterationMustBeLikeTheSecond(t *testing.T) {
	sizes := func(i int) []trace.Bytes {
		s := append([]trace.Bytes{}, usual...)
		if i == 2 {
			s[5]++
		}
		return s
	}
	tl, it := analyse(t, steps(7, sizes))
	tr, why := NewTrace(tl, it, 3)
	if why != "" {
		t.Fatal(why)
	}
	if _, why = newPlan(tr); why != "request 5 of the third iteration has 11534336 B, that of the second 10485760 B" {
		t.Errorf("%q", why)
	}
	if s, why := first(NewTrace, tl, it); why != "" || s == nil {
		t.Errorf("%q", why)
	}
}

// TestCardWithoutRoom: the arena is taken first. If it does not fit, nothing starts.
func TestCardWithoutRoom(t *testing.T) {
	j := steps(6, func(int) []trace.Bytes { return usual })
	if r, _ := serve(t, j, baseline.Config{DeviceMemory: 700 * mib}, true); r.OOM == nil || r.OOM.Event != 0 || r.PeakReserved != 0 {
		t.Errorf("%+v, expected to run out at once", r)
	}
	if r, _ := serve(t, j, baseline.Config{DeviceMemory: 900 * mib}, true); r.OOM != nil {
		t.Errorf("%+v, expected enough", r.OOM)
	}
}

// TestUnfit: without iterations there is no plan, and the error says so.
func TestUnfit(t *testing.T) {
	j := newJob()
	j.free(j.alloc(mib))
	tl, err := lifespan.Build(&j.d)
	if err != nil {
		t.Fatal(err)
	}
	p, err := baseline.ReadProgram(&j.d, baseline.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = baseline.Simulate(p, Allocators(tl, lifespan.Iterations{}, baseline.Config{})[0], nil)
	var unfit *baseline.UnfitError
	if !errors.As(err, &unfit) || unfit.Why != "0 steady iterations of 0, expected at least 2" {
		t.Errorf("%v", err)
	}
}

// TestRecordings serves the recordings of the examples, with every check. STAlloc's own
// code has the same efficiencies (docs/results/peers.md).
func TestRecordings(t *testing.T) {
	for _, name := range []string{"llama7b-pp4-VR", "resnet50", "gpt2-xl-ckpt"} {
		tr, err := trace.ReadFile(filepath.Join("../../examples", name, name+".pickle.gz"), trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := &tr.Devices[0]
		tl, err := lifespan.Build(d)
		if err != nil {
			t.Fatal(err)
		}
		it, err := lifespan.FindIterations(&trace.Stacks{}, d, tl, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, hooks := range []bool{true, false} {
			r, s := simulate(t, d, tl, it, baseline.Config{}, hooks)
			efficiency := float64(tl.PeakAllocated.Bytes) / float64(r.PeakReserved)
			t.Logf("%s: efficiency %.4f, arena %d B", name, efficiency, s.arena)
			if efficiency < 0.79 || efficiency > 1 || s.next != len(tl.Buffers) {
				t.Errorf("%s: efficiency %.4f, %d of %d requests", name, efficiency, s.next, len(tl.Buffers))
			}
		}
	}
}

// FuzzJobs makes up jobs of bytes, with requests that come and go, change, and outlive their
// iteration, and expects the checks of checked and what is held to be true of any allocator:
// allocated <= reserved <= peak reserved <= the card.
func FuzzJobs(f *testing.F) {
	f.Add([]byte{5, 10, 20, 30, 200, 40, 50, 3, 9, 77, 130})
	f.Add([]byte{7, 1, 1, 1, 255, 254, 60, 61, 62, 63, 64, 65, 190, 191, 192, 5, 6, 7, 8, 9})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) < 4 || len(raw) > 200 {
			return
		}
		j := newJob()
		j.alloc(64 * mib)
		var late []uint64
		for i := range 3 + int(raw[0]%6) {
			kept := late
			late = nil
			for k, b := range raw[1:] {
				size := trace.Bytes(b%64+1) << (8 + b%14)
				switch {
				case b >= 240 && (i+k)%3 == 0: // not in every iteration
					continue
				case b >= 192: // of another size in each
					size += trace.Bytes(i) << 12
				}
				if a := j.alloc(size); b%32 == 31 {
					late = append(late, a)
				} else {
					kept = append(kept, a)
				}
				if b%4 == 3 && len(kept) > 0 {
					j.free(kept[0])
					kept = kept[1:]
				}
			}
			j.free(kept...)
			j.endIteration()
		}
		tl, it := analyse(t, j)
		for _, hooks := range []bool{true, false} {
			if s, _ := first(map[bool]func(*lifespan.Timeline, lifespan.Iterations, int) (*Trace, string){true: NewHookedTrace, false: NewTrace}[hooks], tl, it); s == nil {
				continue
			}
			for _, memory := range []trace.Bytes{0, 256 * mib} {
				r, s := simulate(t, &j.d, tl, it, baseline.Config{DeviceMemory: memory}, hooks)
				now := s.Stats()
				if now.Allocated > now.Reserved || now.Reserved > max(r.PeakReserved, now.PeakReserved) || memory > 0 && r.PeakReserved > memory || r.OOM == nil && r.PeakReserved < tl.PeakAllocated.Bytes {
					t.Errorf("hooks %t: %+v, %+v, %d B live at the peak", hooks, now, r, tl.PeakAllocated.Bytes)
				}
			}
		}
	})
}
