package packing

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// randomUses gives each buffer one of two streams, and an instant less than late after
// its end at which it settles.
func randomUses(rng *rand.Rand, p *Problem, late int) []Use {
	uses := make([]Use, len(p.Buffers))
	for i, b := range p.Buffers {
		uses[i] = Use{Stream: int32(rng.IntN(5) / 4), Settled: b.End + Time(rng.IntN(late))}
	}
	return uses
}

// busyProblem is a random problem of short-lived buffers, which reuse bytes often, with
// a valid placement.
func busyProblem(t testing.TB, rng *rand.Rand, n int) (*Problem, Placement) {
	t.Helper()
	p := randomProblem(rng, n, n+20, 9)
	for i := range p.Buffers {
		p.Buffers[i].End = p.Buffers[i].Start + 1 + Time(rng.IntN(8))
	}
	p.Alignment = Bytes(1 + rng.IntN(3))
	return p, mustPack(t, p, Options{Workers: 1, Capacity: 1 << 40})
}

// waitsByByte is Waits from a map of the last owner of every byte.
func waitsByByte(p *Problem, uses []Use, pl Placement) []Wait {
	var out []Wait
	for _, r := range reusesByByte(p, pl) {
		cross := uses[r.Earlier].Stream != uses[r.Later].Stream
		pending := p.Buffers[r.Later].Start < uses[r.Earlier].Settled
		if cross || pending {
			out = append(out, Wait{r, cross, pending})
		}
	}
	return out
}

func costOfWaits(p *Problem, waits []Wait) waitCost {
	var sum waitCost
	for _, w := range waits {
		sum.count++
		sum.units += int64(w.Bytes / p.Alignment)
		slack := int64(p.Buffers[w.Later].Start - p.Buffers[w.Earlier].End)
		sum.slack += slack
		if w.CrossStream {
			sum.cross++
			sum.crossUnits += int64(w.Bytes / p.Alignment)
			sum.crossSlack += slack
		}
	}
	return sum
}

func TestWaitsAgreeWithByteOwners(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 1))
	found := 0
	for range 300 {
		p, pl := busyProblem(t, rng, 1+rng.IntN(40))
		uses := randomUses(rng, p, 6)
		got, want := Waits(p, uses, pl), waitsByByte(p, uses, pl)
		if !slices.Equal(got, want) {
			t.Fatalf("expected %v, found %v, for %v at %v", want, got, p.Buffers, pl.Offsets)
		}
		found += len(got)
	}
	if found < 1000 {
		t.Fatalf("expected at least 1000 waits in all, found %d", found)
	}
}

// moverAt is a mover with b as the current buffer.
func moverAt(in *instance, uses []Use, l layout, b int32) *mover {
	m := newMover(in, uses, l, l.makespan)
	m.past, m.next = newOwnerMap(m.top), newOwnerMap(m.top)
	for a := range b {
		m.past.set(m.off[a], m.off[a]+in.size[a], a, nil)
	}
	for a := int32(in.n) - 1; a > b; a-- {
		m.next.set(m.off[a], m.off[a]+in.size[a], a, nil)
	}
	return m
}

// TestDeltaAgainstCountingAllWaits compares the change of the cost, for every offset
// that a buffer can go to, with counting all waits again byte by byte.
func TestDeltaAgainstCountingAllWaits(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 1))
	moves, changes := 0, 0
	for range 400 {
		p, pl := busyProblem(t, rng, 2+rng.IntN(25))
		uses := randomUses(rng, p, 6)
		in, err := newInstance(p)
		if err != nil {
			t.Fatal(err)
		}
		l := in.layoutOf(pl)
		own := in.usesOf(uses)
		count := func() waitCost { return costOfWaits(p, waitsByByte(p, uses, in.placement(l))) }
		before := count()
		b := int32(rng.IntN(in.n))
		m := moverAt(in, own, l, b)
		if got := m.costOf(); got != before {
			t.Fatalf("expected a cost of %v, found %v", before, got)
		}
		home := l.off[b]
		var atHome waitCost
		m.runs(b, home, home+in.size[b], func(r run) bool {
			atHome, _ = m.delta(r, b, home)
			return true
		})
		m.runs(b, 0, m.top, func(r run) bool {
			for x := r.lo(); x+in.size[b] <= r.hi(); x++ {
				got, _ := m.delta(r, b, x)
				l.off[b] = x
				want := count().minus(before)
				if got = got.minus(atHome); got != want {
					t.Fatalf("buffer %d to %d: expected a change of %v, found %v", b, x, want, got)
				}
				if moves++; want.count != 0 {
					changes++
				}
			}
			return true
		})
		l.off[b] = home
	}
	if moves < 1000 || changes < 300 {
		t.Fatalf("expected at least 1000 moves, 300 of which change the waits, found %d and %d", moves, changes)
	}
}

// TestFewerWaitsOnlyImproves: the result is valid, has no larger makespan and no larger
// cost, and is the same with any number of workers.
func TestFewerWaitsOnlyImproves(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 1))
	before, after := waitCost{}, waitCost{}
	for range 200 {
		p, pl := busyProblem(t, rng, 1+rng.IntN(80))
		uses := randomUses(rng, p, 6)
		got := fewerWaits(t, p, uses, pl, 1)
		if again := fewerWaits(t, p, uses, pl, 3); !reflect.DeepEqual(got, again) {
			t.Fatalf("expected the same placement with 1 and 3 workers, found makespans %d and %d", got.Makespan, again.Makespan)
		}
		if err := Validate(p, got); err != nil || got.Makespan > pl.Makespan {
			t.Fatalf("expected at most %d bytes, found %d: %v", pl.Makespan, got.Makespan, err)
		}
		old, now := costOfWaits(p, waitsByByte(p, uses, pl)), costOfWaits(p, waitsByByte(p, uses, got))
		if now.cross > old.cross || old.less(now) {
			t.Fatalf("expected a cost of at most %v, found %v", old, now)
		}
		before.count += old.count
		after.count += now.count
	}
	if after.count*2 > before.count {
		t.Errorf("expected less than half of %d waits, found %d", before.count, after.count)
	}
}

func fewerWaits(t testing.TB, p *Problem, uses []Use, pl Placement, workers int) Placement {
	t.Helper()
	got, err := FewerWaits(context.Background(), p, uses, pl, Options{Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestFewerWaitsKeepsThePinned(t *testing.T) {
	rng := rand.New(rand.NewPCG(24, 1))
	moved := 0
	for range 100 {
		p, pl := busyProblem(t, rng, 40)
		uses := randomUses(rng, p, 6)
		for i := range uses {
			uses[i].Pinned = rng.IntN(2) == 0
		}
		got := fewerWaits(t, p, uses, pl, 1)
		for i, u := range uses {
			if got.Offsets[i] == pl.Offsets[i] {
				continue
			}
			if moved++; u.Pinned {
				t.Fatalf("buffer %d: expected it pinned at %d, found %d", i, pl.Offsets[i], got.Offsets[i])
			}
		}
	}
	if moved == 0 {
		t.Error("expected some buffers that are not pinned to move, found none")
	}
}

// TestFewerWaitsGoesBackInTime: the short-lived buffers of stream 0 follow one another
// at the offset of the resident of stream 1. No wait is left only after all of them
// have moved away, and each moves only after its successor.
func TestFewerWaitsGoesBackInTime(t *testing.T) {
	p := &Problem{Alignment: 1}
	var uses []Use
	for k := range Time(5) {
		p.Buffers = append(p.Buffers, Buffer{Start: k, End: k + 1, Size: 1})
		uses = append(uses, Use{Stream: 0})
	}
	p.Buffers = append(p.Buffers, Buffer{Start: 5, End: 9, Size: 1}, Buffer{Start: 6, End: 9, Size: 1})
	uses = append(uses, Use{Stream: 1}, Use{Stream: 0})
	pl := Placement{Offsets: []Bytes{0, 0, 0, 0, 0, 0, 1}, Makespan: 2}
	got := fewerWaits(t, p, uses, pl, 1)
	if waits := Waits(p, uses, got); len(waits) != 0 {
		t.Errorf("expected no wait, found %v at %v", waits, got.Offsets)
	}
}

// TestFewerWaitsGetsUnderLongLives: if the large buffer before the resident of stream 1
// moves away, two waits for the buffers that were there before it replace one. The move
// is a gain only after these have moved too.
func TestFewerWaitsGetsUnderLongLives(t *testing.T) {
	p := &Problem{Alignment: 1, Buffers: []Buffer{{Start: 0, End: 1, Size: 1}, {Start: 1, End: 2, Size: 1}, {Start: 3, End: 4, Size: 2},
		{Start: 5, End: 9, Size: 2}, {Start: 6, End: 9, Size: 2}}}
	uses := []Use{{Stream: 0}, {Stream: 0}, {Stream: 0}, {Stream: 1, Pinned: true}, {Stream: 0, Pinned: true}}
	pl := Placement{Offsets: []Bytes{0, 1, 0, 0, 2}, Makespan: 4}
	got := fewerWaits(t, p, uses, pl, 1)
	if waits := Waits(p, uses, got); len(waits) != 0 {
		t.Errorf("expected no wait, found %v at %v", waits, got.Offsets)
	}
}

// TestFewerWaitsPrefersItsOwnStream: the last buffer can take over from one buffer of the
// other stream, with one wait, or from two of its own that have not settled, with two.
func TestFewerWaitsPrefersItsOwnStream(t *testing.T) {
	p := &Problem{Alignment: 1, Buffers: []Buffer{{Start: 0, End: 1, Size: 1}, {Start: 0, End: 1, Size: 1}, {Start: 0, End: 1, Size: 2},
		{Start: 2, End: 3, Size: 2}}}
	uses := []Use{{Stream: 0, Settled: 9, Pinned: true}, {Stream: 0, Settled: 9, Pinned: true}, {Stream: 1, Pinned: true}, {Stream: 0}}
	for _, at := range []Bytes{0, 2} {
		got := fewerWaits(t, p, uses, Placement{Offsets: []Bytes{0, 1, 2, at}, Makespan: 4}, 1)
		if want := []Bytes{0, 1, 2, 0}; !slices.Equal(got.Offsets, want) {
			t.Errorf("from offset %d: expected offsets %v with two waits for the same stream, found %v", at, want, got.Offsets)
		}
	}
}

// TestFewerWaitsAgainstAllPlacements compares the search on tiny problems with every
// placement of that size: it never beats the best, and mostly reaches it.
func TestFewerWaitsAgainstAllPlacements(t *testing.T) {
	rng := rand.New(rand.NewPCG(26, 1))
	const problems = 300
	equal, sameCross, withCross := 0, 0, 0
	for range problems {
		p := randomProblem(rng, 5, 12, 2)
		p.Alignment = 1
		uses := randomUses(rng, p, 4)
		pl := mustPack(t, p, Options{Workers: 1})
		pl.Makespan += Bytes(rng.IntN(2))
		best := leastOfAll(p, uses, pl.Makespan)
		got := costOfWaits(p, waitsByByte(p, uses, fewerWaits(t, p, uses, pl, 1)))
		if got.less(best) {
			t.Fatalf("expected a cost of at least %v, found %v", best, got)
		}
		if got.cross == best.cross {
			sameCross++
		}
		if got == best {
			equal++
		}
		if best.cross > 0 {
			withCross++
		}
	}
	t.Logf("of %d: %d with the least cost, %d with the fewest waits between streams, %d cannot be without", problems, equal, sameCross, withCross)
	if sameCross*20 < problems*19 || equal*10 < problems*8 || withCross < problems/20 {
		t.Errorf("expected the fewest waits between streams in 95 %% of %d, the least cost in 80 %%, found %d and %d", problems, sameCross, equal)
	}
}

// leastOfAll is the least cost of any placement with at most that makespan.
func leastOfAll(p *Problem, uses []Use, makespan Bytes) waitCost {
	best := waitCost{cross: 1 << 40}
	pl := Placement{Offsets: make([]Bytes, len(p.Buffers)), Makespan: makespan}
	var place func(b int)
	place = func(b int) {
		if b == len(p.Buffers) {
			if c := costOfWaits(p, waitsByByte(p, uses, pl)); c.less(best) {
				best = c
			}
			return
		}
		for x := Bytes(0); x+p.Buffers[b].Size <= makespan; x++ {
			pl.Offsets[b] = x
			if !clashesBefore(p, pl, b) {
				place(b + 1)
			}
		}
	}
	place(0)
	return best
}

// clashesBefore says whether buffer b shares time and bytes with one before it.
func clashesBefore(p *Problem, pl Placement, b int) bool {
	x, l := pl.Offsets[b], p.Buffers[b]
	for i, e := range p.Buffers[:b] {
		y := pl.Offsets[i]
		if e.Start < l.End && l.Start < e.End && y < x+l.Size && x < y+e.Size {
			return true
		}
	}
	return false
}

// TestAlternatives: all are valid and no larger, all differ, and the given placement is
// the first. One keeps the main stream low and the others high, so that less memory
// changes streams.
func TestAlternatives(t *testing.T) {
	rng := rand.New(rand.NewPCG(27, 1))
	others, apart, fewer := 0, 0, 0
	for range 100 {
		p, pl := busyProblem(t, rng, 60)
		pl.Makespan += pl.Makespan / 5 / p.Alignment * p.Alignment
		uses := randomUses(rng, p, 1)
		all, err := Alternatives(context.Background(), p, streamsOf(uses), pl, Options{Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(all[0], pl) {
			t.Fatalf("expected the given placement first, found %v", all[0])
		}
		before := costOfWaits(p, waitsByByte(p, uses, pl))
		for i, a := range all[1:] {
			if err := Validate(p, a); err != nil || a.Makespan > pl.Makespan {
				t.Fatalf("%s: expected at most %d, found %d: %v", a.Heuristic, pl.Makespan, a.Makespan, err)
			}
			if slices.ContainsFunc(all[:1+i], func(o Placement) bool { return slices.Equal(o.Offsets, a.Offsets) }) {
				t.Fatalf("%s: expected another placement than those before", a.Heuristic)
			}
			others++
			if a.Heuristic == "TLast-ends" {
				apart++
				if costOfWaits(p, waitsByByte(p, uses, a)).cross < before.cross {
					fewer++
				}
			}
		}
	}
	if others < 100 || apart < 50 || fewer*10 < apart*8 {
		t.Errorf("expected other placements, mostly one with the streams at the two ends and fewer waits between them, found %d, %d and %d",
			others, apart, fewer)
	}
	p, pl := busyProblem(t, rng, 10)
	if _, err := Alternatives(context.Background(), p, nil, pl, Options{}); err == nil || err.Error() != "streams: expected 10, one per buffer, found 0" {
		t.Errorf("expected an error about the length of streams, found %v", err)
	}
}

func TestFewerWaitsRefuses(t *testing.T) {
	p := &Problem{Buffers: []Buffer{{Start: 0, End: 1, Size: 1}, {Start: 1, End: 2, Size: 1}}}
	pl := mustPack(t, p, Options{})
	if _, err := FewerWaits(context.Background(), p, make([]Use, 1), pl, Options{}); err == nil ||
		err.Error() != "uses: expected 2, one per buffer, found 1" {
		t.Errorf("expected an error about the length of uses, found %v", err)
	}
	uses := []Use{{Stream: 0}, {Stream: 1}}
	gapped := &Problem{Buffers: p.Buffers, Gaps: []Gap{{0, 0, 1}}}
	if _, err := FewerWaits(context.Background(), gapped, uses, pl, Options{}); err == nil ||
		err.Error() != "gaps: expected none if waits are counted, found 1" {
		t.Errorf("expected an error about gaps, found %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := FewerWaits(ctx, p, uses, pl, Options{}); err != context.Canceled {
		t.Errorf("expected a cancelled context to be the error, found %v", err)
	}
}

// TestOwnerMapKnowsEveryOwner compares an ownerMap with an array, through changes and
// after all of them are undone.
func TestOwnerMapKnowsEveryOwner(t *testing.T) {
	rng := rand.New(rand.NewPCG(25, 1))
	const end = 6000
	m := newOwnerMap(end)
	want := make([]int32, end)
	for x := range want {
		want[x] = nobody
	}
	check := func() {
		x := int64(0)
		for c := m.at(0); ; c = m.after(c) {
			if m.at(x) != c || m.hi(c) <= x {
				t.Fatalf("expected the piece at %d, found %v to %d", x, c, m.hi(c))
			}
			for ; x < m.hi(c); x++ {
				if m.owner(c) != want[x] {
					t.Fatalf("byte %d: expected %d, found %d", x, want[x], m.owner(c))
				}
			}
			if x == end {
				return
			}
		}
	}
	var log []piece
	most := 0
	for k := range int32(6000) {
		lo := int64(rng.IntN(end))
		hi := min(end, lo+1+int64(rng.IntN(4)))
		if k%500 == 0 {
			hi = end
		}
		before := len(log)
		log = m.set(lo, hi, k%50, log)
		for _, w := range log[before:] {
			if w.lo != lo || slices.ContainsFunc(want[w.lo:w.hi], func(own int32) bool { return own != w.own }) {
				t.Fatalf("expected a piece from %d on with its former owner, found %v", lo, w)
			}
			lo = w.hi
		}
		for x := log[before].lo; x < hi; x++ {
			want[x] = k % 50
		}
		if most = max(most, len(m.chunks)); k%100 == 0 {
			check()
		}
	}
	if most < 3 {
		t.Errorf("expected several chunks, found %d", most)
	}
	for i := len(log) - 1; i >= 0; i-- {
		m.set(log[i].lo, log[i].hi, log[i].own, nil)
	}
	for x := range want {
		want[x] = nobody
	}
	check()
}
