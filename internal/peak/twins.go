package peak

import (
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// leastTwin is the smallest buffer that is compared with others by size, in bytes.
// Small sizes are equal by chance.
const leastTwin trace.Bytes = 1 << 20

// sized are buffers of one size in one iteration. The size is rounded, since that of a
// request that failed is.
type sized struct {
	iteration int
	size      trace.Bytes
}

// findTwins looks for the lines that hold as much as the live buffers that have no line,
// and as the request that failed: backward runs in C++ and makes gradients as large as
// what forward made.
func (r *Recording) findTwins(p *Peak) {
	twins := r.heldBySize(p)
	for i := range p.Live {
		if l := &p.Live[i]; r.wantsTwin(p, l.Buffer, l.Stack, l.Category) {
			l.Twin = twins[r.sizedAs(l.Buffer)]
		}
	}
	if b := r.Timeline.Failed(); b != nil && b.Start == p.Moment.At && r.wantsTwin(p, b, p.Moment.Stack, Temporaries) {
		p.Moment.Twin = twins[r.sizedAs(b)]
	}
}

// wantsTwin says that a buffer was allocated in C++ and comes and goes.
func (r *Recording) wantsTwin(p *Peak, b *lifespan.Buffer, stack int32, c Category) bool {
	return p.HasStacks && !b.Initial && c != Unknown && b.Size >= leastTwin && r.frames.View(stack).Inner == trace.None
}

func (r *Recording) sizedAs(b *lifespan.Buffer) sized {
	return sized{r.phases.iteration(b.Start), b.Size}
}

// heldBySize is the line that holds buffers of each size, empty if there is more than one.
func (r *Recording) heldBySize(p *Peak) map[sized]string {
	lines := newCache(r.Line)
	held := map[sized]string{}
	for i := range p.Live {
		l := &p.Live[i]
		line := lines.of(l.Stack)
		if line.File == "" {
			continue
		}
		k := r.sizedAs(l.Buffer)
		if other, ok := held[k]; ok && other != line.Label {
			line.Label = ""
		}
		held[k] = line.Label
	}
	return held
}
