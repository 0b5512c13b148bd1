// Package stalloc simulates STAlloc (arXiv 2507.16274, github.com/infinigence/STAlloc): it
// plans the first iterations of a recording, and serves the recording by position from that
// plan, as a row of diff.
//
// It is written from a description of STAlloc's code, not from the code. What is as
// described: what is planned, that requests are served by their position and checked by
// their size only, that a position is never found again once it is lost, that streams are
// not heard of, and what serves the rest. What stands in for it: the packer (plan.go), and
// the hooks on the modules of Megatron that say what is dynamic (program.go). A recording
// does not show modules, so there are two rows: one with hooks on all that varies, which
// reserves less, and one without hooks. Where the description leaves another choice, the one
// that reserves less was taken.
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
// *baseline.UnfitError if the recording does not repeat: STAlloc stops with an assertion
// then.
func Allocators(tl *lifespan.Timeline, it lifespan.Iterations, recorded baseline.Config) []baseline.Allocator {
	limits := baseline.Config{DeviceMemory: recorded.DeviceMemory, UsableMemory: recorded.UsableMemory}
	return []baseline.Allocator{
		allocator(Key, "STAlloc", tl, it, limits, true),
		allocator(KeyByPosition, "STAlloc without hooks", tl, it, limits, false),
	}
}

func allocator(key, title string, tl *lifespan.Timeline, it lifespan.Iterations, limits baseline.Config, hooks bool) baseline.Allocator {
	return baseline.Allocator{
		Key: key, Title: title,
		New: func(p *baseline.Program) (baseline.Model, error) {
			prog, why := newProgram(tl, it, hooks)
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
			return allocator(key, title, tl, it, baseline.Config{UsableMemory: usable, DeviceMemory: device}, hooks)
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
