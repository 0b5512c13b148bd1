// Package stalloc simulates STAlloc (arXiv 2507.16274, github.com/infinigence/STAlloc): it
// plans the first iterations of a recording, and serves the recording by position from that
// plan, as a row of diff.
//
// It is written from a description of STAlloc's code, not from the code. What is as
// described: what is planned, that requests are served by their position and checked by
// their size only, that a position is never found again once it is lost, that streams are
// not heard of, and what serves the rest. What stands in for it: the packer (plan.go), and
// the hooks on the modules of Megatron that say what is dynamic (program.go). Where the
// description leaves a choice, the one that reserves less was taken.
package stalloc

import (
	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// Key is the key of STAlloc's row.
const Key = "stalloc"

// slab is the largest request, in bytes, that STAlloc does not plan.
const slab trace.Bytes = 512

// Allocator is STAlloc for the recording of tl. Of recorded only the limits of the card
// matter. The error of its New is a *baseline.UnfitError if the recording does not repeat:
// STAlloc stops with an assertion then.
func Allocator(tl *lifespan.Timeline, it lifespan.Iterations, recorded baseline.Config) baseline.Allocator {
	limits := baseline.Config{DeviceMemory: recorded.DeviceMemory, UsableMemory: recorded.UsableMemory}
	return baseline.Allocator{
		Key: Key, Title: "STAlloc",
		New: func(p *baseline.Program) (baseline.Model, error) {
			prog, why := newProgram(tl, it)
			if why != "" {
				return nil, &baseline.UnfitError{Why: why}
			}
			size := prog.pack()
			rest, fits, err := online(limits, size, p)
			if err != nil {
				return nil, err
			}
			return newServer(prog, size, fits, rest), nil
		},
		Within: func(usable, device trace.Bytes) baseline.Allocator {
			return Allocator(tl, it, baseline.Config{UsableMemory: usable, DeviceMemory: device})
		},
	}
}

// online is the copy of PyTorch's caching allocator that serves what is not planned, with
// what the arena leaves of the card. fits is false if that is nothing.
func online(limits baseline.Config, arena trace.Bytes, p *baseline.Program) (m baseline.Model, fits bool, err error) {
	usable := trace.Bytes(limits.Memory())
	if fits = usable == 0 || arena < usable; fits && usable > 0 {
		limits.UsableMemory = usable - arena
	}
	m, err = baseline.Caching("", "", limits).New(p)
	return m, fits, err
}
