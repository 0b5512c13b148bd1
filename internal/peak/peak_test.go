package peak

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// readRecording reads the recording of one device.
func readRecording(t *testing.T, path string) *Recording {
	t.Helper()
	tr, err := trace.ReadFile(path, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Read(tr, &tr.Devices[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// recordings are small recordings of real jobs: some run out of memory, one begins in
// the middle, one has delayed frees.
func recordings(t *testing.T) map[string]*Recording {
	t.Helper()
	files, _ := filepath.Glob("../../examples/*/*.pickle.gz")
	corners, _ := filepath.Glob("../baseline/testdata/corners/*.pickle.gz")
	if len(files) < 5 || len(corners) < 9 {
		t.Fatalf("%d examples and %d corners, expected at least 5 and 9", len(files), len(corners))
	}
	out := map[string]*Recording{}
	for _, f := range append(files, corners...) {
		if filepath.Base(f) != "base0.pickle.gz" { // it has no events
			out[filepath.Base(f)] = readRecording(t, f)
		}
	}
	return out
}

// heldAt counts what is live after an event, straight from the entries.
func heldAt(d *trace.Device, at int) (allocated, pending trace.Bytes) {
	live, freed := map[uint64]trace.Bytes{}, map[uint64]trace.Bytes{}
	completes := false
	for i := range d.Events {
		completes = completes || d.Events[i].Action == trace.ActionFreeCompleted
	}
	for _, s := range d.Initial {
		for _, b := range s.Blocks {
			switch b.State {
			case trace.BlockAllocated:
				live[b.Address] = trace.RoundUp(b.Requested)
			case trace.BlockPendingFree:
				freed[b.Address] = trace.RoundUp(b.Requested)
			}
		}
	}
	for i := range d.Events[:at+1] {
		switch e := &d.Events[i]; e.Action {
		case trace.ActionAlloc:
			live[e.Addr] = trace.RoundUp(e.Size)
		case trace.ActionFreeRequested:
			if size, ok := live[e.Addr]; ok && completes {
				freed[e.Addr] = size
			}
			delete(live, e.Addr)
		case trace.ActionFreeCompleted:
			delete(live, e.Addr)
			delete(freed, e.Addr)
		}
	}
	for _, n := range live {
		allocated += n
	}
	for _, n := range freed {
		pending += n
	}
	return allocated, pending
}

// TestSums: at any instant what is live is what a count of the entries gives, and every
// way to group it adds up to it.
func TestSums(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, r := range recordings(t) {
		instants := []trace.Time{Auto, r.Timeline.PeakAllocated.At, r.Timeline.Events - 1}
		for range 4 {
			// At the first entries a free that was pending when recording began is in
			// its own state.
			instants = append(instants, 2+trace.Time(random.Int64N(int64(r.Timeline.Events)-2)))
		}
		for _, at := range instants {
			p, err := r.At(at)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			where := fmt.Sprintf("%s at %d", name, p.Moment.At)
			allocated, pending := heldAt(r.Device, int(p.Moment.At))
			if p.Allocated != allocated || p.Pending != pending {
				t.Errorf("%s: %d B allocated and %d B pending, expected %d and %d", where, p.Allocated, p.Pending, allocated, pending)
			}
			checkSum(t, where+" by category", p.Allocated, p.ByCategory())
			checkSum(t, where+" by rule", p.Allocated, p.ByRule())
			checkSum(t, where+" by phase", p.Allocated, p.ByPhase())
			checkSum(t, where+" by line", p.Allocated, r.ByLine(p))
			checkSum(t, where+" by module", p.Allocated, r.ByModule(p))
			checkSum(t, where+" folded", p.Allocated, folded(t, r, p))
			checkMemory(t, where, p)
		}
	}
}

func checkSum[K comparable](t *testing.T, what string, want trace.Bytes, groups []Group[K]) {
	t.Helper()
	var sum, categories trace.Bytes
	for i := range groups {
		sum += groups[i].Bytes
		for _, n := range groups[i].In {
			categories += n
		}
		if i > 0 && groups[i].Bytes > groups[i-1].Bytes {
			t.Errorf("%s: group %d is larger than the one before it", what, i)
		}
		if groups[i].Sure > groups[i].Bytes || groups[i].Largest > groups[i].Bytes || groups[i].Count == 0 {
			t.Errorf("%s: %+v", what, groups[i])
		}
	}
	if sum != want || len(groups) > 0 && groups[0].In != [int(Unknown) + 1]trace.Bytes{} && categories != want {
		t.Errorf("%s: %d B, by category %d B, expected %d", what, sum, categories, want)
	}
}

// folded reads folded stacks back: a stack, a blank, a number.
func folded(t *testing.T, r *Recording, p *Peak) []Group[string] {
	t.Helper()
	var out bytes.Buffer
	if err := r.WriteFolded(&out, p); err != nil {
		t.Fatal(err)
	}
	all := Group[string]{Count: 1}
	for line := range strings.Lines(out.String()) {
		at := strings.LastIndexByte(line, ' ')
		n, err := strconv.ParseInt(strings.TrimSuffix(line[at+1:], "\n"), 10, 64)
		if err != nil || at < 1 {
			t.Fatalf("folded line %q: %v", line, err)
		}
		all.Bytes += trace.Bytes(n)
	}
	return []Group[string]{all}
}

// checkMemory: segments and what is in them add up.
func checkMemory(t *testing.T, where string, p *Peak) {
	t.Helper()
	var reserved, held trace.Bytes
	blocks := 0
	for _, s := range p.Memory.Segments {
		reserved += s.Size
		held += s.Held
		blocks += len(s.Blocks)
		if s.Held+s.Slack+s.FreeBytes() != s.Size {
			t.Errorf("%s: segment at %#x: %d B held, %d slack and %d free of %d", where, s.Address, s.Held, s.Slack, s.FreeBytes(), s.Size)
		}
	}
	if reserved != p.Memory.Reserved {
		t.Errorf("%s: segments of %d B, reserved %d", where, reserved, p.Memory.Reserved)
	}
	if held != p.Allocated+p.Pending || blocks != len(p.Live) {
		t.Errorf("%s: %d B in %d blocks of segments, %d B in %d buffers live", where, held, blocks, p.Allocated+p.Pending, len(p.Live))
	}
	f := p.Memory.FreeFor(LargeRequest, 0)
	if f.Total() != reserved-held || f.Empty > f.Usable || f.Largest > f.Usable {
		t.Errorf("%s: free %+v, expected %d B", where, f, reserved-held)
	}
}
