package replay

import (
	"errors"
	"fmt"
	"math"

	"github.com/stplan/stplan/internal/trace"
)

// Allocator is an allocator that a program can be run against. Sizes are bytes. Addresses
// lie in one flat space.
type Allocator interface {
	// Malloc returns the address for a request. source says how it was served, in numbers
	// of the allocator's own. The error is a *LimitError if the program is to blame.
	Malloc(size, stream uint64) (address uint64, source int, err error)
	// Free frees the block at an address, which was allocated on the given stream.
	Free(address, stream uint64) error
	// RecordStream says that a stream uses the block at an address besides its own
	// stream.
	RecordStream(address, stream uint64) error
	// Operations appends what the allocator asked of the device since the last
	// call.
	Operations(into []Operation) []Operation
}

// Iterated is an Allocator that is told when an iteration of the program has ended.
type Iterated interface {
	Allocator
	EndIteration() error
}

// Exchanging is an Allocator that is told of exchanges with other processes: that one begins, which
// returns its number, and that the program has made a stream wait for one.
type Exchanging interface {
	Allocator
	BeginExchange() (number uint64)
	AwaitExchange(number, stream uint64)
}

// LimitError says that a program needs more than an allocator can have. The program is to
// blame, not the allocator.
type LimitError struct {
	Problem string
	// At is the entry of the request, and Requested its bytes. Run and Drive fill them in.
	At        trace.Time
	Requested trace.Bytes
}

func (e *LimitError) Error() string { return e.Problem }

// Operation is what an allocator asked of the device.
type Operation struct {
	Kind   Kind
	Stream uint64 // of Record and Wait
	Event  uint64 // of all but Settled and Carried

	From, To, Bytes uint64 // of Carried, addresses and bytes
}

// Kind is the kind of an Operation.
type Kind int

const (
	// Record records an event on a stream.
	Record Kind = iota
	// RecordWhole records an event behind what all streams of the device were given.
	RecordWhole
	// Wait makes a stream wait for the last recording of an event.
	Wait
	// Done says that the host has seen the last recording of an event done.
	Done
	// Settled says that the host has waited for all streams.
	Settled
	// Carried says that the memory at some addresses is at others from now on. Streams may still use it
	// at the old ones, where the allocator hands nothing out before it has waited for that.
	Carried
)

// Placement is how a request was served.
type Placement struct {
	Request int // index into Program.Requests
	Address uint64
	Source  int // as Malloc returned it
}

// Result is the outcome of a run.
type Result struct {
	Placements []Placement // in the order of the allocations
	Overlaps   int         // requests that were given memory in use
	First      string      // describes the first overlap, "" if there is none
	Waits      int         // number of times that a stream was made to wait
}

// side is the stream that uses pending buffers besides their own stream. It is not a
// stream of the recording.
func side(requests []Request) uint64 {
	taken := map[uint64]bool{}
	for i := range requests {
		taken[requests[i].Stream] = true
	}
	s := ^uint64(0) - 1
	for taken[s] {
		s--
	}
	return s
}

// Run drives the allocator through the program and judges every address that it hands
// out. An error is one of the allocator's, with the entry at which it occurred.
func Run(p *Program, a Allocator) (*Result, error) {
	r := newRunner(p, a)
	r.judge = newJudge(r.side)
	if err := r.run(); err != nil {
		return nil, err
	}
	r.result.Overlaps, r.result.First, r.result.Waits = r.judge.overlaps, r.judge.first, r.judge.waits
	return &r.result, nil
}

// Drive drives the allocator through the program as Run does, but judges nothing and does
// not call Operations. It is for figures that the allocator itself keeps.
func Drive(p *Program, a Allocator) error { return newRunner(p, a).run() }

// Follow drives the allocator as Drive does, and calls see after each step with the entry
// that it belongs to, -1 before the first.
func Follow(p *Program, a Allocator, see func(at trace.Time)) error {
	r := newRunner(p, a)
	r.see = see
	return r.run()
}

type runner struct {
	program   *Program
	allocator Allocator
	side      uint64
	address   []uint64 // of each request
	exchanges []uint64 // by exchange: the allocator's number
	judge     *judge   // nil if nothing is judged
	see       func(at trace.Time)
	result    Result
	pending   []Operation
}

func newRunner(p *Program, a Allocator) *runner {
	return &runner{program: p, allocator: a, side: side(p.Requests), address: make([]uint64, len(p.Requests)), exchanges: make([]uint64, len(p.exchanges))}
}

func (r *runner) run() error {
	ends := r.program.Ends
	for i, s := range r.program.steps {
		for ; len(ends) > 0 && ends[0] <= s.at.event; ends = ends[1:] {
			if err := r.endIteration(ends[0]); err != nil {
				return err
			}
		}
		if err := r.step(i, s); err != nil {
			return err
		}
		if r.see != nil {
			r.see(s.at.event)
		}
	}
	return nil
}

func (r *runner) endIteration(at trace.Time) error {
	told, ok := r.allocator.(Iterated)
	if !ok {
		return nil
	}
	if err := told.EndIteration(); err != nil {
		return fmt.Errorf("entry %d: the end of an iteration: %w", at, err)
	}
	return nil
}

// exchange tells the allocator of an exchange, if it is to be told.
func (r *runner) exchange(at int, s step) {
	told, ok := r.allocator.(Exchanging)
	if !ok {
		return
	}
	if s.kind == stepBegin {
		r.exchanges[s.request] = told.BeginExchange()
	} else {
		told.AwaitExchange(r.exchanges[s.request], s.stream)
	}
	r.operations(at)
}

func (r *runner) step(at int, s step) error {
	if s.kind == stepBegin || s.kind == stepAwait {
		r.exchange(at, s)
		return nil
	}
	q := &r.program.Requests[s.request]
	var err error
	switch s.kind {
	case stepAlloc:
		err = r.alloc(at, int(s.request), q)
	case stepFree:
		err = r.free(at, int(s.request), q)
	case stepComplete:
		if r.judge != nil {
			r.judge.complete(int(s.request))
		}
	}
	if err != nil {
		return fmt.Errorf("entry %d: %w", s.at.event, err)
	}
	return nil
}

func (r *runner) alloc(at, i int, q *Request) error {
	address, source, err := r.allocator.Malloc(uint64(q.Requested), q.Stream)
	if err != nil {
		var limit *LimitError
		if errors.As(err, &limit) {
			limit.At, limit.Requested = q.Event, q.Requested
		}
		return fmt.Errorf("allocating %d B: %w", q.Requested, err)
	}
	if address > math.MaxUint64-uint64(trace.RoundUp(q.Requested)) {
		return fmt.Errorf("allocating %d B: the address %#x is too high for them", q.Requested, address)
	}
	r.operations(at)
	r.address[i] = address
	if r.judge == nil {
		return nil
	}
	r.result.Placements = append(r.result.Placements, Placement{i, address, source})
	r.judge.alloc(i, q, address)
	return nil
}

func (r *runner) free(at, i int, q *Request) error {
	if q.Pending {
		if err := r.allocator.RecordStream(r.address[i], r.side); err != nil {
			return fmt.Errorf("recording a stream of %#x: %w", r.address[i], err)
		}
	}
	if r.judge != nil {
		r.judge.free(at, i)
	}
	if err := r.allocator.Free(r.address[i], q.Stream); err != nil {
		return fmt.Errorf("freeing %#x: %w", r.address[i], err)
	}
	r.operations(at)
	return nil
}

func (r *runner) operations(at int) {
	if r.judge == nil {
		return
	}
	r.pending = r.allocator.Operations(r.pending[:0])
	for _, o := range r.pending {
		r.judge.operation(at, o)
	}
}
