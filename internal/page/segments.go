package page

import (
	"cmp"
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/trace"
)

// layout puts what the recorded allocator had reserved into one picture. Segments lie
// anywhere in the address space, so each gets the lowest place that is free while it lives.
// Within a segment, addresses are the recorded ones.
type layout struct {
	pieces []piece
	owner  []int32 // of each buffer: the piece that it lies in, or -1
	in     []trace.Bytes
	height trace.Bytes
}

// piece is a range of addresses while it was reserved: a segment, or a mapped part of one
// that expands.
type piece struct {
	address    uint64
	size       trace.Bytes
	start, end trace.Time
	stream     uint64
	expands    bool
	place      trace.Bytes
}

// layOut lays out what was reserved, nil if the recording has no segments or more than a
// page shows.
func layOut(r *peak.Recording) *layout {
	if r.Device.AddressesInvented {
		return nil
	}
	l := &layout{owner: make([]int32, len(r.Timeline.Buffers)), in: make([]trace.Bytes, len(r.Timeline.Buffers))}
	for i := range l.owner {
		l.owner[i] = -1
	}
	s := sweep{l: l}
	if !s.run(r) {
		return nil
	}
	l.put(l.spaces())
	for i := range l.pieces {
		l.height = max(l.height, l.pieces[i].place+l.pieces[i].size)
	}
	if l.height/trace.Granularity > maxUnits || l.height == 0 {
		return nil
	}
	return l
}

// of is the address of buffer i in the picture, in units.
func (l *layout) of(i int) uint32 {
	if l == nil || l.owner[i] < 0 {
		return nowhere
	}
	return units(l.pieces[l.owner[i]].place + l.in[i])
}

// sweep finds the pieces and in which of them each buffer lies.
type sweep struct {
	l    *layout
	open []int32 // pieces that are reserved, by address
}

func (s *sweep) run(r *peak.Recording) bool {
	d := r.Device
	for i := range d.Initial {
		g := &d.Initial[i]
		s.add(piece{address: g.Address, size: g.Size, stream: g.Stream, expands: g.Expandable})
	}
	next := 0
	for ; next < len(r.Timeline.Buffers) && r.Timeline.Buffers[next].Initial; next++ {
		s.own(next, r.Timeline.Buffers[next].Addr)
	}
	for at := range d.Events {
		e := &d.Events[at]
		switch e.Action {
		case trace.ActionSegmentAlloc, trace.ActionSegmentMap:
			s.remove(e.Addr, e.Size, trace.Time(at)) // its release may not be recorded
			s.add(piece{address: e.Addr, size: e.Size, start: trace.Time(at), stream: e.Stream, expands: e.Action == trace.ActionSegmentMap})
		case trace.ActionSegmentFree, trace.ActionSegmentUnmap:
			s.remove(e.Addr, e.Size, trace.Time(at))
		case trace.ActionAlloc:
			s.own(next, e.Addr)
			next++
		}
		if len(s.l.pieces) > maxSegments {
			return false
		}
	}
	for _, i := range s.open {
		s.l.pieces[i].end = r.Timeline.Events
	}
	return true
}

// own notes the piece that a buffer lies in.
func (s *sweep) own(buffer int, address uint64) {
	k := s.from(address+1) - 1
	if k < 0 {
		return
	}
	p := &s.l.pieces[s.open[k]]
	if offset := address - p.address; offset < uint64(p.size) {
		s.l.owner[buffer], s.l.in[buffer] = s.open[k], trace.Bytes(offset)
	}
}

// from is the index of the first open piece that begins at address or after it.
func (s *sweep) from(address uint64) int {
	return sort.Search(len(s.open), func(k int) bool { return s.l.pieces[s.open[k]].address >= address })
}

func (s *sweep) add(p piece) {
	s.l.pieces = append(s.l.pieces, p)
	s.open = slices.Insert(s.open, s.from(p.address), int32(len(s.l.pieces)-1))
}

// remove ends what is reserved of a range. What is left of a piece on either side goes on
// as a piece of its own.
func (s *sweep) remove(address uint64, size trace.Bytes, at trace.Time) {
	end := address + uint64(size)
	first := s.from(address)
	if first > 0 {
		if p := &s.l.pieces[s.open[first-1]]; p.address+uint64(p.size) > address {
			first--
		}
	}
	last := first
	var rest []piece
	for ; last < len(s.open) && s.l.pieces[s.open[last]].address < end; last++ {
		p := &s.l.pieces[s.open[last]]
		p.end = at
		left, right := *p, *p
		left.start, right.start = at, at
		if p.address < address {
			left.size = trace.Bytes(address - p.address)
			rest = append(rest, left)
		}
		if p.address+uint64(p.size) > end {
			right.address, right.size = end, trace.Bytes(p.address+uint64(p.size)-end)
			rest = append(rest, right)
		}
	}
	s.open = slices.Delete(s.open, first, last)
	for _, p := range rest {
		s.add(p)
	}
}

// space is what gets one place: a segment, or all that is ever mapped of one that expands.
type space struct {
	piece
	members []int32
}

// spaces joins the pieces that expand and touch or overlap.
func (l *layout) spaces() []space {
	order := make([]int32, len(l.pieces))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		p, q := &l.pieces[a], &l.pieces[b]
		return cmp.Or(cmp.Compare(p.address, q.address), cmp.Compare(p.start, q.start))
	})
	var out []space
	open := -1 // the space that expands and may go on
	for _, i := range order {
		p := l.pieces[i]
		if open >= 0 && p.expands && p.stream == out[open].stream && p.address <= out[open].address+uint64(out[open].size) {
			s := &out[open]
			s.size = max(s.size, trace.Bytes(p.address-s.address)+p.size)
			s.start, s.end = min(s.start, p.start), max(s.end, p.end)
			s.members = append(s.members, i)
			continue
		}
		if p.expands {
			open = len(out)
		}
		out = append(out, space{p, []int32{i}})
	}
	return out
}

// put gives each space the lowest place that no other has while it lives, in the order of
// their starts.
func (l *layout) put(all []space) {
	slices.SortStableFunc(all, func(a, b space) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.address, b.address))
	})
	var taken []*space // by place
	for i := range all {
		s := &all[i]
		taken = slices.DeleteFunc(taken, func(t *space) bool { return t.end <= s.start })
		at := 0
		s.place = 0
		for ; at < len(taken) && taken[at].place < s.place+s.size; at++ {
			s.place = taken[at].place + taken[at].size
		}
		taken = slices.Insert(taken, at, s)
		for _, m := range s.members {
			p := &l.pieces[m]
			p.place = s.place + trace.Bytes(p.address-s.address)
		}
	}
}

// addSegments adds what was reserved.
func (d *Device) addSegments(l *layout) {
	var start, life, place, size []uint32
	if l != nil {
		d.Held, d.places = units(l.height), l.pieces
		for i := range l.pieces {
			p := &l.pieces[i]
			start, life = append(start, uint32(p.start)), append(life, uint32(p.end-p.start))
			place, size = append(place, units(p.place)), append(size, units(p.size))
		}
	}
	d.columns = append(d.columns, column{"segment_start", rising, start}, column{"segment_life", plain, life},
		column{"segment_place", plain, place}, column{"segment_units", plain, size})
}
