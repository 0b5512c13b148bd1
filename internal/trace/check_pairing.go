package trace

import (
	"fmt"
	"slices"
)

// pairing follows every address of one device through a recording: the last
// allocation or free that touched it, and the ranges that are live.
//
// A block goes from allocated to requested to free. It can be used again from
// free_completed on. If the recording has no free_completed entries, because they
// were skipped (skip_actions), it can be used again from free_requested on. If
// free_requested entries were skipped, free_completed alone frees a block.
type pairing struct {
	d                    *Device
	requests, completion bool // which frees the recording has
	exact                bool // Initial is recorded, not inferred

	slots []int32  // past.slots
	rank  []int32  // by slot: the index of its address in live
	last  []touch  // by address
	live  occupied // the blocks that cannot be used again yet, at their requested sizes
	held  Bytes    // what they occupy, and the blocks of an inferred Initial
}

// touch is the last thing that happened to an address: the index of the entry, or
// before for a block of the initial state, and the state that it left.
type touch struct {
	entry int32
	state blockLife
}

type blockLife uint8

const (
	lifeUnseen    blockLife = iota // nothing happened here yet
	lifeFree                       // can be used again
	lifeAllocated                  // in use
	lifeRequested                  // freed by the program, cannot be used again yet
)

const before int32 = -1

// maxHeld is the most that may be live or reserved at a time, in bytes. Later stages
// can then add sizes and round sums without overflow of 63 bits.
const maxHeld Bytes = 1 << 62

func newPairing(d *Device, found *census, known *past) *pairing {
	p := &pairing{d: d, requests: found.count[ActionFreeRequested] > 0, completion: found.count[ActionFreeCompleted] > 0,
		exact: len(d.Initial) > 0 && !d.InitialInferred}
	initial := p.initialBlocks()
	p.slots = known.slots
	p.place(known.named, initial)
	p.last = make([]touch, len(p.live.addresses))
	if p.exact {
		p.seed(initial)
	}
	return p
}

// initialBlocks lists the blocks of an exact Initial, and counts those of an
// inferred one, which was derived from the events that are checked here.
func (p *pairing) initialBlocks() (live []Block) {
	for i := range p.d.Initial {
		for _, b := range p.d.Initial[i].Blocks {
			switch {
			case b.State == BlockInactive:
			case p.exact:
				live = append(live, b)
			default:
				p.held += b.Size
			}
		}
	}
	return live
}

// place sorts the addresses of events and of initial blocks, and finds the index of
// each event's address among them. The addresses are few, since programs use most
// of them many times.
func (p *pairing) place(named *numbering, initial []Block) {
	addresses := slices.Clone(named.values)
	for _, b := range initial {
		addresses = append(addresses, b.Address)
	}
	p.live = newOccupied(addresses)
	p.rank = make([]int32, len(named.values))
	for r, address := range p.live.addresses {
		if k := named.find(address); k != None {
			p.rank[k] = int32(r)
		}
	}
}

// pairs reports whether an event allocates or frees.
func (e *Event) pairs() bool { return e.Action >= ActionAlloc && e.Action <= ActionFreeCompleted }

// seed enters the blocks that were live when the recording began.
func (p *pairing) seed(initial []Block) {
	for _, b := range initial {
		state := lifeAllocated
		if b.State == BlockPendingFree {
			state = lifeRequested
		}
		k := p.live.find(b.Address)
		p.last[k] = touch{before, state}
		p.live.take(k, b.Requested)
		p.held += occupies(b.Requested)
	}
}

// step checks entry i, an alloc or a free, and updates the state.
func (p *pairing) step(c *checker, i int, e *Event) *InputError {
	k := int(p.rank[p.slots[i]])
	t := p.last[k]
	next, column, problem := lifeFree, colAddr, ""
	switch e.Action {
	case ActionAlloc:
		next = lifeAllocated
		if problem = p.alloc(c, e, k, t); problem == "" && p.held > maxHeld {
			column, problem = colSize, fmt.Sprintf("with these %d B, live allocations take %d B, expected at most %d B", e.Size, p.held, maxHeld)
		}
	case ActionFreeRequested:
		next, problem = p.requested(c, e, t)
	default:
		problem = p.completed(c, e, t)
	}
	if problem != "" {
		return &InputError{Where: c.where(p.d, i), Column: column, Problem: problem}
	}
	p.last[k] = touch{int32(i), next}
	if next == lifeFree && p.live.has(k) {
		p.held -= occupies(p.live.sizes[k])
		p.live.release(k)
	}
	return nil
}

// occupies is the least that a request can occupy: whole blocks of 512 B.
func occupies(request Bytes) Bytes { return max(request+minBlock-1, minBlock) &^ (minBlock - 1) }

func (p *pairing) alloc(c *checker, e *Event, k int, t touch) string {
	if t.state > lifeFree {
		return fmt.Sprintf("two live allocations at one address: %#x is held by %s", e.Addr, p.holder(c, t))
	}
	if other := p.live.overlap(k, e.Size); other >= 0 {
		return fmt.Sprintf("two live allocations overlap: %d B at %#x and %d B at %#x, held by %s",
			e.Size, e.Addr, p.live.sizes[other], p.live.addresses[other], p.holder(c, p.last[other]))
	}
	p.live.take(k, e.Size)
	p.held += occupies(e.Size)
	return ""
}

func (p *pairing) holder(c *checker, t touch) string {
	if t.state == lifeRequested {
		return p.name(c, t) + " (the free there has not completed)"
	}
	return p.name(c, t) + " (not freed since)"
}

func (p *pairing) requested(c *checker, e *Event, t touch) (blockLife, string) {
	next := lifeRequested
	if !p.completion {
		next = lifeFree
	}
	switch t.state {
	case lifeUnseen:
		return next, p.firstTouch(e)
	case lifeAllocated:
		return next, ""
	}
	return next, p.secondFree(c, e, t)
}

func (p *pairing) completed(c *checker, e *Event, t touch) string {
	switch {
	case t.state == lifeUnseen:
		return p.firstTouch(e)
	case t.state == lifeFree:
		return p.secondFree(c, e, t)
	case t.state == lifeAllocated && p.requests:
		return fmt.Sprintf("free_completed of %#x, held by %s, without a free_requested between", e.Addr, p.name(c, t))
	}
	return ""
}

// firstTouch checks a free of an address that no earlier entry names.
func (p *pairing) firstTouch(e *Event) string {
	if !p.exact {
		return ""
	}
	return fmt.Sprintf("%s of %#x, which no entry allocated and the initial state does not hold", e.Action, e.Addr)
}

func (p *pairing) secondFree(c *checker, e *Event, t touch) string {
	return fmt.Sprintf("second free: %s of %#x, which %s freed already", e.Action, e.Addr, p.name(c, t))
}

func (p *pairing) name(c *checker, t touch) string {
	if t.entry == before {
		return "the initial state"
	}
	return c.where(p.d, int(t.entry))
}
