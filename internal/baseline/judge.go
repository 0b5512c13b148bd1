package baseline

import (
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// releaseJudge decides who caused a burst, a run of released segments in a
// recording. Either the program called empty_cache, which leaves no other trace:
// the call belongs to the program, and every simulated allocator gets it. Or the
// allocator released them itself, to serve a request that had found no block: a
// simulated allocator does that again if it has to.
type releaseJudge struct {
	events   []trace.Event
	recorded *rules
	peak     trace.Bytes // the most ever reserved, which the card can give
	reserved trace.Bytes // now
	grown    bool        // segments were taken since the last op: a request is being served
}

func newReleaseJudge(d *trace.Device, recorded *rules) releaseJudge {
	return releaseJudge{
		events: d.Events, recorded: recorded,
		peak: FromRecording(d).PeakReserved, reserved: initiallyReserved(d),
	}
}

// see is told of every entry, in order.
func (j *releaseJudge) see(e *trace.Event) {
	if n := segmentDelta(e); n != 0 {
		j.reserved += n
		j.grown = j.grown || n > 0
	}
}

// burstEnd is the end of the run of releases that begins at entry i.
func (j *releaseJudge) burstEnd(i int) int {
	for i < len(j.events) && segmentDelta(&j.events[i]) < 0 {
		i++
	}
	return i
}

// isEmptyCache judges the burst [i, end); entry i has been seen. If the allocator
// may have caused it, it looks for evidence that it did not.
func (j *releaseJudge) isEmptyCache(i, end int, requestOf func(int) Request) bool {
	if j.grown {
		return false
	}
	if j.waitsThenReleases(end) && j.selective(i, end) {
		return false // the collector's burst, which was not enough; another follows
	}
	served := end
	for served < len(j.events) && segmentDelta(&j.events[served]) > 0 {
		served++
	}
	if served == len(j.events) {
		return true
	}
	switch action := j.events[served].Action; {
	case action == trace.ActionOOM:
		return false
	case action != trace.ActionAlloc || served == end:
		return true // no request took a segment after it
	}
	request := requestOf(served)
	if j.couldServe(i, end, request) {
		return true
	}
	if j.selective(i, end) {
		return false
	}
	before := j.reserved - segmentDelta(&j.events[i])
	// The card gave more than this at another time, so it cannot have refused.
	return before+j.events[end].Size <= j.peak
}

// waitsThenReleases says that entry i begins a run of completed frees that ends
// in another burst.
func (j *releaseJudge) waitsThenReleases(i int) bool {
	for i < len(j.events) && j.events[i].Action == trace.ActionFreeCompleted {
		i++
	}
	return i < len(j.events) && segmentDelta(&j.events[i]) < 0
}

// couldServe says that one of the released segments could have served the request
// r. The allocator releases nothing for a request that a free block can serve. A
// segment does not count if it became free only while the allocator waited for
// pending frees, which it does right before it releases.
func (j *releaseJudge) couldServe(i, end int, r Request) bool {
	size := j.recorded.divisions.Round(r.Size)
	awaited := j.addresses(j.awaited(i), i)
	for ; i < end; i++ {
		e := &j.events[i]
		if e.Stream == r.Stream && j.mayServe(e, small(size)) && e.Size >= size &&
			!j.mayBeOversize(e, size) && !anyWithin(awaited, e) {
			return true
		}
	}
	return false
}

// mayBeOversize says that the block of a release may have been too large for the
// request. An unmapped range is only the whole pages of its block, which may have
// had almost a page more on either side.
func (j *releaseJudge) mayBeOversize(e *trace.Event, size trace.Bytes) bool {
	block := e.Size
	if e.Action == trace.ActionSegmentUnmap {
		block += 2 * j.recorded.page(j.isSmall(e))
	}
	return j.recorded.oversize(block, size)
}

// awaited returns the first entry of the run of completed frees that ends before
// entry i: the frees that the allocator waited for. If the entry before the run
// requests the free of its first block, nobody waited for that one.
func (j *releaseJudge) awaited(i int) int {
	first := i
	for first > 0 && j.events[first-1].Action == trace.ActionFreeCompleted {
		first--
	}
	if first > 0 && first < i && j.events[first-1].Action == trace.ActionFreeRequested && j.events[first-1].Addr == j.events[first].Addr {
		first++
	}
	return first
}

// addresses returns the addresses of the entries [i, end), sorted.
func (j *releaseJudge) addresses(i, end int) []uint64 {
	var addrs []uint64
	for ; i < end; i++ {
		addrs = append(addrs, j.events[i].Addr)
	}
	slices.Sort(addrs)
	return addrs
}

func anyWithin(sorted []uint64, e *trace.Event) bool {
	i, _ := slices.BinarySearch(sorted, e.Addr)
	return i < len(sorted) && sorted[i] < e.Addr+uint64(e.Size)
}

// selective says that the allocator may have released only some of its free
// segments. The garbage collector releases large native segments only. The search
// for an oversize block releases oversize ones of one stream only.
func (j *releaseJudge) selective(i, end int) bool {
	if j.recorded.gcThreshold == 0 && j.recorded.maxSplit == unlimited {
		return false
	}
	stream := j.events[i].Stream
	for ; i < end; i++ {
		e := &j.events[i]
		if e.Action == trace.ActionSegmentUnmap || j.isSmall(e) {
			return false
		}
		if j.recorded.gcThreshold == 0 && (e.Size < j.recorded.maxSplit || e.Stream != stream) {
			return false
		}
	}
	return true
}

// mayServe says that a release may have come from the half of a pool, small or
// large, that serves the request. Many pages of an expandable small pool look like
// a large one's.
func (j *releaseJudge) mayServe(e *trace.Event, small bool) bool {
	return j.isSmall(e) == small || small && e.Action == trace.ActionSegmentUnmap
}

// isSmall says that a release came from a small pool, judged by its size: segments
// and pages of a large pool are larger.
func (j *releaseJudge) isSmall(e *trace.Event) bool {
	if e.Action == trace.ActionSegmentFree {
		return e.Size == smallSegment
	}
	return e.Size%j.recorded.largeSegment != 0
}

// segmentDelta is the number of bytes by which an entry changes what is reserved.
func segmentDelta(e *trace.Event) trace.Bytes {
	switch e.Action {
	case trace.ActionSegmentAlloc, trace.ActionSegmentMap:
		return e.Size
	case trace.ActionSegmentFree, trace.ActionSegmentUnmap:
		return -e.Size
	}
	return 0
}
