package peak

import (
	"cmp"
	"maps"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// Free is the memory that was reserved and not allocated, by why a request could or
// could not have it.
type Free struct {
	// Usable is in segments of the request's stream and size class; Largest is the
	// largest piece of it, and Pieces how many there are.
	Usable, Largest trace.Bytes
	Pieces          int
	// Empty is what of Usable is in segments without any block. The allocator gives
	// these back before a request fails.
	Empty trace.Bytes
	// OtherStream is in segments of other streams, OtherClass in those of its stream for
	// small requests if it is large and the reverse, Private in pools of graphs and users.
	OtherStream, OtherClass, Private trace.Bytes
	// Slack is the rest of blocks that the allocator does not split.
	Slack trace.Bytes
}

// Total is all of it.
func (f *Free) Total() trace.Bytes {
	return f.Usable + f.OtherStream + f.OtherClass + f.Private + f.Slack
}

// FreeFor sorts the free memory by what a request of this size and stream can use.
func (m *Memory) FreeFor(size trace.Bytes, stream uint64) Free {
	var f Free
	for i := range m.Segments {
		s := &m.Segments[i]
		free := s.FreeBytes()
		f.Slack += s.Slack
		switch {
		case s.Private:
			f.Private += free
		case s.Stream != stream:
			f.OtherStream += free
		case s.Small != (size <= smallRequest):
			f.OtherClass += free
		default:
			f.Usable += free
			f.Largest = max(f.Largest, s.Largest())
			f.Pieces += len(s.Free)
			if len(s.Blocks) == 0 {
				f.Empty += free
			}
		}
	}
	return f
}

// Cause is why a request failed.
type Cause uint8

// The causes. What the driver had left counts as the request's: the allocator asks it
// before it gives up.
const (
	// CauseShort: even free memory in one piece would not have been enough.
	CauseShort Cause = iota
	// CauseFragmented: the free memory would have been enough, but it was in pieces.
	CauseFragmented
	// CauseLimit: the driver had enough, so a limit on the process stopped it, and the
	// free memory that the process had would not have been enough.
	CauseLimit
	// CauseFragmentedLimit: a limit stopped it, and the process's own free memory
	// would have been enough in one piece.
	CauseFragmentedLimit
)

// Why finds the cause of a request's failure. missing is how many bytes there were too
// few even in one piece, 0 if there were enough.
func (p *Peak) Why(q *Request) (c Cause, missing trace.Bytes) {
	free := p.Memory.FreeFor(q.Size, q.Stream)
	inPieces, limited := free.Total() >= q.Size, q.DriverFree >= trace.SegmentFor(q.Size)
	switch {
	case limited && inPieces:
		return CauseFragmentedLimit, 0
	case limited:
		return CauseLimit, q.Size - free.Total()
	case free.Total()+q.DriverFree >= q.Size:
		return CauseFragmented, 0
	}
	return CauseShort, q.Size - free.Total() - q.DriverFree
}

// mostlyFree is the share of a segment that has to be free for its blocks to count as
// being in the way: more than half, so that moving them would free more than it moves.
const mostlyFree = 2

// InTheWay are the segments that are mostly free, and that a request of this stream
// could use if they were empty, those with the most free memory first.
func (m *Memory) InTheWay(stream uint64) []*Segment {
	var out []*Segment
	for i := range m.Segments {
		s := &m.Segments[i]
		if !s.Small && !s.Private && s.Stream == stream && len(s.Blocks) > 0 && s.FreeBytes() > s.Size/mostlyFree {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *Segment) int {
		return cmp.Or(cmp.Compare(b.FreeBytes(), a.FreeBytes()), cmp.Compare(a.Address, b.Address))
	})
	return out
}

// Holder is a line of code whose blocks keep segments from being given back.
type Holder struct {
	Line     Line
	Category Category
	Blocks   int
	Bytes    trace.Bytes // in these blocks
	Segments int
	Free     trace.Bytes // in these segments; one with several holders counts for each
	// Oldest is the age of the oldest block in iterations, Since its allocation; -1 is
	// before recording began.
	Oldest int
	Since  trace.Time
}

// since is when a buffer was allocated, -1 if that was before recording began.
func (l *Live) since() trace.Time {
	if l.Buffer.Initial {
		return -1
	}
	return l.Buffer.Start
}

// Holders are the lines whose blocks lie in the given segments, those that hold the
// most free memory first.
func (r *Recording) Holders(p *Peak, segments []*Segment) []Holder {
	lines := newCache(r.Line)
	type key struct {
		line     Line
		category Category
	}
	found := map[key]*Holder{}
	for _, s := range segments {
		inSegment := map[key]bool{}
		for _, i := range s.Blocks {
			l := &p.Live[i]
			k := key{lines.of(l.Stack), l.Category}
			h := found[k]
			if h == nil {
				h = &Holder{Line: k.line, Category: l.Category, Since: l.since(), Oldest: l.Age}
				found[k] = h
			}
			h.Blocks++
			h.Bytes += l.Buffer.Size
			if l.since() < h.Since {
				h.Since, h.Oldest = l.since(), l.Age
			}
			if !inSegment[k] {
				inSegment[k] = true
				h.Segments++
				h.Free += s.FreeBytes()
			}
		}
	}
	holders := make([]Holder, 0, len(found))
	for h := range maps.Values(found) {
		holders = append(holders, *h)
	}
	slices.SortFunc(holders, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(b.Free, a.Free), cmp.Compare(a.Bytes, b.Bytes), compareLines(a.Line, b.Line), cmp.Compare(a.Category, b.Category))
	})
	return holders
}

// LargeRequest is a size that only segments for large requests serve.
const LargeRequest = smallRequest + trace.Granularity

// LargestOf are the largest buffers of a segment, at most n.
func (p *Peak) LargestOf(s *Segment, n int) []*Live {
	order := slices.Sorted(slices.Values(s.Blocks)) // Live is by size
	out := make([]*Live, 0, min(n, len(order)))
	for _, i := range order[:min(n, len(order))] {
		out = append(out, &p.Live[i])
	}
	return out
}
