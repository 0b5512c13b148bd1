package baseline

import (
	"fmt"
	"math"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// Program is what a recorded process asked of its allocator, without what the
// allocator did about it.
type Program struct {
	// buffers are first those that were live when the recording began, initial of
	// them, then one for each allocation, served or refused, in order.
	buffers []buffer
	initial int
	ops     []op
	device  *trace.Device // the recording
	// custom are the private pools whose segments are never expandable.
	custom map[trace.PoolID]bool
	// unused are the private pools that each opEmptyCache emptied.
	unused [][]trace.PoolID
}

type buffer struct {
	Request
	addr uint64 // as recorded
	// pending says that the buffer's free was pending when recording began.
	pending bool
}

type opKind uint8

const (
	opAlloc opKind = iota
	opFree
	opComplete
	opEmptyCache
	// opRefused is an allocation that ran out of memory in the recording, after
	// which the program went on.
	opRefused
)

// op is one operation of the program. The segment events between the entry of the
// op before it and its own are what the recorded allocator did to serve it.
type op struct {
	kind   opKind
	buffer int32      // of opEmptyCache: the index in unused
	at     trace.Time // of opEmptyCache: the last entry of the burst that it caused
}

// reader takes a recording apart.
type reader struct {
	device  *trace.Device
	program *Program
	live    map[uint64]int32 // by recorded address, until completed
	freed   []bool           // by buffer
	private privatePools
	judge   releaseJudge
	// completes says that the recording has free_completed entries.
	completes bool
	// serving says that the entries are in the middle of a request that made the
	// allocator release something. The completions of frees that it waited for
	// meanwhile are deferred until after the request, which failed without them.
	serving  bool
	deferred []op
}

// ReadProgram separates the program from a recording. recorded is what the
// recording ran under, from RecordedConfig; limits of the card do not matter. A
// recording that contradicts itself is a *trace.InputError.
func ReadProgram(d *trace.Device, recorded Config) (*Program, error) {
	rules, err := recorded.recordedRules()
	if err != nil {
		return nil, err
	}
	allocs := 0
	for i := range d.Events {
		if d.Events[i].Action == trace.ActionAlloc {
			allocs++
		}
	}
	r := reader{
		device: d, live: make(map[uint64]int32), private: findPrivatePools(d),
		judge: newReleaseJudge(d, &rules), completes: completes(d),
		program: &Program{
			device: d, custom: customPools(d, &rules),
			buffers: make([]buffer, 0, allocs), ops: make([]op, 0, 3*allocs),
		},
	}
	if err := r.readInitial(); err != nil {
		return nil, err
	}
	for i := 0; i < len(d.Events); {
		next, err := r.read(i)
		if err != nil {
			return nil, err
		}
		i = next
	}
	r.program.ops = append(r.program.ops, r.deferred...)
	return r.program, nil
}

// readInitial numbers the buffers that were there before the recording.
func (r *reader) readInitial() error {
	for i := range r.device.Initial {
		s := &r.device.Initial[i]
		for j := range s.Blocks {
			b := &s.Blocks[j]
			if b.State == trace.BlockInactive {
				continue
			}
			n, err := r.begin(b.Address, Request{b.Requested, s.Stream, s.Pool}, "initial state")
			if err != nil {
				return err
			}
			r.program.initial++
			if b.State == trace.BlockPendingFree {
				r.program.buffers[n].pending = true
				r.pend(n)
			}
		}
	}
	return nil
}

// pend notes that the free of an initial buffer was pending. If the recording has
// no completions, it completes before the first entry.
func (r *reader) pend(n int32) {
	r.freed[n] = true
	if !r.completes {
		delete(r.live, r.program.buffers[n].addr)
		r.add(opComplete, n, 0)
	}
}

// read reads entry i, or the burst that begins there, and returns the next entry to
// read.
func (r *reader) read(i int) (next int, err error) {
	e := &r.device.Events[i]
	r.judge.see(e)
	switch e.Action {
	case trace.ActionAlloc:
		n, err := r.begin(e.Addr, r.request(i), entry(i))
		if err != nil {
			return 0, err
		}
		r.add(opAlloc, n, i)
	case trace.ActionOOM:
		n, err := r.number(buffer{Request: r.request(i)}, entry(i))
		if err != nil {
			return 0, err
		}
		r.add(opRefused, n, i)
	case trace.ActionFreeRequested, trace.ActionFreeCompleted:
		return i + 1, r.free(i)
	case trace.ActionSegmentFree, trace.ActionSegmentUnmap:
		end := r.judge.burstEnd(i)
		if !r.serving && r.judge.isEmptyCache(i, end, r.request) {
			r.program.unused = append(r.program.unused, r.emptied(i, end))
			r.add(opEmptyCache, int32(len(r.program.unused)-1), end-1)
		} else {
			r.beginServing(i, end)
		}
		for i++; i < end; i++ {
			r.judge.see(&r.device.Events[i])
		}
		return end, nil
	}
	return i + 1, nil
}

func (r *reader) add(k opKind, buffer int32, at int) {
	o := op{k, buffer, trace.Time(at)}
	if k == opComplete && (r.serving || r.judge.grown) {
		r.deferred = append(r.deferred, o)
		return
	}
	r.program.ops = append(r.program.ops, o)
	r.program.ops = append(r.program.ops, r.deferred...)
	r.deferred = r.deferred[:0]
	r.judge.grown, r.serving = false, false
}

// beginServing notes that the allocator released [i, end) to serve a request. Before
// it releases everything, and only then, it waits for pending frees: the ops of
// those are deferred.
func (r *reader) beginServing(i, end int) {
	if r.serving {
		return
	}
	r.serving = true
	if r.judge.selective(i, end) {
		return
	}
	ops := r.program.ops
	first, awaited := len(ops), trace.Time(r.judge.awaited(i))
	for first > 0 && ops[first-1].at >= awaited {
		first--
	}
	r.deferred = append(r.deferred, ops[first:]...)
	r.program.ops = ops[:first]
}

// begin makes a buffer live.
func (r *reader) begin(addr uint64, q Request, where string) (int32, error) {
	if _, ok := r.live[addr]; ok {
		return 0, &trace.InputError{Where: where, Problem: fmt.Sprintf("allocation at 0x%x, which is still in use", addr)}
	}
	n, err := r.number(buffer{Request: q, addr: addr}, where)
	if err == nil {
		r.live[addr] = n
	}
	return n, err
}

// number gives a buffer its number.
func (r *reader) number(b buffer, where string) (int32, error) {
	if b.Size < 0 || b.Size > maxRequest {
		return 0, &trace.InputError{Where: where, Problem: fmt.Sprintf("allocation of %d B, expected 0 to %d", b.Size, maxRequest)}
	}
	if len(r.program.buffers) == math.MaxInt32 {
		return 0, &trace.InputError{Where: where, Problem: fmt.Sprintf("more than %d allocations", math.MaxInt32)}
	}
	r.program.buffers = append(r.program.buffers, b)
	r.freed = append(r.freed, false)
	return int32(len(r.program.buffers) - 1), nil
}

// free reads the end of a buffer. If the recording lacks one of the two kinds of
// entry, the other stands for both.
func (r *reader) free(i int) error {
	e := &r.device.Events[i]
	n, ok := r.live[e.Addr]
	completes := e.Action == trace.ActionFreeCompleted || !r.completes
	if !ok || !completes && r.freed[n] {
		return &trace.InputError{Where: entry(i), Problem: fmt.Sprintf("%s of 0x%x, which is not allocated", e.Action, e.Addr)}
	}
	if !r.freed[n] {
		r.freed[n] = true
		r.add(opFree, n, i)
	}
	if completes {
		delete(r.live, e.Addr)
		r.add(opComplete, n, i)
	}
	return nil
}

// emptied lists the private pools that gave back memory in [i, end), as far as the
// recording names them.
func (r *reader) emptied(i, end int) []trace.PoolID {
	var pools []trace.PoolID
	for ; i < end; i++ {
		if id := r.private.of(r.device, i); id != (trace.PoolID{}) && !slices.Contains(pools, id) {
			pools = append(pools, id)
		}
	}
	return pools
}

// request returns what the alloc or oom entry i asks for.
func (r *reader) request(i int) Request {
	e := &r.device.Events[i]
	return Request{e.Size, e.Stream, r.private.of(r.device, i)}
}

func entry(i int) string { return fmt.Sprintf("entry %d", i) }
