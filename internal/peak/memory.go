package peak

import (
	"cmp"
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/trace"
)

// Memory is what the allocator had taken from the driver at an instant.
type Memory struct {
	Reserved trace.Bytes
	Segments []Segment // by address
}

// Segment is a piece of reserved memory with what lies in it.
type Segment struct {
	Address    uint64
	Size       trace.Bytes
	Stream     uint64
	Small      bool // serves requests of up to 1 MiB
	Expandable bool
	Private    bool // of a CUDA graph or a user's MemPool
	// Held is in buffers, Slack in the rest of their blocks, which the allocator does
	// not split off.
	Held, Slack trace.Bytes
	// Free are the pieces that are not allocated, in address order.
	Free []Piece
	// Blocks are the buffers in it, as indices into Peak.Live, in address order.
	Blocks []int
}

// Piece is a range of free memory.
type Piece struct {
	Address uint64
	Size    trace.Bytes
}

// FreeBytes is the sum of the free pieces.
func (s *Segment) FreeBytes() trace.Bytes {
	var sum trace.Bytes
	for _, p := range s.Free {
		sum += p.Size
	}
	return sum
}

// Largest is the size of the largest free piece.
func (s *Segment) Largest() trace.Bytes {
	var most trace.Bytes
	for _, p := range s.Free {
		most = max(most, p.Size)
	}
	return most
}

const (
	// smallRequest is the largest request that small segments serve, in bytes. A piece
	// of a large segment of at most this size serves nobody: the native allocator
	// leaves it to the block before it (kSmallSize of c10/cuda).
	smallRequest trace.Bytes = 1 << 20
	// smallSegment is the size of a small segment, in bytes (kSmallBuffer). No large
	// segment is as small.
	smallSegment trace.Bytes = 2 << 20
)

// memoryAt is the reserved memory after event at. live are the buffers in it.
func memoryAt(r *Recording, at trace.Time, live []Live) Memory {
	m := reservedAt(r.Device, at)
	order := make([]int, len(live))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(live[a].Buffer.Addr, live[b].Buffer.Addr) })
	for _, i := range order {
		if s := m.find(live[i].Buffer.Addr); s != nil {
			s.Blocks = append(s.Blocks, i)
		}
	}
	for i := range m.Segments {
		m.Segments[i].fill(live)
		m.Reserved += m.Segments[i].Size
	}
	return m
}

// find is the segment that an address lies in, nil if the recording does not have it.
func (m *Memory) find(addr uint64) *Segment {
	i := sort.Search(len(m.Segments), func(i int) bool { return m.Segments[i].Address > addr }) - 1
	if i < 0 || addr-m.Segments[i].Address >= uint64(m.Segments[i].Size) {
		return nil
	}
	return &m.Segments[i]
}

// fill finds the free pieces between a segment's blocks.
func (s *Segment) fill(live []Live) {
	if len(s.Blocks) > 0 && s.Expandable {
		s.Small = true // one request above the limit shows the contrary
		for _, i := range s.Blocks {
			s.Small = s.Small && live[i].Buffer.Size <= smallRequest
		}
	}
	at := uint64(0) // from the segment's start
	gap := func(to uint64, after bool) {
		switch size := trace.Bytes(to - at); {
		case to <= at:
		case after && !s.Small && !s.Expandable && size <= smallRequest:
			s.Slack += size
		default:
			s.Free = append(s.Free, Piece{s.Address + at, size})
		}
	}
	for k, i := range s.Blocks {
		b := live[i].Buffer
		start := b.Addr - s.Address
		gap(start, k > 0)
		end := min(start+uint64(b.Size), uint64(s.Size))
		s.Held += trace.Bytes(end - start)
		at = max(at, end)
	}
	gap(uint64(s.Size), len(s.Blocks) > 0)
}

// reservedAt replays the segment entries up to and with event at.
func reservedAt(d *trace.Device, at trace.Time) Memory {
	var m Memory
	for i := range d.Initial {
		s := &d.Initial[i]
		m.Segments = append(m.Segments, Segment{Address: s.Address, Size: s.Size, Stream: s.Stream, Small: s.Small, Expandable: s.Expandable, Private: s.Pool != trace.PoolID{}})
	}
	for i := range d.Events[:min(int(at)+1, len(d.Events))] {
		e := &d.Events[i]
		switch e.Action {
		case trace.ActionSegmentAlloc:
			m.remove(e.Addr, e.Size) // its release may not be recorded (skip_actions)
			m.insert(Segment{Address: e.Addr, Size: e.Size, Stream: e.Stream, Small: e.Size == smallSegment})
		case trace.ActionSegmentMap:
			m.remove(e.Addr, e.Size)
			m.insert(Segment{Address: e.Addr, Size: e.Size, Stream: e.Stream, Expandable: true, Small: e.Size == smallSegment})
		case trace.ActionSegmentFree, trace.ActionSegmentUnmap:
			m.remove(e.Addr, e.Size)
		}
	}
	m.join()
	m.markPrivate(d.Final)
	return m
}

// markPrivate takes from the state at the end which segments belong to private pools:
// entries do not tell before torch 2.12.
func (m *Memory) markPrivate(final []trace.Segment) {
	for i := range final {
		if final[i].Pool == (trace.PoolID{}) {
			continue
		}
		if s := m.find(final[i].Address); s != nil {
			s.Private = true
		}
	}
}

func (m *Memory) insert(s Segment) {
	i := m.from(s.Address)
	m.Segments = slices.Insert(m.Segments, i, s)
}

// from is the index of the first segment that begins at address or after it.
func (m *Memory) from(address uint64) int {
	return sort.Search(len(m.Segments), func(i int) bool { return m.Segments[i].Address >= address })
}

// remove takes a range away. What is left of a segment on either side stays.
func (m *Memory) remove(address uint64, size trace.Bytes) {
	end := address + uint64(size)
	first := m.from(address)
	if first > 0 && m.Segments[first-1].end() > address {
		first--
	}
	last := first
	var rest []Segment
	for ; last < len(m.Segments) && m.Segments[last].Address < end; last++ {
		s := m.Segments[last]
		if s.Address < address {
			left := s
			left.Size = trace.Bytes(address - s.Address)
			rest = append(rest, left)
		}
		if s.end() > end {
			right := s
			right.Address, right.Size = end, trace.Bytes(s.end()-end)
			rest = append(rest, right)
		}
	}
	m.Segments = slices.Replace(m.Segments, first, last, rest...)
}

func (s *Segment) end() uint64 { return s.Address + uint64(s.Size) }

// join makes one segment of mapped ranges that touch, as the allocator's own list of
// segments does.
func (m *Memory) join() {
	kept := m.Segments[:0]
	for _, s := range m.Segments {
		if n := len(kept); n > 0 && s.Expandable && kept[n-1].Expandable && kept[n-1].end() == s.Address && kept[n-1].Stream == s.Stream {
			kept[n-1].Size += s.Size
			kept[n-1].Small = kept[n-1].Small && s.Small
			continue
		}
		kept = append(kept, s)
	}
	m.Segments = kept
}
