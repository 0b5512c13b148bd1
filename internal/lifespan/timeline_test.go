package lifespan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// kinds says which kinds of free events a recording has.
type kinds struct{ requests, completions bool }

var allKinds = []kinds{{true, true}, {true, false}, {false, true}, {false, false}}

// randomDevice makes a valid recording with buffers of random sizes and streams. Some are
// live before it begins. They are freed in random order, some late and some never.
func randomDevice(r *rand.Rand, events int, k kinds) *trace.Device {
	d := &trace.Device{}
	var live, pending []trace.Event
	var free []uint64
	next := uint64(0)
	fresh := func() trace.Event {
		addr := next
		if len(free) > 0 && r.IntN(2) == 0 {
			addr, free = free[0], free[1:]
		} else {
			next += 1 << 20
		}
		return trace.Event{Addr: addr, Size: trace.Bytes(r.Int64N(1 << r.IntN(20))), Stream: uint64(r.IntN(3))}
	}
	for range r.IntN(6) {
		e := fresh()
		segment := trace.Segment{Stream: e.Stream, Blocks: []trace.Block{{Address: e.Addr, Requested: e.Size, State: trace.BlockAllocated}}}
		if r.IntN(3) == 0 && k.completions {
			segment.Blocks[0].State = trace.BlockPendingFree
			pending = append(pending, e)
		} else {
			live = append(live, e)
		}
		d.Initial = append(d.Initial, segment)
	}
	take := func(from *[]trace.Event) trace.Event {
		i := r.IntN(len(*from))
		e := (*from)[i]
		*from = slices.Delete(*from, i, i+1)
		return e
	}
	add := func(e trace.Event, a trace.Action) {
		e.Action = a
		d.Events = append(d.Events, e)
		if a == trace.ActionFreeCompleted || a == trace.ActionFreeRequested && !k.completions {
			free = append(free, e.Addr)
		}
	}
	for len(d.Events) < events {
		switch n := r.IntN(10); {
		case n < 4:
			e := fresh()
			live = append(live, e)
			add(e, trace.ActionAlloc)
		case n < 7 && len(live) > 0 && k != (kinds{}):
			e := take(&live)
			if k.requests {
				add(e, trace.ActionFreeRequested)
			}
			if k.completions && (!k.requests || r.IntN(2) == 0) {
				add(e, trace.ActionFreeCompleted)
			} else if k.completions {
				pending = append(pending, e)
			}
		case n < 9 && len(pending) > 0:
			add(take(&pending), trace.ActionFreeCompleted)
		default:
			add(trace.Event{Size: 1 << 30}, trace.Action(r.IntN(2)*int(trace.ActionSegmentAlloc)))
		}
	}
	return d
}

// counter is the reference: it counts the live bytes event by event and does not know
// live ranges.
type counter struct {
	sizes             map[uint64]trace.Bytes
	requested         map[uint64]bool
	completions       bool // the recording has some
	allocated, active count
}

// count is a number of live bytes. What the first event frees still counts at that event.
type count struct{ now, leaving trace.Bytes }

func (c *count) drop(n trace.Bytes, at int) {
	if at == 0 {
		c.leaving += n
	} else {
		c.now -= n
	}
}

// tick appends the count to a profile and goes on to the next event.
func (c *count) tick(p *Profile) {
	*p = append(*p, c.now)
	c.now, c.leaving = c.now-c.leaving, 0
}

func countLive(d *trace.Device) (allocated, active Profile) {
	c := counter{sizes: map[uint64]trace.Bytes{}, requested: map[uint64]bool{}}
	for i := range d.Events {
		c.completions = c.completions || d.Events[i].Action == trace.ActionFreeCompleted
	}
	for _, s := range d.Initial {
		for _, b := range s.Blocks {
			c.open(b.Address, b.Requested)
			if b.State == trace.BlockPendingFree {
				c.request(b.Address, 0)
			}
		}
	}
	for i, e := range d.Events {
		switch e.Action {
		case trace.ActionAlloc:
			c.open(e.Addr, e.Size)
		case trace.ActionFreeRequested:
			c.request(e.Addr, i)
		case trace.ActionFreeCompleted:
			c.complete(e.Addr, i)
		}
		c.allocated.tick(&allocated)
		c.active.tick(&active)
	}
	return allocated, active
}

func (c *counter) open(addr uint64, size trace.Bytes) {
	for size%512 != 0 || size == 0 {
		size++
	}
	c.sizes[addr], c.requested[addr] = size, false
	c.allocated.now += size
	c.active.now += size
}

func (c *counter) request(addr uint64, at int) {
	c.requested[addr] = true
	c.allocated.drop(c.sizes[addr], at)
	if !c.completions {
		c.active.drop(c.sizes[addr], at)
	}
}

func (c *counter) complete(addr uint64, at int) {
	if !c.requested[addr] {
		c.allocated.drop(c.sizes[addr], at)
	}
	c.active.drop(c.sizes[addr], at)
}

// TestLoadIsARunningCounter compares the profile from ranges with the counter,
// on random recordings of every combination of kinds.
func TestLoadIsARunningCounter(t *testing.T) {
	forRandom(t, func(t *testing.T, d *trace.Device, tl *Timeline) {
		allocated, active := countLive(d)
		if got := tl.Load(EndRequested); !slices.Equal(got, allocated) {
			t.Fatalf("load to the requested end is\n%v, counted\n%v", got, allocated)
		}
		if got := tl.Load(EndCompleted); !slices.Equal(got, active) {
			t.Fatalf("load to the completed end is\n%v, counted\n%v", got, active)
		}
		if tl.PeakAllocated.Bytes != slices.Max(allocated) || allocated[tl.PeakAllocated.At] != tl.PeakAllocated.Bytes {
			t.Fatalf("peak allocated %v of %v", tl.PeakAllocated, allocated)
		}
		if tl.PeakActive.Bytes != slices.Max(active) || active[tl.PeakActive.At] != tl.PeakActive.Bytes {
			t.Fatalf("peak active %v of %v", tl.PeakActive, active)
		}
	})
}

// TestMostDuring compares the largest load of each life with the loads of that time.
func TestMostDuring(t *testing.T) {
	forRandom(t, func(t *testing.T, _ *trace.Device, tl *Timeline) {
		for _, end := range bothEnds {
			load := tl.Load(end)
			from := len(tl.Buffers) / 3
			for i, most := range load.mostDuring(tl.Buffers[from:], end) {
				b := &tl.Buffers[from+i]
				if want := slices.Max(load[b.Start:b.Until(end)]); most != want {
					t.Fatalf("buffer %d lives [%d, %d): %d B at most, expected %d", from+i, b.Start, b.Until(end), most, want)
				}
			}
		}
	})
}

// TestRangesAreWellFormed checks the promises of Buffer and Timeline.
func TestRangesAreWellFormed(t *testing.T) {
	forRandom(t, func(t *testing.T, d *trace.Device, tl *Timeline) {
		for i, b := range tl.Buffers {
			if b.Start >= b.RequestedEnd || b.RequestedEnd > b.CompletedEnd || b.CompletedEnd > tl.Events {
				t.Fatalf("buffer %d lives [%d, %d, %d) of %d events", i, b.Start, b.RequestedEnd, b.CompletedEnd, tl.Events)
			}
			if b.Resident && b.RequestedEnd != tl.Events || b.Initial && b.Start != 0 {
				t.Fatalf("buffer %d: %+v", i, b)
			}
			if b.Size%512 != 0 || b.Size < max(512, b.Requested) || b.Size >= max(1, b.Requested)+512 {
				t.Fatalf("buffer %d: %d B requested, %d B aligned", i, b.Requested, b.Size)
			}
			if !b.Initial && (d.Events[b.Start].Addr != b.Addr || d.Events[b.Start].Action != trace.ActionAlloc) {
				t.Fatalf("buffer %d starts at no alloc", i)
			}
		}
		byStart := func(x, y Buffer) int {
			if x.Initial && y.Initial {
				return cmp.Compare(x.Addr, y.Addr)
			}
			if x.Initial != y.Initial {
				return map[bool]int{true: -1, false: 1}[x.Initial]
			}
			return cmp.Compare(x.Start, y.Start)
		}
		if !slices.IsSortedFunc(tl.Buffers, byStart) {
			t.Fatalf("out of order: %+v", tl.Buffers)
		}
	})
}

// TestIrrelevantChanges permutes the initial state, renames addresses and puts events of
// other kinds in front. Live ranges only shift.
func TestIrrelevantChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	forRandom(t, func(t *testing.T, d *trace.Device, tl *Timeline) {
		shuffled := *d
		shuffled.Initial = slices.Clone(d.Initial)
		r.Shuffle(len(shuffled.Initial), func(i, j int) {
			shuffled.Initial[i], shuffled.Initial[j] = shuffled.Initial[j], shuffled.Initial[i]
		})
		if got := build(t, &shuffled); !reflect.DeepEqual(got, tl) {
			t.Fatal("the order of the initial segments matters")
		}

		const shift = 3
		moved := &trace.Device{Initial: slices.Clone(d.Initial), Events: append(make([]trace.Event, shift), d.Events...)}
		for i := range moved.Events {
			moved.Events[i].Addr += 1 << 40
		}
		for i := range moved.Initial {
			moved.Initial[i].Blocks = slices.Clone(moved.Initial[i].Blocks)
			moved.Initial[i].Blocks[0].Address += 1 << 40
		}
		got := build(t, moved)
		for i, b := range got.Buffers {
			was := tl.Buffers[i]
			if b.Addr != was.Addr+1<<40 || !b.Initial && (b.Start != was.Start+shift || b.RequestedEnd != was.RequestedEnd+shift) || b.Size != was.Size || b.Resident != was.Resident {
				t.Fatalf("buffer %d became %+v from %+v", i, b, was)
			}
		}
	})
}

func forRandom(t *testing.T, check func(*testing.T, *trace.Device, *Timeline)) {
	for seed := range uint64(200) {
		for _, k := range allKinds {
			r := rand.New(rand.NewPCG(seed, 1))
			d := randomDevice(r, 1+r.IntN(60), k)
			t.Run(fmt.Sprintf("seed=%d/%v", seed, k), func(t *testing.T) { check(t, d, build(t, d)) })
		}
	}
}

func build(t testing.TB, d *trace.Device) *Timeline {
	tl, err := Build(d)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

// TestTooMuchAtOnce reaches maxLoad.
func TestTooMuchAtOnce(t *testing.T) {
	d := &trace.Device{}
	for i := range uint64(1<<14 + 1) {
		d.Events = append(d.Events, trace.Event{Action: trace.ActionAlloc, Addr: i, Size: 1 << 48})
	}
	_, err := Build(d)
	want := "device 0: entry 16384: more than 4611686018427387904 bytes live at once"
	if err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}
