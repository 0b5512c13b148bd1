package stalloc

import (
	"math/bits"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// role is what STAlloc takes a request for.
type role uint8

const (
	// roleOnline is too small for the plan.
	roleOnline role = iota
	// rolePrologue is before the planned iteration: its line is its own.
	rolePrologue
	// roleStatic is served by the next line of the planned iteration.
	roleStatic
	// roleDynamic is in a module whose requests vary.
	roleDynamic
	// roleOther is in an iteration of another kind than the planned one, such as an
	// evaluation: it gets any part of the arena that is free then.
	roleOther
	// roleTail is after the last whole iteration. It is dynamic if the next line has another
	// size.
	roleTail
)

// line is one line of the plan.
type line struct {
	size   trace.Bytes
	offset trace.Bytes // -1 if it is not planned: it outlives its iteration
	slot   int32       // of the body, -1 in the prologue
}

// program is the recording as STAlloc sees it.
type program struct {
	tl   *lifespan.Timeline
	body *lifespan.Body
	// prologue has a line for each buffer before the planned iteration, iteration one for
	// each static request in it. It is replayed for ever.
	prologue, iteration []line
	roles               []role  // by buffer
	slots               []int32 // by buffer: the slot of its pass, -1 if it has none
	items               []item  // what is to be packed
	residents           []*line // what lives for ever, in order
	resident            trace.Bytes
}

// newProgram finds the iteration to plan: the first steady one. The one after it, of the
// same kind, shows what varies: an allocation of the program that is in only one of the two,
// or has another size, is dynamic. So STAlloc is taken to have hooks on exactly those
// modules. why says what the recording lacks.
func newProgram(tl *lifespan.Timeline, it lifespan.Iterations) (p *program, why string) {
	per, why := lifespan.FindPeriodic(tl, it, lifespan.EndRequested)
	if per == nil {
		return nil, why
	}
	p = &program{tl: tl, body: &per.Bodies[per.Passes[0].Body], roles: make([]role, len(tl.Buffers)), slots: make([]int32, len(tl.Buffers))}
	for i := range p.slots {
		p.slots[i] = -1
	}
	first := 0 // the first buffer of the passes
	for first < len(tl.Buffers) && (tl.Buffers[first].Initial || tl.Buffers[first].Start < per.Cut) {
		first++
	}
	seen, second, next := make(map[int32]trace.Bytes), -1, first
	for k := range per.Passes {
		from := next
		next = p.align(&per.Passes[k], from)
		switch {
		case per.Passes[k].Body != per.Passes[0].Body:
		case k == 0:
			for i := from; i < next; i++ {
				seen[p.slots[i]] = tl.Buffers[i].Size
			}
		case second < 0:
			second = from
			p.classify(seen, from, next)
		}
	}
	if second < 0 {
		return nil, "no two iterations of the kind of the first steady one"
	}
	end := per.End
	if len(per.Passes) > 1 {
		end = per.Passes[1].First
	}
	p.assign(per, first, next, seen)
	p.lines(first, per.Cut, end)
	return p, ""
}

// align notes the slots of a pass whose first buffer is from, and returns the one after it.
func (p *program) align(pass *lifespan.Pass, from int) (next int) {
	next = from
	for w, word := range pass.Present {
		for ; word != 0; word &= word - 1 {
			p.slots[next] = int32(64*w + bits.TrailingZeros64(word))
			next++
		}
	}
	return next
}

// varying marks a slot that is dynamic, in the sizes of the first pass.
const varying trace.Bytes = -1

// classify compares the second pass with the sizes of the first.
func (p *program) classify(seen map[int32]trace.Bytes, from, next int) {
	both := make(map[int32]bool, next-from)
	for i := from; i < next; i++ {
		s := p.slots[i]
		both[s] = true
		if size, ok := seen[s]; !ok || size != p.tl.Buffers[i].Size {
			seen[s] = varying
		}
	}
	for s := range seen {
		if !both[s] {
			seen[s] = varying
		}
	}
}

// assign gives each buffer its role. What no planned pass had is not known to vary.
func (p *program) assign(per *lifespan.Periodic, first, last int, seen map[int32]trace.Bytes) {
	i := first
	for k := range per.Passes {
		n := 0
		for _, w := range per.Passes[k].Present {
			n += bits.OnesCount64(w)
		}
		for end := i + n; i < end; i++ {
			switch {
			case per.Passes[k].Body != per.Passes[0].Body:
				p.roles[i] = roleOther
			case seen[p.slots[i]] == varying:
				p.roles[i] = roleDynamic
			default:
				p.roles[i] = roleStatic
			}
		}
	}
	for i := range p.roles {
		switch {
		case p.tl.Buffers[i].Size <= slab:
			p.roles[i] = roleOnline
		case i < first:
			p.roles[i] = rolePrologue
		case i >= last:
			p.roles[i] = roleTail
		}
	}
}

// lines makes the lines of the prologue, which ends before buffer first at time cut, and of
// the planned iteration, which is [cut, end).
func (p *program) lines(first int, cut, end trace.Time) {
	n := first
	for n < len(p.tl.Buffers) && p.tl.Buffers[n].Start < end {
		n++
	}
	p.prologue, p.iteration = make([]line, first), make([]line, 0, n-first)
	for i := range p.tl.Buffers[:n] {
		b := &p.tl.Buffers[i]
		switch p.roles[i] {
		case rolePrologue:
			l := &p.prologue[i]
			*l = line{size: b.Size, slot: -1}
			if b.RequestedEnd < end {
				p.items = append(p.items, item{start: b.Start, end: b.RequestedEnd, size: b.Size, line: l})
			} else {
				p.residents = append(p.residents, l)
			}
		case roleStatic:
			p.iteration = append(p.iteration, line{size: b.Size, offset: -1, slot: p.slots[i]})
			if b.RequestedEnd <= end && !b.Resident {
				p.items = append(p.items, item{start: b.Start, end: b.RequestedEnd, size: b.Size, line: &p.iteration[len(p.iteration)-1]})
			}
		}
	}
}
