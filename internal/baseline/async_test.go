package baseline

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// driverRow is a row of a log of the driver's pool: one operation, and what was reserved
// and used after it.
type driverRow struct {
	op             string // s and a: allocated; f: freed; y: waited for the device; e: trimmed
	size           trace.Bytes
	addr           uint64
	reserved, used trace.Bytes
}

// readDriverLog reads a list of rows. Some f rows have no address: all but the largest block
// were freed.
func readDriverLog(t *testing.T, path string) (rows []driverRow) {
	t.Helper()
	for _, r := range readRows(t, path) {
		n := make([]uint64, len(r)-1)
		for i, v := range r[1:] {
			n[i] = uint64(v.(float64))
		}
		last := len(n) - 1
		row := driverRow{op: r[0].(string), reserved: trace.Bytes(n[last-1]), used: trace.Bytes(n[last])}
		switch {
		case len(n) == 4:
			row.size, row.addr = trace.Bytes(n[0]), n[1]
		case len(n) == 3:
			row.addr = n[0]
		}
		rows = append(rows, row)
	}
	return rows
}

// asyncReplay follows a log.
type asyncReplay struct {
	a    *async
	live map[uint64]int32 // by the driver's address
	used trace.Bytes
	size map[uint64]trace.Bytes
}

func (r *asyncReplay) free(addr uint64) {
	r.a.Free(r.live[addr])
	r.a.Complete(r.live[addr])
	delete(r.live, addr)
	r.used -= r.size[addr]
}

// settle frees blocks until only what the log says is used.
func (r *asyncReplay) settle(used trace.Bytes) {
	for addr := range r.live {
		if r.used-r.size[addr] >= used {
			r.free(addr)
		}
	}
}

func (r *asyncReplay) row(n int, row driverRow) {
	switch row.op {
	case "s", "a":
		r.settle(row.used - row.size)
		r.a.Alloc(int32(n), Request{Size: row.size})
		r.live[row.addr], r.size[row.addr] = int32(n), row.size
		r.used += row.size
	case "f":
		if row.addr != 0 {
			r.free(row.addr)
		}
		r.settle(row.used)
	case "e":
		r.a.EmptyCache(nil)
	}
}

// TestAsyncIsTheDriverNearly replays what the driver of an H200 did and compares what it
// reserved: exactly in the first operations, in which nothing is reused, and on average and
// at the peak within the band that is shown.
func TestAsyncIsTheDriverNearly(t *testing.T) {
	rows := readDriverLog(t, filepath.Join(sharedTraces(t), "sim", "e.log.json.gz"))
	r := asyncReplay{a: newAsync(addressSpace, len(rows)), live: map[uint64]int32{}, size: map[uint64]trace.Bytes{}}
	var sum float64
	var peak trace.Bytes
	n := 0
	for i, row := range rows {
		r.row(i, row)
		if r.used != row.used {
			t.Fatalf("row %d: %d B used, the log has %d", i, r.used, row.used)
		}
		got := r.a.Stats().Reserved
		if row.op != "a" && i < 10 && got != row.reserved {
			t.Errorf("row %d: %d B reserved, the driver %d", i, got, row.reserved)
		}
		if row.op == "a" {
			sum += math.Abs(float64(got)/float64(row.reserved) - 1)
			n++
		}
		peak = max(peak, row.reserved)
	}
	mean, at := sum/float64(n), float64(r.a.stats.PeakReserved)/float64(peak)-1
	t.Logf("%d requests: off by %.1f %% on average, by %.1f %% at the peak of %d MiB", n, 100*mean, 100*at, peak/mib)
	if mean > 0.04 || math.Abs(at) > asyncError || n < 1000 {
		t.Errorf("off by %.3f on average and %.3f at the peak in %d requests", mean, at, n)
	}
}

// TestAsyncByHand has sizes and figures that the driver gave, and after it what the model
// adds: who may have what was freed.
func TestAsyncByHand(t *testing.T) {
	a := newAsync(addressSpace, 64)
	next := int32(0)
	alloc := func(size trace.Bytes, stream uint64, addr uint64, reserved trace.Bytes) int32 {
		t.Helper()
		next++
		if !a.Alloc(next, Request{Size: size, Stream: stream}) {
			t.Fatal("out of memory")
		}
		if got := a.live[next].addr; got != addr || a.stats.Reserved != reserved*mib {
			t.Errorf("%d B at %d and %d B reserved, expected %d and %d MiB", size, got, a.stats.Reserved, addr, reserved)
		}
		return next
	}
	end := func(b int32) { a.Free(b); a.Complete(b) }
	first := []int32{alloc(1, 0, 0, 32), alloc(513, 0, 512, 32), alloc(mib, 0, 1536, 32), alloc(3*mib, 0, 1536+1<<20, 32),
		alloc(20*mib, 0, 1536+4<<20, 32), alloc(40*mib, 0, 1536+24<<20, 96)}
	last := alloc(200*mib, 0, 1536+64<<20, 288)
	for _, b := range first {
		end(b)
	}
	a.EmptyCache(nil)
	if a.stats.Reserved != 224*mib { // the chunks under the last block
		t.Errorf("%d MiB after the trim", a.stats.Reserved/mib)
	}
	b := alloc(20*mib, 0, 0, 256) // the hole before it has no memory now
	end(b)
	c := alloc(20*mib, 7, 20<<20, 288) // another stream does not have it at once
	end(last)
	alloc(20*mib, 7, 0, 288) // but after another free
	end(c)
	alloc(230*mib, 7, 20<<20, 288) // and a stream has its own at once
}

// naiveAsync has a cell of 512 B for each address, up to the end of the last block.
type naiveAsync struct {
	cells  []int32 // the buffer, -1 for none
	backed map[int]bool
	latest int32 // the buffer that was freed last, if its cells are still its
	stream uint64
}

func (n *naiveAsync) settle() {
	for i, b := range n.cells {
		if b == n.latest && b >= 0 {
			n.cells[i] = -1
		}
	}
	n.latest = -1
}

// place is the first cell of the smallest run of free cells that is long enough.
func (n *naiveAsync) place(cells int) int {
	best, most, run := -1, len(n.cells)+1, 0
	for i := 0; i <= len(n.cells); i++ {
		if i < len(n.cells) && n.cells[i] == -1 {
			run++
			continue
		}
		if run >= cells && run < most {
			best, most = i-run, run
		}
		if i < len(n.cells) {
			run = 0
		}
	}
	if best < 0 {
		return len(n.cells) - run
	}
	return best
}

func (n *naiveAsync) alloc(buffer int32, size trace.Bytes, stream uint64) int {
	if n.latest >= 0 && n.stream == stream {
		n.settle()
	}
	cells := int((size + 511) / 512)
	at := n.place(cells)
	for len(n.cells) < at+cells {
		n.cells = append(n.cells, -1)
	}
	for i := at; i < at+cells; i++ {
		n.cells[i] = buffer
		n.backed[i*512/int(asyncChunk)] = true
	}
	return at
}

func (n *naiveAsync) trim() {
	n.settle()
	n.backed = map[int]bool{}
	for i, b := range n.cells {
		if b >= 0 {
			n.backed[i*512/int(asyncChunk)] = true
		}
	}
}

// TestAsyncIsTheNaiveOne plays random programs on the model and on one that has a cell for
// each 512 B, and expects the same addresses and reserved memory.
func TestAsyncIsTheNaiveOne(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 9))
		a, n := newAsync(addressSpace, 200), &naiveAsync{backed: map[int]bool{}, latest: -1}
		var live []int32
		for b := range int32(200) {
			switch k := r.IntN(100); {
			case k < 60 || len(live) == 0:
				q := Request{Size: 1 + trace.Bytes(r.Int64N(int64(mib)<<r.IntN(5))), Stream: uint64(r.IntN(2))}
				a.Alloc(b, q)
				if want := n.alloc(b, q.Size, q.Stream); a.live[b].addr != uint64(want)*512 {
					t.Fatalf("seed %d, request %d: at %d, reference %d", seed, b, a.live[b].addr, want*512)
				}
				live = append(live, b)
			case k < 98:
				i := r.IntN(len(live))
				n.settle()
				n.latest, n.stream = live[i], a.live[live[i]].stream
				a.Free(live[i])
				a.Complete(live[i])
				live = slices.Delete(live, i, i+1)
			default:
				a.EmptyCache(nil)
				n.trim()
			}
			if want := trace.Bytes(len(n.backed)) * asyncChunk; a.stats.Reserved != want {
				t.Fatalf("seed %d, operation %d: %d B reserved, reference %d", seed, b, a.stats.Reserved, want)
			}
		}
	}
}

// TestAsyncRunsOut: on a card that is full a request fails, takes nothing, and is served
// once memory is free. What is cached is not given back for it.
func TestAsyncRunsOut(t *testing.T) {
	a := newAsync(100*mib, 8)
	if !a.Alloc(0, Request{Size: 60 * mib}) || a.Alloc(1, Request{Size: 40 * mib}) || a.stats.Reserved != 64*mib {
		t.Fatalf("%d B reserved", a.stats.Reserved)
	}
	a.Free(0)
	if a.Alloc(2, Request{Size: 60 * mib}) {
		t.Error("a block whose free is pending was given away")
	}
	a.Complete(0)
	a.Refuse(3, Request{Size: 90 * mib})
	if !a.Alloc(4, Request{Size: 96 * mib}) || a.stats.Reserved != 96*mib || a.Alloc(5, Request{Size: 1}) {
		t.Errorf("%d B reserved", a.stats.Reserved)
	}
}
