//go:build cgo

package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

func open(t *testing.T, plan planfile.Device, opt Options) *Device {
	t.Helper()
	if opt.Capacity == 0 {
		opt = Options{Capacity: 1 << 40, Granularity: 2 << 20, Partial: true}
	}
	d, err := Open(encode(t, plan), 0, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// serve requests and frees at once, so that every place is always free and the
// matcher alone decides. It returns the offset that each was served at, -1 off
// plan.
func serve(t *testing.T, d *Device, sizes []uint64) []int64 {
	t.Helper()
	served := make([]int64, len(sizes))
	for i, n := range sizes {
		address, source, err := d.Malloc(n, 0)
		if err != nil {
			t.Fatal(err)
		}
		served[i] = -1
		if source == FromPlan {
			served[i] = int64(address - Base)
		}
		if err := d.Free(address, 0); err != nil {
			t.Fatal(err)
		}
	}
	return served
}

// distinct are n sizes that occur once each, in no order.
func distinct(n int, rng *rand.Rand) []uint64 {
	sizes := make([]uint64, n)
	for i := range sizes {
		sizes[i] = 512 * uint64(i+1)
	}
	rng.Shuffle(n, func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	return sizes
}

// model is the matcher of a plan whose sizes are distinct, so that each request
// has one place at most: it is on plan at the pointer, or where the same
// distance from it has been confirmed for the third time in a row.
type model struct {
	place   map[uint64]int // of each size
	pointer int
	shift   int // supposed place of the request before, and how often it was right
	streak  int
}

func (m *model) next(size uint64) (onPlan bool) {
	at, known := m.place[size]
	if known && m.streak > 0 && at == m.shift+1 {
		m.streak++
	} else {
		m.streak = 0
	}
	if known && at == m.pointer {
		m.pointer, m.shift = m.pointer+1, at
		return true
	}
	if known && m.streak >= 3 {
		m.pointer, m.streak = at+1, 0
		return true
	}
	if known && m.streak == 0 && at >= m.pointer-32 && at < m.pointer+256 {
		m.streak = 1
	}
	m.shift = at
	return false
}

// TestMatcherModel disturbs sequences of distinct sizes and compares each answer
// with the model.
func TestMatcherModel(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		sizes := distinct(400, rng)
		plan := recorded(sizes)
		m := model{place: map[uint64]int{}}
		for i, n := range sizes {
			m.place[n] = i
		}
		// The end of the plan ends the game: stop before it.
		run := edit(sizes, rng)[:300]
		for i, at := range serve(t, open(t, plan, Options{}), run) {
			want := int64(-1)
			if m.next(run[i]) {
				want = int64(plan.Slots[m.place[run[i]]].Offset)
			}
			if at != want {
				t.Fatalf("seed %d: request %d of %d B is served at %d, expected %d", seed, i, run[i], at, want)
			}
		}
	}
}

// edit leaves requests out, adds some, doubles some and swaps neighbours.
func edit(sizes []uint64, rng *rand.Rand) []uint64 {
	run := slices.Clone(sizes)
	for range 6 {
		i := 20 + rng.IntN(len(run)-120)
		switch rng.IntN(4) {
		case 0:
			run = slices.Delete(run, i, i+1+rng.IntN(8))
		case 1:
			run = slices.Insert(run, i, 1+uint64(rng.IntN(100)))
		case 2:
			run = slices.Insert(run, i, run[i])
		case 3:
			run[i], run[i+1] = run[i+1], run[i]
		}
	}
	return run
}
