package replay

import (
	"fmt"
	"slices"
)

// judge decides whether each request is given memory that nobody uses. It keeps
// the last owner of every byte. A request may have bytes whose last owner
//
//   - has been freed by the program, and
//   - ran on the same stream, or on one that the request's stream has waited for
//     since, by an event recorded at that free or later, and
//   - if its free was delayed by another stream: either the recording says that
//     the delay is over, or the request's stream has waited for that stream,
//     likewise.
//
// Where the host has waited for the device since the free, nobody uses them.
// What owned the bytes earlier was waited for by the last owner.
type judge struct {
	side     uint64
	owners   []owner
	index    map[int]int // request to owner
	pages    map[uint64][]piece
	recorded map[uint64]mark           // event to what it covers
	waited   map[uint64]map[uint64]int // stream to stream to step that it has waited for
	settled  int                       // step of the last time the host waited for the device, -1 before
	overlaps int
	first    string
	waits    int
}

// owner is a request as the judge sees it.
type owner struct {
	request   int
	stream    uint64
	low, high uint64 // bytes
	freed     int    // step of its free, -1 before
	pending   bool   // its free is delayed
}

// mark is an event: it covers what the stream did up to a step.
type mark struct {
	stream uint64
	step   int
}

// piece is a range of bytes within a page and the owner that had it last.
type piece struct {
	low, high uint64
	owner     int
}

// pageBytes is how many bytes the judge looks at together. Any power of two
// would do.
const pageBytes = 1 << 21

func newJudge(side uint64) *judge {
	return &judge{
		side: side, index: map[int]int{}, pages: map[uint64][]piece{},
		recorded: map[uint64]mark{}, waited: map[uint64]map[uint64]int{}, settled: -1,
	}
}

// operation notes what was asked of the device during a step.
func (j *judge) operation(step int, o Operation) {
	if o.Host {
		j.settled = step
		return
	}
	if !o.Wait {
		j.recorded[o.Event] = mark{o.Stream, step}
		return
	}
	j.waits++
	m, ok := j.recorded[o.Event]
	if !ok {
		return // waiting for an event that was never recorded waits for nothing
	}
	if j.waited[o.Stream] == nil {
		j.waited[o.Stream] = map[uint64]int{}
	}
	if before, ok := j.waited[o.Stream][m.stream]; !ok || m.step > before {
		j.waited[o.Stream][m.stream] = m.step
	}
}

func (j *judge) alloc(request int, q *Request, address uint64) {
	o := owner{request: request, stream: q.Stream, low: address, high: address + uint64(Aligned(q.Requested)), freed: -1, pending: q.Pending}
	k := len(j.owners)
	j.owners = append(j.owners, o)
	j.index[request] = k
	bad := -1
	for page := o.low / pageBytes; page*pageBytes < o.high; page++ {
		low, high := max(o.low, page*pageBytes), min(o.high, (page+1)*pageBytes)
		if found := j.own(page, piece{low, high, k}); found >= 0 {
			bad = found
		}
	}
	if bad >= 0 {
		j.overlaps++
		if j.first == "" {
			j.first = j.explain(&o, &j.owners[bad])
		}
	}
}

// own makes p.owner the last owner of p's bytes, and returns an owner that did
// not allow that, or -1.
func (j *judge) own(page uint64, p piece) int {
	list := j.pages[page]
	bad := -1
	from, _ := slices.BinarySearchFunc(list, p.low, func(a piece, low uint64) int {
		if a.high <= low {
			return -1
		}
		return 1
	})
	to := from
	var kept []piece
	for ; to < len(list) && list[to].low < p.high; to++ {
		old := list[to]
		if !j.allows(&j.owners[old.owner], &j.owners[p.owner]) {
			bad = old.owner
		}
		if old.low < p.low {
			kept = append(kept, piece{old.low, p.low, old.owner})
		}
		if to+1 == len(list) || list[to+1].low >= p.high {
			kept = append(kept, p)
			if old.high > p.high {
				kept = append(kept, piece{p.high, old.high, old.owner})
			}
		}
	}
	if from == to {
		kept = append(kept, p)
	}
	j.pages[page] = slices.Replace(list, from, to, kept...)
	return bad
}

// allows says whether the last owner of some bytes lets another have them.
func (j *judge) allows(last, next *owner) bool {
	if last.freed < 0 {
		return false
	}
	if last.freed <= j.settled {
		return true
	}
	if last.stream != next.stream && !j.hasWaited(next.stream, last.stream, last.freed) {
		return false
	}
	return !last.pending || j.hasWaited(next.stream, j.side, last.freed)
}

func (j *judge) hasWaited(stream, on uint64, step int) bool {
	to, ok := j.waited[stream][on]
	return ok && to >= step
}

func (j *judge) free(step, request int) { j.owners[j.index[request]].freed = step }

// complete ends the delay of a request's free.
func (j *judge) complete(request int) { j.owners[j.index[request]].pending = false }

func (j *judge) explain(o, last *owner) string {
	why := "which is live"
	if last.freed >= 0 {
		why = "which other streams may still use"
	}
	return fmt.Sprintf("request %d was given [%#x, %#x), in part of request %d at [%#x, %#x), %s",
		o.request, o.low, o.high, last.request, last.low, last.high, why)
}
