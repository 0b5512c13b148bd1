//go:build cgo

package cuda

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// sharedPlace is a plan by hand: a weight, and a body of a request that does not vary, six of up to a MiB that share a
// place of three, and one that does not vary. Nothing lies in the two MiB behind the place. It is of one recorded pass.
func sharedPlace() planfile.Device {
	const weight, place, beyond = 8 * mib, 3 * mib, 2 * mib
	d := periodic([]uint64{weight}, [][]uint64{{4096, mib, mib, mib, mib, mib, mib, 8192}}, []uint32{1})
	body := d.Slots[1:]
	body[0].Offset, body[7].Offset = weight+place+beyond, weight+place+beyond+4096
	for i := 1; i <= 6; i++ {
		s := &body[i]
		s.Offset, s.Size, s.Least = weight, place, mib/4
		if i > 1 {
			s.Flags, s.Cell = planfile.SlotShares, 2
		}
	}
	d.ArenaBytes = weight + place + beyond + 4096 + 8192
	d.Certificate.Gap = d.ArenaBytes
	d.PeakAllocated, d.PeakActive = d.ArenaBytes, d.ArenaBytes
	return d
}

// TestSharedPlace: what shares a place lies in it by first fit, frees come in any order, what finds no room is off
// plan, and the next pass begins at the place's beginning again.
func TestSharedPlace(t *testing.T) {
	for _, opt := range []Options{{}, {Capacity: 1 << 40, Granularity: 2 << 20}, {Capacity: 1 << 40, Granularity: 512, Partial: true}} {
		d := open(t, sharedPlace(), opt)
		base := mustMalloc(t, d, 8*mib)
		place, constants := base+8*mib, base+13*mib
		get := func(what string, size, want uint64) uint64 {
			t.Helper()
			before := d.Counters()
			at, source, err := d.Malloc(size, 0)
			if err != nil {
				t.Fatal(err)
			}
			after := d.Counters()
			planned := uint64(0)
			if want != 0 {
				planned = 1
			}
			if (source == FromPlan) != (want != 0) || after.PlannedAllocations-before.PlannedAllocations != planned {
				t.Errorf("%s: source %d, and %d counted as on plan, expected %d", what, source, after.PlannedAllocations-before.PlannedAllocations, planned)
			}
			if want != 0 && at != want {
				t.Errorf("%s: %d B are at %d of the plan, expected %d", what, size, at-base, want-base)
			}
			if want == 0 && at < place+3*mib && place < at+up(size) {
				t.Errorf("%s: %d B that find no room are at %d of the plan, in the place", what, size, at-base)
			}
			return at
		}
		free := func(blocks ...uint64) {
			for _, at := range blocks {
				mustFree(t, d, at)
			}
		}
		for range 3 {
			first := get("first", 4096, constants)
			a := get("a", mib, place)
			b := get("b", mib/2+1, place+mib)
			c := get("c", mib, place+3*mib/2+512)
			off := get("no room", mib, 0) // the place has half a MiB less 512 B
			free(b)
			e := get("between", mib/3, place+mib)
			free(a)
			f := get("where the first was", mib-512, place)
			last := get("last", 8192, constants+4096)
			free(f, first, c, off, last, e)
		}
		for range 3 { // all of the size of the place, but for one
			first := get("first", 4096, constants)
			a := get("half", 3*mib/4, place)
			b := get("rest", 9*mib/4, place+3*mib/4)
			free(a)
			c := get("too large for the gap", 3*mib/4+1, 0)
			e := get("as large", 3*mib/4, place)
			free(b)
			f := get("less", mib, place+3*mib/4)
			g := get("rest of it", mib, place+7*mib/4)
			last := get("last", 8192, constants+4096)
			free(g, f, first, c, last, e)
		}
		if c := d.Counters(); c.DisplacedAllocations > 0 || c.DriftEvents > 0 || c.State != Body {
			t.Errorf("%+v", c)
		}
	}
}

// liveBlocks are those of a run, by address.
type liveBlocks []liveBlock

type liveBlock struct{ at, size uint64 }

func (l liveBlocks) find(at uint64) (int, bool) {
	return slices.BinarySearchFunc(l, at, func(b liveBlock, at uint64) int { return cmp.Compare(b.at, at) })
}

// add says whether a block shares no byte with another one.
func (l *liveBlocks) add(at, size uint64) bool {
	i, found := l.find(at)
	if found || i < len(*l) && (*l)[i].at < at+size || i > 0 && at < (*l)[i-1].at+(*l)[i-1].size {
		return false
	}
	*l = slices.Insert(*l, i, liveBlock{at, size})
	return true
}

func (l *liveBlocks) remove(at uint64) {
	if i, found := l.find(at); found {
		*l = slices.Delete(*l, i, i+1)
	}
}

// TestSharedPlacesOfExperts serves long runs of experts with other tokens than were recorded, of which some do not fit into the
// places, some frees come early, late, or on other streams, and now and then something else is requested. No two blocks
// share a byte. What is on plan lies in a shared place as a whole, or at the place of a request that does not vary; what
// finds no room is off plan.
func TestSharedPlacesOfExperts(t *testing.T) {
	passes := 120
	if testing.Short() {
		passes = 20
	}
	for _, c := range []struct {
		name   string
		job    experts
		tokens int  // of a layer of the run
		wild   bool // early and late frees, and other requests
		least  float64
	}{
		{"as recorded", mixture, mixture.tokens, false, 0.98},
		{"two streams", func() experts { j := mixture; j.streams = true; return j }(), mixture.tokens, false, 0.97},
		{"more tokens", mixture, mixture.tokens * 3 / 2, false, 0.5},
		{"wild", mixture, mixture.tokens, true, 0.8},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 0))
			recorded := c.job.several(6, rng)
			plan := c.job.plan(recorded)
			shared := &plan.Slots[len(expertsWeights)+c.job.head()]
			other := c.job
			other.tokens = c.tokens
			d := open(t, plan, Options{Capacity: 1 << 40, Granularity: 64 << 10, Partial: true})
			var live liveBlocks
			var layer []uint64 // what is freed at the layer's end
			base, odd := uint64(0), uint64(0)
			serve := func(r jobRequest) uint64 {
				at, source, err := d.Malloc(r.size, r.stream)
				if err != nil {
					t.Fatal(err)
				}
				if !live.add(at, up(r.size)) {
					t.Fatalf("%d B are given at %#x, where something is live", r.size, at)
				}
				if base == 0 {
					base = at
				}
				if source != FromPlan {
					return at
				}
				low, high := at-base, at-base+up(r.size)
				if at < base || high > plan.ArenaBytes {
					t.Fatalf("%d B on plan are at %d of the plan's %d", r.size, low, plan.ArenaBytes)
				}
				inside := low >= shared.Offset && high <= shared.Offset+shared.Size
				own := slices.ContainsFunc(plan.Slots, func(s planfile.Slot) bool { return s.Offset == low && s.Size >= up(r.size) })
				if !inside && (low < shared.Offset+shared.Size && high > shared.Offset || !own) {
					odd++ // displaced: its place was taken
				}
				return at
			}
			free := func(at, stream uint64) {
				live.remove(at)
				if err := d.Free(at, stream); err != nil {
					t.Fatal(err)
				}
			}
			for _, r := range c.job.prologue() {
				serve(r)
			}
			for range passes {
				for _, r := range other.requests(other.draw(rng)) {
					if r.slot%c.job.perLayer() == 0 { // another layer begins
						rng.Shuffle(len(layer), func(i, k int) { layer[i], layer[k] = layer[k], layer[i] })
						keep := 0
						if c.wild {
							keep = min(len(layer), rng.IntN(6))
						}
						for _, at := range layer[keep:] {
							free(at, rng.Uint64N(2))
						}
						layer = layer[:keep]
					}
					layer = append(layer, serve(r))
					if c.wild && rng.IntN(8) == 0 {
						i := rng.IntN(len(layer))
						free(layer[i], 0)
						layer = slices.Delete(layer, i, i+1)
					}
					if c.wild && rng.IntN(200) == 0 {
						layer = append(layer, serve(jobRequest{-1, 1 + rng.Uint64N(mib/4), rng.Uint64N(2), 1}))
					}
				}
			}
			got := d.Counters()
			share := float64(got.PlannedBytes) / float64(got.AllocationBytes)
			t.Logf("%.2f %% of the bytes and %.2f %% of the requests are on plan, %d displaced, %.4f reserved of what is allocated", 100*share,
				100*float64(got.PlannedAllocations)/float64(got.Allocations), got.DisplacedAllocations, float64(got.PeakReserved)/float64(got.PeakAllocated))
			if odd > got.DisplacedAllocations {
				t.Errorf("%d requests on plan lie at no place, and %d are displaced", odd, got.DisplacedAllocations)
			}
			if share < c.least || c.tokens > c.job.tokens && got.PlannedAllocations == got.Allocations {
				t.Errorf("%.2f %% of the bytes are on plan, expected %.0f and, with more tokens, not all: %+v", 100*share, 100*c.least, got)
			}
		})
	}
}

// sharing has the six requests between the first and the last of each cycle of a body share one place, which is as large as all
// of them together.
func sharing(d planfile.Device) planfile.Device {
	first := int(d.Phases[1].FirstSlot)
	holder, size := &d.Slots[first+1], uint64(0)
	for i := range d.Slots[first:] {
		if k := i % len(cycle); k > 0 && k < len(cycle)-1 {
			size += d.Slots[first+i].Size
		}
	}
	holder.Size = size
	for i := range d.Slots[first:] {
		if k := i % len(cycle); k > 0 && k < len(cycle)-1 && i > 1 {
			s := &d.Slots[first+i]
			s.Size, s.Offset, s.Flags, s.Cell = size, holder.Offset, planfile.SlotShares, uint32(first+1)
		}
	}
	return d
}

// TestSharedPlacesUnderStress has plans with shared places served to many threads and streams, with frees by other
// threads, to any calls, and, changed, to programs that follow them more or less.
func TestSharedPlacesUnderStress(t *testing.T) {
	write := func(data []byte) string {
		path := filepath.Join(t.TempDir(), "plan.bin")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cycle := []uint64{4096, 65536, 1 << 20, 303104, 4096, 2 << 20, 8192, 131072} // as ctest/ordered.c and ctest/calls.c have it
	plan := write(encode(t, sharing(brief(periodic(cycle, [][]uint64{slices.Repeat(cycle, 16)}, []uint32{1})))))
	execute(t, compile(t, memorySanitizers, "calls.c"), "100", "100000", plan)
	if testing.Short() {
		return
	}
	for sanitizer, operations := range map[string]int{memorySanitizers: *stress / 2, "thread": *stress / 8} {
		t.Run(sanitizer, func(t *testing.T) {
			t.Parallel()
			program := compile(t, sanitizer, "ordered.c", "model.c")
			execute(t, program, strconv.Itoa(operations), "0", "known", plan)
			execute(t, program, strconv.Itoa(operations), "50", "whole", plan)
		})
	}
}

// TestSharedPlacesFromThreads has several threads make the requests of a run, so that neighbours change places, and free
// the blocks of others. No two blocks share a byte.
func TestSharedPlacesFromThreads(t *testing.T) {
	const threads, passes = 4, 40
	rng := rand.New(rand.NewPCG(1, 0))
	plan := mixture.plan(mixture.several(6, rng))
	d := open(t, plan, Options{Capacity: 1 << 40, Granularity: 64 << 10, Partial: true})
	run := mixture.follow(mixture.several(passes, rng)...)
	var lock sync.Mutex
	var live liveBlocks
	var layer []uint64
	next := 0
	work := func() error {
		for {
			lock.Lock()
			if next == len(run) {
				lock.Unlock()
				return nil
			}
			r := run[next]
			next++
			var done []uint64
			if r.slot >= 0 && r.slot%mixture.perLayer() == 0 {
				done, layer = layer, nil
				for _, at := range done {
					live.remove(at)
				}
			}
			lock.Unlock()
			for _, at := range done {
				if err := d.Free(at, 0); err != nil {
					return err
				}
			}
			at, _, err := d.Malloc(r.size, r.stream)
			if err != nil {
				return err
			}
			lock.Lock()
			apart := live.add(at, up(r.size))
			if r.slot >= 0 {
				layer = append(layer, at)
			}
			lock.Unlock()
			if !apart {
				return fmt.Errorf("%d B are given at %#x, where something is live", r.size, at)
			}
		}
	}
	results, all := make(chan error), run
	for run = all[:len(expertsWeights)]; next < len(run); {
		if err := work(); err != nil {
			t.Fatal(err)
		}
	}
	run = all
	for range threads {
		go func() { results <- work() }()
	}
	for range threads {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	c := d.Counters()
	share := float64(c.PlannedBytes) / float64(c.AllocationBytes)
	t.Logf("%.2f %% of the bytes are on plan, %d displaced", 100*share, c.DisplacedAllocations)
	if share < 0.1 { // more by far, unless threads are held up for long
		t.Errorf("%.2f %% of the bytes are on plan, expected 10: %+v", 100*share, c)
	}
}
