package baseline

import (
	"math/rand/v2"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// ranged is a buffer of a recording with its two half-open live ranges.
type ranged struct {
	size                     trace.Bytes
	start, requested, active int
}

// rangesOf finds every buffer by its definition: it follows each alloc, and each block
// of the initial state, to the next alloc at its address. An end without an entry is
// the other end, or the number of entries if there is none. If the recording has
// completed frees at all, a free without one is still pending at the end.
func rangesOf(d *trace.Device) []ranged {
	some := false
	for _, e := range d.Events {
		some = some || e.Action == completed
	}
	last := max(1, len(d.Events))
	ends := func(addr uint64, from, requested int) (int, int) {
		done := -1
		for i := from; i < len(d.Events) && (d.Events[i].Action != alloc || d.Events[i].Addr != addr); i++ {
			switch e := d.Events[i]; {
			case e.Addr != addr:
			case e.Action == freed && requested < 0:
				requested = max(1, i)
			case e.Action == completed && done < 0:
				done = max(1, i)
			}
		}
		switch {
		case requested < 0 && done < 0:
			return last, last
		case requested < 0:
			return done, done
		case done < 0 && some:
			return requested, last
		case done < 0:
			return requested, requested
		}
		return requested, done
	}
	var all []ranged
	add := func(size trace.Bytes, addr uint64, start, from, requested int) {
		r, c := ends(addr, from, requested)
		all = append(all, ranged{max(512, (size+511)/512*512), start, r, c})
	}
	for _, s := range d.Initial {
		for _, b := range s.Blocks {
			switch b.State {
			case trace.BlockAllocated:
				add(b.Requested, b.Address, 0, 0, -1)
			case trace.BlockPendingFree:
				add(b.Requested, b.Address, 0, 0, 1)
			}
		}
	}
	for i, e := range d.Events {
		if e.Action == alloc {
			add(e.Size, e.Addr, i, i+1, -1)
		}
	}
	return all
}

// accountOf adds up, at every entry, what lives there.
func accountOf(d *trace.Device) (r Recorded) {
	all := rangesOf(d)
	reserved := trace.Bytes(0)
	for _, s := range d.Initial {
		reserved += s.Size
	}
	r.PeakReserved = reserved
	for t := range max(1, len(d.Events)) {
		var held, active trace.Bytes
		for _, b := range all {
			if b.start <= t && t < b.requested {
				held += b.size
			}
			if b.start <= t && t < b.active {
				active += b.size
			}
		}
		if t < len(d.Events) {
			reserved += map[trace.Action]trace.Bytes{segAlloc: 1, trace.ActionSegmentMap: 1, segFree: -1, trace.ActionSegmentUnmap: -1}[d.Events[t].Action] * d.Events[t].Size
		}
		r.PeakReserved, r.PeakAllocated, r.PeakActive = max(r.PeakReserved, reserved), max(r.PeakAllocated, held), max(r.PeakActive, active)
	}
	return r
}

// randomAccount makes a recording with an initial state and few addresses, so that
// they are used again and again. It may leave out entries of one kind.
func randomAccount(r *rand.Rand) *trace.Device {
	const addresses = 6
	d := &trace.Device{}
	state := [addresses]byte{}
	size := func() trace.Bytes { return trace.Bytes(r.Int64N(4096)) }
	var sizes [addresses]trace.Bytes
	for i := range state {
		if r.IntN(3) > 0 {
			continue
		}
		b := trace.Block{Address: uint64(i+1) << 20, Size: 8192, Requested: size(), State: trace.BlockAllocated}
		state[i], sizes[i] = 'a', b.Requested
		if r.IntN(2) == 0 {
			b.State, state[i] = trace.BlockPendingFree, 'p'
		}
		d.Initial = append(d.Initial, trace.Segment{Address: b.Address, Size: b.Size, Blocks: []trace.Block{b}})
	}
	// At least one kind of free entry is needed to use an address again.
	kinds := r.IntN(3)
	requests, completions := kinds != 0, kinds != 1
	add := func(recorded bool, a trace.Action, i int) {
		if recorded {
			d.Events = append(d.Events, e(a, uint64(i+1)<<20, sizes[i], 0))
		}
	}
	for range r.IntN(30) {
		switch i := r.IntN(addresses); state[i] {
		case 0:
			state[i], sizes[i] = 'a', size()
			add(r.IntN(4) == 0, segAlloc, i)
			add(true, alloc, i)
		case 'a':
			state[i] = 'p'
			add(requests, freed, i)
		case 'p':
			state[i] = 0
			add(completions, completed, i)
		}
	}
	return d
}

// TestAccount compares the peaks of FromRecording with those found by definition.
func TestAccount(t *testing.T) {
	pending, without := 0, 0
	for seed := range uint64(4000) {
		d := randomAccount(rand.New(rand.NewPCG(seed, 9)))
		got, want := FromRecording(d), accountOf(d)
		if got != want {
			t.Fatalf("seed %d: %+v, expected %+v\n%+v\n%+v", seed, got, want, d.Initial, d.Events)
		}
		if want.PeakActive > want.PeakAllocated {
			pending++
		}
		if !completes(d) {
			without++
		}
	}
	if pending < 400 || without < 400 {
		t.Errorf("%d recordings with a delayed free at the peak and %d without completions: too tame", pending, without)
	}
}

// TestAccountExamples has the cases in which the rules are easy to get wrong.
func TestAccountExamples(t *testing.T) {
	block := func(state trace.BlockState) []trace.Segment {
		return []trace.Segment{{Address: 1 << 30, Size: 2 * mib, Blocks: []trace.Block{{Address: 1 << 30, Size: 2 * mib, Requested: mib, State: state}}}}
	}
	var reused []trace.Event
	for range 5 {
		reused = append(reused, e(alloc, 1<<30, mib, 0), e(freed, 1<<30, mib, 0))
	}
	for _, tc := range []struct {
		name   string
		device trace.Device
		want   Recorded
	}{
		{"no completions", trace.Device{Events: reused}, Recorded{0, mib, mib}},
		{"no requests", trace.Device{Events: []trace.Event{e(alloc, 1, mib, 0), e(completed, 1, mib, 0), e(alloc, 1, mib, 0)}}, Recorded{0, mib, mib}},
		{"pending for ever", trace.Device{Initial: block(trace.BlockPendingFree), Events: []trace.Event{
			e(alloc, 1, mib, 0), e(freed, 1, mib, 0), e(completed, 1, mib, 0), e(alloc, 1, 3*mib, 0)}}, Recorded{2 * mib, 3 * mib, 4 * mib}},
		{"pending past the first entry", trace.Device{Initial: block(trace.BlockPendingFree), Events: []trace.Event{
			e(alloc, 1, mib, 0), e(completed, 1<<30, mib, 0)}}, Recorded{2 * mib, 2 * mib, 2 * mib}},
		{"pending and completed by the first entry", trace.Device{Initial: block(trace.BlockPendingFree), Events: []trace.Event{
			e(completed, 1<<30, mib, 0), e(alloc, 1, 512, 0)}}, Recorded{2 * mib, mib, mib}},
		{"pending without completions", trace.Device{Initial: block(trace.BlockPendingFree), Events: []trace.Event{
			e(segAlloc, 1, 2*mib, 0), e(alloc, 1<<30, 512, 0)}}, Recorded{4 * mib, mib, mib}},
		{"nothing happens", trace.Device{Initial: block(trace.BlockPendingFree)}, Recorded{2 * mib, mib, mib}},
		{"nothing at all", trace.Device{}, Recorded{}},
	} {
		if got := FromRecording(&tc.device); got != tc.want {
			t.Errorf("%s: %+v, expected %+v", tc.name, got, tc.want)
		}
	}
}
