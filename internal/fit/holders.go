package fit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/trace"
)

// Holder is a group of buffers at a job's peak: those of one line of code and category, or
// without Python stacks, of one size and category.
type Holder struct {
	Line     peak.Line
	Size     trace.Bytes // of each, if the recording has no Python stacks
	Category peak.Category
	Bytes    trace.Bytes // at the peak
	Buffers  int
	// Events and MicroSeconds are how long half of them live at least. MicroSeconds is 0 if
	// the recording has no times.
	Events       int64
	MicroSeconds int64
	// Without is, of activations, the job's peak if they were gone for all but the ends of
	// their lives, in all iterations. Of others it is the peak as it is: what is kept is
	// used again and again, and a recording does not show when.
	Without trace.Bytes
}

// Idle says that the group lies idle between the ends of its lives, as far as its category
// says.
func (g *Holder) Idle() bool { return g.Category == peak.Activations }

// Holders are what binds a job's size.
type Holders struct {
	At     trace.Time
	Peak   trace.Bytes
	Groups []Holder // those with the most bytes at the peak, the largest first
	Total  int      // of groups
	// Listed is Without of the idle groups of Groups together, All that of all idle groups.
	Listed, All trace.Bytes
}

// edge is the number of events at either end of a buffer's life in which it is taken to be
// used: it is written when it is allocated and read last before its free, and in the
// meantime a layer's worth of other requests may be made.
const edge = 32

// groupKey tells buffers apart.
type groupKey struct {
	line     peak.Line
	size     trace.Bytes
	category peak.Category
}

// FindHolders finds the top groups of buffers at the peak of a job, and what their absence
// would give.
func FindHolders(j *Job, top int) (*Holders, error) {
	r, err := peak.Read(j.Trace, j.Device, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", j.Trace.Name, err)
	}
	h := &holders{r: r, lines: map[int32]peak.Line{}, members: map[groupKey][]int{}}
	for i := range r.Timeline.Buffers {
		if !r.Timeline.Buffers[i].Failed {
			key := h.key(i)
			h.members[key] = append(h.members[key], i)
		}
	}
	return h.find(top), nil
}

type holders struct {
	r       *peak.Recording
	lines   map[int32]peak.Line
	members map[groupKey][]int // indices of buffers
}

func (h *holders) key(i int) groupKey {
	l := h.r.Buffer(i)
	line, ok := h.lines[l.Stack]
	if !ok {
		line = h.r.Line(l.Stack)
		h.lines[l.Stack] = line
	}
	key := groupKey{line: line, category: l.Category}
	if h.r.Trace.Stacks.Len() == 0 {
		key = groupKey{size: l.Buffer.Size, category: l.Category}
	}
	return key
}

func (h *holders) find(top int) *Holders {
	tl := h.r.Timeline
	out := &Holders{At: tl.PeakAllocated.At, Peak: tl.PeakAllocated.Bytes}
	for key, members := range h.members {
		g := Holder{Line: key.line, Size: key.size, Category: key.category}
		for _, i := range members {
			if b := &tl.Buffers[i]; b.Start <= out.At && b.RequestedEnd > out.At {
				g.Bytes += b.Size
				g.Buffers++
			}
		}
		if g.Buffers > 0 {
			out.Groups = append(out.Groups, g)
		}
	}
	slices.SortFunc(out.Groups, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Line.Label, b.Line.Label), cmp.Compare(a.Line.From, b.Line.From),
			cmp.Compare(a.Size, b.Size), cmp.Compare(a.Category, b.Category))
	})
	out.Total = len(out.Groups)
	var listed, all []int
	for i := range out.Groups {
		g := &out.Groups[i]
		members := h.members[groupKey{g.Line, g.Size, g.Category}]
		if g.Idle() {
			all = append(all, members...)
		}
		if i >= top {
			continue
		}
		g.Events, g.MicroSeconds = h.life(members, out.At)
		if g.Without = out.Peak; g.Idle() {
			g.Without = h.without(members)
			listed = append(listed, members...)
		}
	}
	out.Groups = out.Groups[:min(top, out.Total)]
	out.Listed, out.All = h.without(listed), h.without(all)
	return out
}

// life is the median life of the members that are live at an event.
func (h *holders) life(members []int, at trace.Time) (events, microseconds int64) {
	var lives, times []int64
	list := h.r.Device.Events
	for _, i := range members {
		b := &h.r.Timeline.Buffers[i]
		if b.Start > at || b.RequestedEnd <= at {
			continue
		}
		lives = append(lives, int64(b.RequestedEnd-b.Start))
		last := min(b.RequestedEnd, trace.Time(len(list)-1))
		times = append(times, list[last].TimeUS-list[b.Start].TimeUS)
	}
	slices.Sort(lives)
	slices.Sort(times)
	return lives[len(lives)/2], max(0, times[len(times)/2])
}

// without is the peak of allocated bytes if buffers were gone for all but the ends of their
// lives.
func (h *holders) without(gone []int) trace.Bytes {
	tl := *h.r.Timeline
	tl.Buffers = slices.Clone(tl.Buffers)
	for _, i := range gone {
		b := tl.Buffers[i]
		if b.RequestedEnd-b.Start <= 2*edge {
			continue
		}
		later := b
		later.Start = b.RequestedEnd - edge
		tl.Buffers[i].RequestedEnd = b.Start + edge
		if !h.r.CutOff(&b) { // else the end of its life is not in the recording
			tl.Buffers = append(tl.Buffers, later)
		}
	}
	return tl.Load(lifespan.EndRequested).Peak().Bytes
}
