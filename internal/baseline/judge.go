package baseline

import (
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// releaseJudge decides for each burst of released segments in a recording
// whether the program called empty_cache, which leaves no other sign, or the
// allocator released them on its own, to serve a request that had found no
// block. The first belongs to the program and is kept whatever the allocator;
// the second a simulated allocator does again when it has to.
type releaseJudge struct {
	events   []trace.Event
	recorded *rules
	peak     trace.Bytes // the most ever reserved: what the card can give
	reserved trace.Bytes // now
	grown    bool        // segments were taken since the last op: a request is being served
}

func newReleaseJudge(d *trace.Device, recorded *rules) releaseJudge {
	return releaseJudge{
		events: d.Events, recorded: recorded,
		peak: FromRecording(d).PeakReserved, reserved: initiallyReserved(d),
	}
}

// see keeps account of the entries in order.
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

// isEmptyCache judges the burst [i, end); entry i has been seen. Where both are
// possible it looks for something that the allocator's own release excludes.
func (j *releaseJudge) isEmptyCache(i, end int, requestOf func(int) Request) bool {
	if j.grown {
		return false
	}
	if j.waitsThenReleases(end) && j.selective(i, end) {
		return false // the collector's; it was not enough
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
	// Nothing was refused if the card gave more at another time.
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

// couldServe says that one of the released segments could have served the
// request. Nothing is released for a request that a free block can serve. It
// proves nothing of a segment that became free only while the allocator waited
// for pending frees, as it does right before it releases.
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

// mayBeOversize says that the block may have been too large for the request. An
// unmapped range was the whole pages of a block.
func (j *releaseJudge) mayBeOversize(e *trace.Event, size trace.Bytes) bool {
	block := e.Size
	if e.Action == trace.ActionSegmentUnmap {
		block += 2 * j.recorded.page(j.isSmall(e))
	}
	return j.recorded.oversize(block, size)
}

// awaited is where the run of completed frees begins that ends before entry i.
// The first belongs to the free before it if that is of the same block.
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

// addresses are those of the entries [i, end), in order.
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

// selective says that the burst may be the garbage collector's, which releases
// large native segments only, or the search for an oversize block, which
// releases oversize ones of one stream.
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

// mayServe says that a release may have come from the small or the large half of
// a pool. Many pages of a small one can look like a large one's.
func (j *releaseJudge) mayServe(e *trace.Event, small bool) bool {
	return j.isSmall(e) == small || small && e.Action == trace.ActionSegmentUnmap
}

// isSmall says that a release came from a small pool. The pages of an expandable
// large pool are larger.
func (j *releaseJudge) isSmall(e *trace.Event) bool {
	if e.Action == trace.ActionSegmentFree {
		return e.Size == smallSegment
	}
	return e.Size%j.recorded.largeSegment != 0
}

// segmentDelta is by how much an entry changes what is reserved.
func segmentDelta(e *trace.Event) trace.Bytes {
	switch e.Action {
	case trace.ActionSegmentAlloc, trace.ActionSegmentMap:
		return e.Size
	case trace.ActionSegmentFree, trace.ActionSegmentUnmap:
		return -e.Size
	}
	return 0
}
