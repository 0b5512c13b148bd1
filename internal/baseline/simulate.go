package baseline

import "github.com/stplan/stplan/internal/trace"

// Result is what a simulated allocator did with a program.
type Result struct {
	// Peaks in bytes; see Usage for what they count.
	PeakReserved, PeakAllocated, PeakActive trace.Bytes
	// Retries counts the requests for which all cached memory was given back.
	Retries int
	// OOM says where the program stopped for want of memory, nil if it ran to
	// its end.
	OOM *OOM

	final Usage // after the last entry, or where the program stopped
}

// OOM is a request that a simulated allocator could not serve, after everything
// that PyTorch tries.
type OOM struct {
	// Event is the recorded allocation, -1 for one from before the recording.
	Event     trace.Time
	Requested trace.Bytes
	Stream    uint64
	// Usage is the allocator's when it gave up. Reserved less Active is memory
	// that it had and could not use.
	Usage
}

// Simulate runs the program of a recording under c, until it ends or runs out
// of memory: a real job would stop there. Calls of empty_cache stay where they
// were recorded, and so do the moments at which delayed frees complete. A
// request that was refused in the recording is refused again, since the program
// went on without it.
//
// Where recording began after the first allocation, the simulation begins with
// the recorded segments, or, if c makes segments of another kind, with the
// buffers in them allocated in address order.
//
// progress, if not nil, is told now and then how many of the program's acts are
// done; a program that runs out of memory stops short of the total.
//
// An error is a *trace.InputError, or says which setting of c makes no sense.
func Simulate(d *trace.Device, c Config, progress func(done, total int64)) (Result, error) {
	v := newCard(d)
	s, err := newSimulation(d, c, v)
	if err != nil {
		return Result{}, err
	}
	if err := s.begin(d, c); err != nil {
		return Result{}, err
	}
	if s.result.OOM == nil {
		s.each(progress, func(o *op) (more bool) {
			v.refuse = o.kind == opRefused
			s.step(o)
			return s.result.OOM == nil
		})
	}
	s.result.final = s.allocator.usage()
	s.result.Retries = s.allocator.retries
	return s.result, nil
}

// simulation is a program on its way through an allocator.
type simulation struct {
	program   *program
	allocator *caching
	now       trace.Time
	result    Result
	watch     func(segmentEvent) // told of every dealing, may be nil
}

func newSimulation(d *trace.Device, c Config, v driver) (*simulation, error) {
	r, err := c.rules()
	if err != nil {
		return nil, err
	}
	recorded, err := c.recordedRules()
	if err != nil {
		return nil, err
	}
	p, err := readProgram(d, &recorded)
	if err != nil {
		return nil, err
	}
	s := &simulation{program: p, now: -1}
	s.allocator = newCaching(r, v, len(p.buffers), s.see)
	s.allocator.custom = customPools(d, &recorded)
	return s, nil
}

// begin brings about the state before the first entry.
func (s *simulation) begin(d *trace.Device, c Config) error {
	if sameKind(d.Initial, c.Expandable) {
		if err := s.allocator.adopt(d.Initial); err != nil {
			return err
		}
	} else if n := reissue(s.allocator, s.program); n >= 0 {
		s.outOfMemory(n)
	}
	s.peaks()
	return nil
}

// progressEvery is after how many acts progress is told.
const progressEvery = 1 << 14

// each does the acts of the program in order, until one says that it was the
// last.
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

// step does one act of the program. The address is where a buffer came to lie.
func (s *simulation) step(o *op) (addr uint64) {
	s.now = o.at
	switch o.kind {
	case opAlloc:
		var ok bool
		if addr, ok = s.allocator.alloc(o.buffer, s.program.buffers[o.buffer].request); !ok {
			s.outOfMemory(o.buffer)
		}
		s.peaks()
	case opFree:
		s.allocator.free(o.buffer)
	case opComplete:
		s.allocator.complete(o.buffer)
	case opEmptyCache:
		s.allocator.emptyCache(s.program.unused[o.buffer])
	case opRefused:
		s.refused(o.buffer)
	}
	return addr
}

// refused makes the attempt whose failure is recorded, for what the allocator
// gives back before it gives up. If it had the memory after all, that is free
// again at once.
func (s *simulation) refused(buffer int32) {
	if _, ok := s.allocator.alloc(buffer, s.program.buffers[buffer].request); ok {
		s.allocator.free(buffer)
		s.allocator.complete(buffer)
	}
}

func (s *simulation) outOfMemory(buffer int32) {
	q := s.program.buffers[buffer]
	s.result.OOM = &OOM{Event: s.now, Requested: q.size, Stream: q.stream, Usage: s.allocator.usage()}
}

func (s *simulation) peaks() {
	now := s.allocator.usage()
	s.result.PeakReserved = max(s.result.PeakReserved, now.Reserved)
	s.result.PeakAllocated = max(s.result.PeakAllocated, now.Allocated)
	s.result.PeakActive = max(s.result.PeakActive, now.Active)
}

// see takes note of a dealing with the driver.
func (s *simulation) see(e segmentEvent) {
	s.result.PeakReserved = max(s.result.PeakReserved, s.allocator.usage().Reserved)
	if s.watch != nil {
		s.watch(e)
	}
}
