package baseline

import (
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// adopt starts from the segments that were there when the recording began, if
// they are of the kind that a makes, expandable or not.
func (a *caching) adopt(p *Program) (bool, error) {
	if !sameKind(p.device.Initial, a.expandable) {
		return false, nil
	}
	return true, a.adoptSegments(p.device.Initial)
}

// adoptSegments numbers buffers as ReadProgram does. It emits no events.
func (a *caching) adoptSegments(segments []trace.Segment) error {
	buffer := int32(0)
	ends := make(map[*pool][]*block) // the last block of each address space, by pool
	var idle []*block                // put into sets once they have their neighbours
	for i := range segments {
		s := &segments[i]
		if err := a.checkInitial(s); err != nil {
			return err
		}
		p := a.pool(s.Pool).half(s.Small)
		var first, last *block
		for j := range s.Blocks {
			b := a.adoptBlock(s, &s.Blocks[j], p, &buffer)
			if last == nil {
				first = b
			} else {
				last.next, b.prev = b, last
			}
			if last = b; b.idle() {
				idle = append(idle, b)
			}
		}
		a.stats.Reserve(s.Size)
		if s.Expandable {
			ends[p] = a.joinSpace(ends[p], first, last)
		}
	}
	for _, p := range a.pools {
		a.closeSpaces(ends[&p.small])
		a.closeSpaces(ends[&p.large])
	}
	for _, b := range idle {
		b.pool.put(b)
	}
	return nil
}

// checkInitial checks what adoptSegments relies on: blocks fill their segment
// without gaps, and the sum of all segments stays far from overflow.
func (a *caching) checkInitial(s *trace.Segment) error {
	if s.Size <= 0 || s.Size > maxRequest {
		return &trace.InputError{Where: "initial state", Problem: fmt.Sprintf("segment of %d B at 0x%x, expected 1 to %d", s.Size, s.Address, maxRequest)}
	}
	if a.stats.Reserved > maxInitial-s.Size {
		return &trace.InputError{Where: "initial state", Problem: fmt.Sprintf("segments of more than %d B in all", maxInitial)}
	}
	rest, addr := s.Size, s.Address
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.Address != addr || b.Size <= 0 || b.Size > rest {
			return untiled(s)
		}
		addr += uint64(b.Size)
		rest -= b.Size
	}
	if rest != 0 {
		return untiled(s)
	}
	return nil
}

func untiled(s *trace.Segment) error {
	return &trace.InputError{Where: "initial state", Problem: fmt.Sprintf("the blocks of the segment at 0x%x do not fill it", s.Address)}
}

func (a *caching) adoptBlock(s *trace.Segment, from *trace.Block, p *pool, buffer *int32) *block {
	b := a.newBlock()
	b.addr, b.size, b.stream, b.pool = from.Address, from.Size, s.Stream, p
	if from.State == trace.BlockInactive {
		return b
	}
	a.hold(*buffer, b)
	if from.State == trace.BlockPendingFree {
		a.Free(*buffer)
	}
	*buffer++
	return b
}

// joinSpace adds the mapped run from first to end to an address space of its
// stream that ends before it, with an unmapped block for the hole between them. If
// there is none, it begins a new space. A recording does not hold where a space
// begins: it is taken to begin at its first run.
func (a *caching) joinSpace(ends []*block, first, end *block) []*block {
	page := a.page(first.pool.small)
	for i, before := range ends {
		if before.stream != first.stream || before.end() > first.addr ||
			end.end()-before.space.base > uint64(align(a.reservation, page)) {
			continue
		}
		if hole := first.addr - before.end(); hole > 0 {
			before = a.appendUnmapped(before, trace.Bytes(hole))
		}
		before.next, first.prev = first, before
		setSpace(first, before.space)
		ends[i] = end
		return ends
	}
	setSpace(first, &space{first.addr, page})
	return append(ends, end)
}

func setSpace(b *block, s *space) {
	for ; b != nil; b = b.next {
		b.space = s
	}
}

// closeSpaces adds the unmapped end of each address space.
func (a *caching) closeSpaces(ends []*block) {
	for _, end := range ends {
		size := align(a.reservation, end.space.page)
		if rest := size - trace.Bytes(end.end()-end.space.base); rest > 0 {
			a.appendUnmapped(end, rest)
		}
	}
}

func (a *caching) appendUnmapped(after *block, size trace.Bytes) *block {
	b := a.newBlock()
	b.addr, b.size, b.stream, b.pool = after.end(), size, after.stream, after.pool
	b.space, b.unmapped, b.prev = after.space, true, after
	after.next = b
	b.pool.put(b)
	return b
}

// sameKind says that all segments are expandable, or that none is.
func sameKind(segments []trace.Segment, expandable bool) bool {
	return !slices.ContainsFunc(segments, func(s trace.Segment) bool { return s.Expandable != expandable })
}
