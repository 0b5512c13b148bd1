package verify

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// aboveLoad is eleven buffers that need five units although at most four are live at
// once. Each has a start, an end and a size in units.
var aboveLoad = []interval{
	{0, 5, 2}, {0, 2, 2}, {2, 7, 2}, {5, 8, 1}, {5, 10, 1}, {7, 10, 1}, {7, 12, 1}, {8, 9, 1}, {9, 12, 1}, {10, 14, 2}, {12, 16, 2},
}

// fitsAnyhow is the reference for fitBelow: it tries every offset of every interval.
func fitsAnyhow(all []interval, height uint64) bool {
	offsets := make([]uint64, len(all))
	var descend func(i int) bool
	descend = func(i int) bool {
		if i == len(all) {
			return true
		}
	place:
		for x := uint64(0); x+all[i].size < height; x++ {
			for k, o := range all[:i] {
				if o.start < all[i].end && all[i].start < o.end && x < offsets[k]+o.size && offsets[k] < x+all[i].size {
					continue place
				}
			}
			if offsets[i] = x; descend(i + 1) {
				return true
			}
		}
		return false
	}
	return descend(0)
}

// TestFitBelow compares with trying every offset, on random intervals and heights.
func TestFitBelow(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	seen := map[bool]int{}
	for range 3000 {
		var all []interval
		for range 1 + rng.IntN(7) {
			start := rng.Uint64N(8)
			all = append(all, interval{start, start + 1 + rng.Uint64N(6), 1 + rng.Uint64N(4)})
		}
		height := 2 + rng.Uint64N(14)
		want := fitsAnyhow(all, height)
		if got, decided := fitBelow(all, height, trials); got != want || !decided {
			t.Fatalf("below %d: found %v (decided %v), expected %v: %v", height, got, decided, want, all)
		}
		seen[want]++
	}
	if seen[true] < 500 || seen[false] < 500 {
		t.Errorf("expected both answers often, found %v", seen)
	}
	if fit, decided := fitBelow(aboveLoad, 5, trials); fit || !decided {
		t.Errorf("the known case fits below 5: %v, decided %v", fit, decided)
	}
	if fit, _ := fitBelow(aboveLoad, 6, trials); !fit {
		t.Error("the known case does not fit below 6")
	}
	if fit, decided := fitBelow(aboveLoad, 5, 10); fit || decided {
		t.Errorf("ten layouts decide: %v, %v", fit, decided)
	}
}

// witnessed is a plan of aboveLoad in five units of 512 B. Each start is an event of its
// own.
func witnessed() *planfile.Plan {
	d := planfile.Device{
		Mode: planfile.ModeRecorded, End: planfile.EndRequested, Rank: -1, Events: 16 * 32, Alignment: 512, ArenaBytes: 5 * 512,
		PeakAllocated: 4 * 512, PeakActive: 4 * 512, Streams: []uint64{0},
	}
	offsets := []uint64{0, 2, 2, 0, 1, 2, 3, 0, 0, 1, 3}
	for i, b := range aboveLoad {
		d.Slots = append(d.Slots, planfile.Slot{
			Start: b.start*32 + 16 + uint64(i), RequestedEnd: b.end * 32, CompletedEnd: b.end * 32,
			Offset: offsets[i] * 512, Size: b.size * 512, Requested: b.size * 512,
		})
		d.Certificate.Witness = append(d.Certificate.Witness, uint32(i))
	}
	once(d.Slots)
	d.Certificate.Kind, d.Certificate.LowerBound = planfile.BoundWitness, 5*512
	return &planfile.Plan{Producer: "test", Devices: []planfile.Device{d}}
}

// TestWitness: a bound above the load is proven from its witness, and a witness that
// needs fewer bytes is refused.
func TestWitness(t *testing.T) {
	p := witnessed()
	for _, v := range Plan(p, nil) {
		t.Error(v.Message)
	}
	for _, c := range []struct {
		want   string
		change func(c *planfile.Certificate)
	}{
		{"takes fewer", func(c *planfile.Certificate) { c.Witness = c.Witness[1:] }},
		{"a witness of 0 slots", func(c *planfile.Certificate) { c.Witness = nil }},
		{"slot 11 in the witness", func(c *planfile.Certificate) { c.Witness = []uint32{11} }},
		{"slot 0 in the witness", func(c *planfile.Certificate) { c.Witness = []uint32{0, 0} }},
		{"lower bound of 3072 B above the arena", func(c *planfile.Certificate) { c.LowerBound = 3072 }},
		{"gap of 512 B", func(c *planfile.Certificate) { c.Gap = 512 }},
		{"bound of kind 4", func(c *planfile.Certificate) { c.Kind = 4 }},
	} {
		p := witnessed()
		c.change(&p.Devices[0].Certificate)
		var all []string
		for _, v := range Plan(p, nil) {
			if v.Rule == RuleCertificate {
				all = append(all, v.Message)
			}
		}
		if got := strings.Join(all, "\n"); !strings.Contains(got, c.want) {
			t.Errorf("expected %q, found %q", c.want, got)
		}
	}
}
