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
	// evaluation, or after the last whole one: it gets any part of the arena that is free
	// then.
	roleOther
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

// newProgram plans the first steady iteration and what comes before it. With hooks, what
// varies from one recorded iteration to the next, in size or in whether it is there, is
// dynamic, and iterations of another kind are known as such. So STAlloc is taken to have
// hooks on exactly the modules in which something varies. Without hooks everything is served
// by position. why says what the recording lacks.
func newProgram(tl *lifespan.Timeline, it lifespan.Iterations, hooks bool) (p *program, why string) {
	per, why := lifespan.FindPeriodic(tl, it, lifespan.EndRequested)
	if per == nil {
		return nil, why
	}
	p = &program{
		tl: tl, body: &per.Bodies[per.Passes[0].Body],
		roles: make([]role, len(tl.Buffers)), slots: make([]int32, len(tl.Buffers)),
	}
	for i := range p.slots {
		p.slots[i] = -1
	}
	first := 0 // the first buffer of the passes
	for first < len(tl.Buffers) && (tl.Buffers[first].Initial || tl.Buffers[first].Start < per.Cut) {
		p.assign(first, rolePrologue)
		first++
	}
	next := first
	for k := range per.Passes {
		next = p.align(&per.Passes[k], next, hooks, per.Passes[k].Body == per.Passes[0].Body)
	}
	tail := roleStatic
	if hooks {
		tail = roleOther
	}
	for ; next < len(tl.Buffers); next++ {
		p.assign(next, tail)
	}
	end := per.End
	if len(per.Passes) > 1 {
		end = per.Passes[1].First
	}
	p.lines(first, end)
	return p, ""
}

// assign gives a buffer its role, unless it is too small for the plan.
func (p *program) assign(i int, r role) {
	if p.tl.Buffers[i].Size > slab {
		p.roles[i] = r
	}
}

// align notes the slots and roles of a pass whose first buffer is from, and returns the one
// after it. planned says that the pass is of the kind of the planned one.
func (p *program) align(pass *lifespan.Pass, from int, hooks, planned bool) (next int) {
	next = from
	for w, word := range pass.Present {
		for ; word != 0; word &= word - 1 {
			slot := int32(64*w + bits.TrailingZeros64(word))
			switch {
			case hooks && !planned:
				p.assign(next, roleOther)
			case hooks && p.varies(slot):
				p.assign(next, roleDynamic)
			default:
				p.assign(next, roleStatic)
			}
			if planned {
				p.slots[next] = slot
			}
			next++
		}
	}
	return next
}

func (p *program) varies(slot int32) bool {
	s := &p.body.Slots[slot]
	return s.Occurrences < p.body.Occurrences || trace.RoundUp(s.Least) != trace.RoundUp(s.Requested)
}

// lines makes the lines of the prologue, which ends before buffer first, and of the planned
// iteration after it, which ends at end.
func (p *program) lines(first int, end trace.Time) {
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
