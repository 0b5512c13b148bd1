package baseline

import (
	"cmp"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// Result is what a simulated allocator did with a program.
type Result struct {
	// Peaks in bytes; see Usage for what they count. Allocated and active are
	// taken after each request, reserved within requests too.
	PeakReserved, PeakAllocated, PeakActive trace.Bytes
	// PeakAt is the first entry at which PeakReserved was reserved, -1 for before the
	// recording.
	PeakAt trace.Time
	// Retries counts the requests for which all cached memory was given back.
	Retries int
	// OOM says where the program stopped for lack of memory, nil if it ran to
	// its end.
	OOM *OOM

	final Usage // after the last entry, or where the program stopped
}

// OOM is a request that a simulated allocator could not serve.
type OOM struct {
	// Event is the recorded allocation, -1 for one from before the recording.
	Event     trace.Time
	Requested trace.Bytes
	Stream    uint64
	// Usage is the allocator's when it gave up. Reserved less Active is memory
	// that it had and could not use.
	Usage
}

// Simulate runs a program on an allocator, until the program ends or runs out of
// memory: a real job would stop there. Calls of empty_cache and completions of
// delayed frees stay where they were recorded. A request that ran out of memory
// in the recording does so again, since the program went on without it.
//
// If recording began after the first allocation, PyTorch's own allocators begin
// with the recorded segments, if they would make segments of that kind. All
// others begin by allocating the buffers in those segments, in address order.
//
// progress, if not nil, is called now and then with the number of operations
// done. A program that runs out of memory stops short of the total.
//
// An error is a *trace.InputError, or an error of a.New.
func Simulate(p *Program, a Allocator, progress func(done, total int64)) (Result, error) {
	return follow(p, a, 0, progress, nil)
}

// Follow is Simulate, and calls see, if not nil, after each operation of the program with
// the entry that it belongs to, -1 before the first, and the most bytes that the allocator
// has reserved since the call before. The largest of these is Result.PeakReserved.
func Follow(p *Program, a Allocator, progress func(done, total int64), see func(at trace.Time, reserved trace.Bytes)) (Result, error) {
	return follow(p, a, 0, progress, see)
}

// follow is Follow, which stops at the request that makes the allocator reserve more than
// limit; 0 is no limit.
func follow(p *Program, a Allocator, limit trace.Bytes, progress func(done, total int64), see func(at trace.Time, reserved trace.Bytes)) (Result, error) {
	m, err := a.New(p)
	if err != nil {
		return Result{}, err
	}
	s := &simulation{program: p, model: m, limit: limit, see: see}
	if err := s.begin(); err != nil {
		return Result{}, err
	}
	s.tell()
	if s.result.OOM == nil {
		s.each(progress, func(o *op) (more bool) {
			s.step(o)
			s.tell()
			return s.result.OOM == nil
		})
	}
	stats := m.Stats()
	s.result.final, s.result.Retries = stats.Usage, stats.Retries
	return s.result, nil
}

// simulation is a program on its way through a model.
type simulation struct {
	program *Program
	model   Model
	limit   trace.Bytes // of what is reserved, 0 for none
	now     trace.Time
	result  Result
	see     func(at trace.Time, reserved trace.Bytes)
	seen    trace.Bytes // the peak when see was called last
}

// tell calls see. What was reserved within an operation counts if it is a new peak.
func (s *simulation) tell() {
	if s.see == nil {
		return
	}
	stats := s.model.Stats()
	if stats.PeakReserved > s.seen {
		s.seen = stats.PeakReserved
		s.see(s.now, s.seen)
		return
	}
	s.see(s.now, stats.Reserved)
}

// begin brings about the state before the first entry.
func (s *simulation) begin() error {
	s.now = -1
	adopted := false
	if a, ok := s.model.(adopter); ok {
		var err error
		if adopted, err = a.adopt(s.program); err != nil {
			return err
		}
	}
	if !adopted {
		s.reissue()
	}
	s.peaks()
	return nil
}

// reissue allocates the buffers that were live when the recording began, in
// address order, until one of them cannot be served.
func (s *simulation) reissue() {
	buffers := s.program.buffers
	order := make([]int32, s.program.initial)
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int { return cmp.Compare(buffers[i].addr, buffers[j].addr) })
	for _, i := range order {
		if !s.alloc(i) {
			s.outOfMemory(i)
			return
		}
		if buffers[i].pending {
			s.model.Free(i)
		}
	}
}

// progressEvery is the number of operations between two calls of progress. A
// simulation does some two million operations a second, so that is about 100 calls
// a second: often enough for a bar, and no cost.
const progressEvery = 1 << 14

// each does the operations of the program in order, until act says that there
// are to be no more.
func (s *simulation) each(progress func(done, total int64), act func(*op) (more bool)) {
	total := len(s.program.ops)
	for i := range s.program.ops {
		if !act(&s.program.ops[i]) {
			return
		}
		if done := i + 1; progress != nil && (done == total || done%progressEvery == 0) {
			progress(int64(done), int64(total))
		}
	}
}

// step does one operation of the program.
func (s *simulation) step(o *op) {
	s.now = o.at
	switch o.kind {
	case opAlloc:
		if !s.alloc(o.buffer) {
			s.outOfMemory(o.buffer)
		}
		s.peaks()
	case opFree:
		s.model.Free(o.buffer)
	case opComplete:
		s.model.Complete(o.buffer)
	case opEmptyCache:
		s.model.EmptyCache(s.program.unused[o.buffer])
	case opRefused:
		s.model.Refuse(o.buffer, s.program.buffers[o.buffer].Request)
		s.peaks()
	}
}

// alloc reports whether the model served a buffer without reserving more than the limit.
func (s *simulation) alloc(buffer int32) bool {
	return s.model.Alloc(buffer, s.program.buffers[buffer].Request) && (s.limit == 0 || s.model.Stats().PeakReserved <= s.limit)
}

func (s *simulation) outOfMemory(buffer int32) {
	q := s.program.buffers[buffer]
	s.result.OOM = &OOM{Event: s.now, Requested: q.Size, Stream: q.Stream, Usage: s.model.Stats().Usage}
}

// peaks is called after each operation that may reserve memory.
func (s *simulation) peaks() {
	now := s.model.Stats()
	if now.PeakReserved > s.result.PeakReserved {
		s.result.PeakReserved, s.result.PeakAt = now.PeakReserved, s.now
	}
	s.result.PeakAllocated = max(s.result.PeakAllocated, now.Allocated)
	s.result.PeakActive = max(s.result.PeakActive, now.Active)
}
