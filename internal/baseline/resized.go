package baseline

import "github.com/stplan/stplan/internal/trace"

// Resized is the program with other sizes. d has the events of the program's recording in
// their places, with the sizes, and no state from before them. The program keeps what only
// its own recording shows: calls of empty_cache and kinds of private pools.
func (p *Program) Resized(d *trace.Device) *Program {
	out := *p
	out.device = d
	out.buffers = make([]buffer, len(p.buffers))
	copy(out.buffers, p.buffers)
	for _, o := range p.ops {
		if o.kind == opAlloc || o.kind == opRefused {
			out.buffers[o.buffer].Size = d.Events[o.at].Size
		}
	}
	return &out
}
