package lifespan

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// Data decide how many tokens each expert of a mixture gets, and so how many bytes it takes. The experts of a layer
// together take about as much in every pass. With a place for each of their slots, as large as in its largest pass, a plan takes
// a few per cent more than any pass does. So such slots share one place, which is as large as the most that they take
// together in a pass.

// What other values of these constants do is in docs/steady-state.md.
const (
	// smallShare is the size in bytes up to which a slot shares places with such only, as it would cut the room of large ones.
	smallShare = 64 << 10
	// shareReach is how many slots further on a slot may still share a place: more than there are between the experts of
	// two layers.
	shareReach = 1024
	// shareLives is the share of its lifetime by which a slot may end after the place that it shares, which is kept from
	// the first of its slots to the end of the last. It may end before: the last layer forward is the first one
	// backward, so all layers may share a place, and fill it as a stack.
	shareLives = 1. / 8
	// shareSaves is the share of the bytes of its slots, each at its largest, by which less was recorded in a place. If
	// sizes follow one length they are all largest in one pass, and nothing is saved.
	shareSaves = 1. / 32
	// shareSlack is how much larger a place is than what was recorded in it. Experts together take the same, but they end in
	// another order than they begin, which leaves gaps, and some of their buffers may be taken for those of another place. What
	// a run does not use of it has no memory.
	shareSlack = 1. / 16
	// shareShort is the longest lifetime, in times of its phase, of a slot that is the work of one expert. The work of all
	// experts of a layer shares one place, one after the other: any of them may be the one with the most tokens. There are
	// at most shareApart slots between two of them.
	shareShort = 24
	shareApart = 16
	// shareMore is how much larger such a place is than what was recorded in it: in another run an expert may
	// have more tokens than any had.
	shareMore = 1. / 4
	// shareLeast is the share of the bytes of a body that its shared places have to save, and of the envelope. The shared recordings of experts save 1.5 to
	// 4.2 % of the bytes, all others 0.03 % at most.
	shareLeast = 1. / 128
)

// member is a slot that may share a place. Times are those of its phase.
type member struct {
	slot       int // index in its phase
	start, end int
	stream     uint64
	of         int  // members of different numbers never share a place
	small      bool // it is not larger than smallShare
	short      bool // it is the work of one expert
	crossed    bool // it is not short, and what comes in its lifetime outlives it
}

// group is members that share a place, in their order.
type group struct {
	members []member
	end     int  // the latest of their ends
	short   bool // they are the work of one expert after the other
}

// Shared is the steady state of iterations with places that slots share, nil if that saves too little. end picks the ends
// of the slots' live ranges. The passes are aligned by the ratios of sizes, which tell experts apart whatever their tokens,
// unless that saves too little of what p takes.
func (p *Periodic) Shared(tl *Timeline, it Iterations, end End) *Periodic {
	if !p.decided() {
		return nil // the passes are the same, however they are aligned
	}
	if r, _, _ := chooseCut(tl, mergeIterations(tl, it, way{whole(readRatios), alignRatios}, asRecorded), end); r != nil {
		if q, _ := r.classified(tl, end); q != nil {
			shared := q.shared(tl, it, end)
			least := p.largest(tl, end) + p.StrayBytes
			if shared != nil && float64(shared.largest(tl, end)+shared.StrayBytes) <= (1-shareLeast)*float64(least) {
				return shared
			}
		}
	}
	return p.shared(tl, it, end)
}

// shared is the steady state with places that slots share, nil if that saves too little.
func (p *Periodic) shared(tl *Timeline, it Iterations, end End) *Periodic {
	q := *p
	q.Other = nil
	q.Prologue, q.Bodies = slices.Clone(p.Prologue), slices.Clone(p.Bodies)
	sizes := p.sizes(tl)
	shares := false
	for x := range q.Bodies {
		q.Bodies[x].Slots = slices.Clone(q.Bodies[x].Slots)
		shares = q.Bodies[x].share(sizes[x], end) || shares
	}
	if !shares {
		return nil
	}
	q.sharePrologue(tl, it, end)
	return &q
}

// sizes are the aligned sizes of each body, by its passes and slots; 0 if the pass lacks the slot.
func (p *Periodic) sizes(tl *Timeline) [][][]trace.Bytes {
	out := make([][][]trace.Bytes, len(p.Bodies))
	at := len(p.Prologue)
	for _, pass := range p.Passes {
		sizes := make([]trace.Bytes, p.Bodies[pass.Body].Length)
		for _, slot := range pass.Slots() {
			sizes[slot] = tl.Buffers[at].Size
			at++
		}
		out[pass.Body] = append(out[pass.Body], sizes)
	}
	return out
}

// share has the slots of a body share places, if that saves enough, and says whether it does. sizes are by pass and slot.
func (b *Body) share(sizes [][]trace.Bytes, end End) bool {
	var members []member
	var saved, all trace.Bytes
	for i := range b.Slots {
		s := &b.Slots[i]
		if all += s.Size; s.decided(b) {
			members = append(members, member{slot: i, start: i, end: s.Until(end, b.Length), stream: s.Stream, small: s.Size <= smallShare, short: s.short(b, end)})
		}
	}
	var kept []group
	var places []trace.Bytes
	for _, g := range groups(members) {
		if len(g.members) == 1 {
			continue
		}
		largest, most := g.load(func(i int) trace.Bytes { return b.Slots[i].Size }), trace.Bytes(0)
		for _, pass := range sizes {
			most = max(most, g.load(func(i int) trace.Bytes { return pass[i] }))
		}
		if !g.short {
			if float64(most) > (1-shareSaves)*float64(largest) {
				continue
			}
			saved += largest - most
		}
		kept, places = append(kept, g), append(places, g.place(most))
	}
	if float64(saved) < shareLeast*float64(all) {
		return false
	}
	for n, g := range kept {
		holder := g.members[0].slot
		for _, m := range g.members {
			b.Slots[m.slot].Holder, b.Slots[m.slot].Size = holder, places[n]
		}
		b.Slots[holder].Holds = true
	}
	return true
}

// decided says whether data decide what any slot of a body takes.
func (p *Periodic) decided() bool {
	return slices.ContainsFunc(p.Bodies, func(b Body) bool {
		return slices.ContainsFunc(b.Slots, func(s Slot) bool { return s.decided(&b) })
	})
}

// decided says whether data decide what a slot takes, and it may share a place.
func (s *Slot) decided(b *Body) bool {
	varies := s.Requested-s.Least >= trace.Granularity || s.Occurrences < b.Occurrences
	return varies && s.Cell < 0 && !s.Stray
}

// groups are the members that share places: those that live about as long, close to one another.
func groups(members []member) []group {
	cross(members)
	var done, open []group
	for _, m := range members {
		open = slices.DeleteFunc(open, func(g group) bool {
			far := m.slot-g.members[len(g.members)-1].slot > g.reach()
			if far {
				done = append(done, g)
			}
			return far
		})
		best, least := -1, math.MaxInt
		for n, g := range open {
			if apart := max(g.end-m.end, m.end-g.end); apart < least && g.takes(m) {
				best, least = n, apart
			}
		}
		if best < 0 {
			open = append(open, group{short: m.short})
			best = len(open) - 1
		}
		open[best].members = append(open[best].members, m)
		open[best].end = max(open[best].end, m.end)
	}
	return append(done, open...)
}

// cross notes which members are crossed: what comes behind them, before their end, outlives them. Those that are not can lie on one
// another as a stack, as the activations of layers do. Among these a crossed one would leave a hole.
func cross(members []member) {
	// latest[k][i] is the latest end of the 2^k members from i on (a sparse table).
	latest := [][]int{make([]int, len(members))}
	for i, m := range members {
		latest[0][i] = m.end
	}
	for k := 1; 1<<k <= len(members); k++ {
		row := make([]int, len(members)-1<<k+1)
		for i := range row {
			row[i] = max(latest[k-1][i], latest[k-1][i+1<<(k-1)])
		}
		latest = append(latest, row)
	}
	for i := range members {
		m := &members[i]
		next, _ := slices.BinarySearchFunc(members, m.end, func(o member, end int) int { return cmp.Compare(o.start, end) })
		if n := next - i - 1; n > 0 {
			k := bits.Len(uint(n)) - 1
			last := max(latest[k][i+1], latest[k][next-1<<k])
			m.crossed = !m.short && float64(last-m.end) > shareLives*float64(m.end-m.start)
		}
	}
}

// takes says whether a slot may share the place of a group. Buffers that all end with a layer live for as many slots as there are experts behind
// theirs, so that the last ones are as short as the work of one expert.
func (g *group) takes(m member) bool {
	first := &g.members[0]
	if first.small != m.small || first.stream != m.stream || first.of != m.of || first.crossed != m.crossed || g.short && !m.short {
		return false
	}
	near := shareLives * float64(m.end-m.start)
	return g.short || g.end > m.start && float64(m.end-g.end) <= near && (!m.crossed && !m.short || float64(g.end-m.end) <= near)
}

// short says whether a slot is the work of one expert.
func (s *Slot) short(b *Body, end End) bool { return s.Until(end, b.Length)-s.Start <= shareShort }

// reach is how many slots after its last one a slot may still share the place of a group.
func (g *group) reach() int {
	if g.short {
		return shareApart
	}
	return shareReach
}

// load is the most that the members take at a time, each with the size of its slot.
func (g *group) load(size func(slot int) trace.Bytes) trace.Bytes {
	first := g.members[0].start
	p := make(Profile, g.end-first+1)
	for _, m := range g.members {
		p[m.start-first] += size(m.slot)
		p[m.end-first] -= size(m.slot)
	}
	p.accumulate()
	return p.Peak().Bytes
}

// place is the bytes of a place for a group that takes so many at most.
func (g *group) place(most trace.Bytes) trace.Bytes {
	more := shareSlack
	if g.short {
		more = shareMore
	}
	return trace.RoundUp(most + trace.Bytes(more*float64(most)))
}

// shared says whether it shares its place with others.
func (s *Slot) shared() bool { return s.Holder != s.Start || s.Holds }

// sharePrologue does to the iterations of the prologue what was done to the passes. Each was recorded once. What it has of
// slots that share places shares one that is as large as theirs.
func (p *Periodic) sharePrologue(tl *Timeline, it Iterations, end End) {
	body := &p.Bodies[p.Passes[0].Body]
	of := readRatios(body.timeline(), 0, body.Length)
	var members []member
	for k := 0; k < it.Count && it.Starts[k] < p.Cut; k++ {
		first, last := max(tl.initial(), tl.bufferAt(it.Starts[k])), tl.bufferAt(min(it.Starts[k+1], p.Cut))
		members = append(members, p.likeShared(tl, of, first, last, end)...)
	}
	size := func(i int) trace.Bytes { return tl.Buffers[i].Size }
	found, loads := groups(members), map[int]trace.Bytes{} // of the groups that share a place of the body, and live at the same time
	for _, g := range found {
		if !g.short {
			loads[g.members[0].of] += g.load(size)
		}
	}
	for _, g := range found {
		if len(g.members) == 1 {
			continue
		}
		holder, load := g.members[0], g.load(size)
		like := body.Slots[holder.of].Size
		if !g.short {
			like = trace.RoundUp(trace.Bytes(float64(like) * float64(load) / float64(loads[holder.of])))
		}
		place := max(g.place(load), like)
		for _, m := range g.members {
			p.Prologue[m.slot].Holder, p.Prologue[m.slot].Size = int32(holder.slot), place
		}
		p.Prologue[holder.slot].Holds = true
	}
}

// likeShared are the buffers [first, last) of the prologue that are the same lines of the program as slots of the first pass's body that
// share places; of has the tokens of these. It notes those that data decide and that share none.
func (p *Periodic) likeShared(tl *Timeline, of []token, first, last int, end End) []member {
	body := &p.Bodies[p.Passes[0].Body]
	var members []member
	for k, at := range alignRatios(of, readRatios(tl, first, last)) {
		i := first + k
		s := &p.Prologue[i]
		if at < 0 || s.Resident || s.Cell >= 0 {
			continue
		}
		switch like := &body.Slots[at]; {
		case like.shared():
			members = append(members, member{
				slot: i, start: i, end: tl.bufferAt(s.Until(end, p.Cut)), stream: tl.Buffers[i].Stream,
				of: like.Holder, short: body.Slots[like.Holder].short(body, end),
			})
		case like.decided(body):
			s.Like = at
		}
	}
	return members
}

// timeline has the slots of the body as buffers, in its time.
func (b *Body) timeline() *Timeline {
	tl := &Timeline{Events: trace.Time(b.Length), Buffers: make([]Buffer, b.Length)}
	for i := range b.Slots {
		s := &b.Slots[i]
		tl.Buffers[i] = Buffer{
			Start: trace.Time(i), RequestedEnd: trace.Time(s.RequestedEnd), CompletedEnd: trace.Time(min(s.CompletedEnd, b.Length)),
			Size: trace.RoundUp(s.Requested), Requested: s.Requested, Stream: s.Stream,
		}
	}
	return tl
}

// Slots are the slots of the pass's allocations, in their order.
func (p *Pass) Slots() []int {
	var out []int
	for w, word := range p.Present {
		for ; word != 0; word &= word - 1 {
			out = append(out, 64*w+bits.TrailingZeros64(word))
		}
	}
	return out
}
