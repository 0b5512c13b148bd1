// Package stalloc simulates STAlloc (arXiv 2507.16274, github.com/infinigence/STAlloc at
// 3a9f97f): it traces the first iterations of a recording, plans them, and serves the
// recording by position from that plan, as a row of diff.
//
// Without hooks it is what STAlloc's code does, decision by decision: docs/results/peers.md
// compares reserved bytes after each operation. With hooks on modules STAlloc knows which
// requests vary. A recording does not show modules, so there it is taken to know exactly
// what varies, and to lend such a request any part of the arena that the plan leaves free
// for as long as it lives, which is more than its own intervals of layers do.
package stalloc

import (
	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// Keys of STAlloc's rows.
const (
	Key           = "stalloc"
	KeyByPosition = "stalloc_by_position"
)

// slab is the largest request, in bytes, that STAlloc does not plan.
const slab trace.Bytes = 512

// Allocators is STAlloc for the recording of tl, with hooks on all that varies in it, and
// without. Of recorded only the limits of the card matter. The error of New is a
// *baseline.UnfitError if the recording does not repeat, or if STAlloc's planner would stop.
func Allocators(tl *lifespan.Timeline, it lifespan.Iterations, recorded baseline.Config) []baseline.Allocator {
	limits := baseline.Config{DeviceMemory: recorded.DeviceMemory, UsableMemory: recorded.UsableMemory}
	return []baseline.Allocator{
		allocator(Key, "STAlloc", limits, func() (*server, string) { return first(NewHookedTrace, tl, it) }),
		allocator(KeyByPosition, "STAlloc without hooks", limits, func() (*server, string) { return first(NewTrace, tl, it) }),
	}
}

// tracedIterations is how many iterations STAlloc's manual says to trace. It plans two, and
// stops if the third is not like the second. So two are traced if it would.
var tracedIterations = []int{3, 2}

// first serves from the first trace that can be planned.
func first(trace func(*lifespan.Timeline, lifespan.Iterations, int) (*Trace, string), tl *lifespan.Timeline, it lifespan.Iterations) (s *server, why string) {
	for _, n := range tracedIterations {
		var t *Trace
		if t, why = trace(tl, it, n); why != "" {
			continue
		}
		if s, why = t.server(true); why == "" {
			return s, ""
		}
	}
	return nil, why
}

// Allocator is STAlloc with the plan of a trace, on a card without limits. What has a hook
// is served by the caching allocator, as by the defaults of its code. The error of New is as
// that of Allocators.
func (t *Trace) Allocator() baseline.Allocator {
	return allocator("", "", baseline.Config{}, func() (*server, string) { return t.server(false) })
}

// server serves from the plan of t. lend says that the arena is lent to what has a hook.
func (t *Trace) server(lend bool) (s *server, why string) {
	p, why := newPlan(t)
	if why != "" {
		return nil, why
	}
	return newServer(p, t.tl, t.hooks, lend), ""
}

func allocator(key, title string, limits baseline.Config, prepare func() (*server, string)) baseline.Allocator {
	return baseline.Allocator{
		Key: key, Title: title,
		New: func(p *baseline.Program) (baseline.Model, error) {
			s, why := prepare()
			if why != "" {
				return nil, &baseline.UnfitError{Why: why}
			}
			return s, s.begin(limits, p)
		},
		Within: func(usable, device trace.Bytes) baseline.Allocator {
			return allocator(key, title, baseline.Config{UsableMemory: usable, DeviceMemory: device}, prepare)
		},
	}
}
