package replay

import (
	"errors"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// scripted is an allocator with fixed answers: the k-th allocation gets the k-th address.
type scripted struct {
	addresses  []uint64
	operations map[int][]Operation // by the number of earlier calls of Malloc and Free
	calls      int
	now        []Operation
	recorded   int
}

func (s *scripted) call() {
	s.now = append(s.now, s.operations[s.calls]...)
	s.calls++
}

func (s *scripted) Malloc(uint64, uint64) (uint64, int, error) {
	s.call()
	if len(s.addresses) == 0 {
		return 0, 0, errors.New("no more")
	}
	a := s.addresses[0]
	s.addresses = s.addresses[1:]
	return a, 0, nil
}

func (s *scripted) Free(uint64, uint64) error { s.call(); return nil }

func (s *scripted) RecordStream(uint64, uint64) error { s.recorded++; return nil }

func (s *scripted) Operations(into []Operation) []Operation {
	into = append(into, s.now...)
	s.now = nil
	return into
}

// job has four buffers: a lives in events [0, 2) and its free completes at 6; b, on
// another stream, lives from 3 to 8; c, on a's stream, from 4; d, on a's stream, from
// 7.
func job() *lifespan.Timeline {
	const size = 1 << 20
	return &lifespan.Timeline{Events: 10, Buffers: []lifespan.Buffer{
		{Start: 0, RequestedEnd: 2, CompletedEnd: 6, Requested: size, Size: size},
		{Start: 3, RequestedEnd: 8, CompletedEnd: 9, Requested: size, Size: size, Stream: 5},
		{Start: 4, RequestedEnd: 10, CompletedEnd: 10, Requested: 1, Size: 512, Resident: true},
		{Start: 7, RequestedEnd: 10, CompletedEnd: 10, Requested: size, Size: size, Resident: true},
	}}
}

// TestJudge gives the buffers of job addresses and waits, and checks the verdict. The
// calls are: a, free of a, b, c, d, free of b.
func TestJudge(t *testing.T) {
	const mib = 1 << 20
	p := NewProgram(job())
	if !p.Requests[0].Pending || p.Requests[1].Pending {
		t.Fatalf("pending: %v and %v, expected a's free alone", p.Requests[0].Pending, p.Requests[1].Pending)
	}
	other := side(p.Requests)
	cases := []struct {
		name       string
		addresses  []uint64
		operations map[int][]Operation
		overlaps   int
		first      string
	}{
		{"all apart", []uint64{0, mib, 2 * mib, 3 * mib}, nil, 0, ""},
		{"one block inside another", []uint64{0, mib, 2*mib - 512, 3 * mib}, nil, 1, "which is live"},
		{"a block over the end of two", []uint64{0, mib, 3 * mib, 3*mib - 512}, nil, 1, "which is live"},
		{"pending memory, no wait", []uint64{0, mib, 512, 3 * mib}, nil, 1, "still use"},
		{"pending memory after its completion", []uint64{0, mib, 2 * mib, 0}, nil, 0, ""},
		{"pending memory after a wait", []uint64{0, mib, 0, 3 * mib}, map[int][]Operation{
			1: {{Kind: Record, Stream: other, Event: 1}}, 3: {{Kind: Wait, Stream: 0, Event: 1}}}, 0, ""},
		{"pending memory after a wait for the device", []uint64{0, mib, 0, 3 * mib}, map[int][]Operation{
			1: {{Kind: RecordWhole, Stream: 0, Event: 1}}, 3: {{Kind: Wait, Stream: 0, Event: 1}}}, 0, ""},
		{"a wait for an event from before the free", []uint64{0, mib, 0, 3 * mib}, map[int][]Operation{
			0: {{Kind: Record, Stream: other, Event: 1}}, 3: {{Kind: Wait, Stream: 0, Event: 1}}}, 1, "still use"},
		{"a wait of another stream", []uint64{0, mib, 0, 3 * mib}, map[int][]Operation{
			1: {{Kind: Record, Stream: other, Event: 1}}, 3: {{Kind: Wait, Stream: 5, Event: 1}}}, 1, "still use"},
		{"a wait for an event that was never recorded", []uint64{0, mib, 0, 3 * mib}, map[int][]Operation{
			3: {{Kind: Wait, Stream: 0, Event: 1}}}, 1, "still use"},
		{"another stream's memory, no wait for it", []uint64{0, 0, 2 * mib, 3 * mib}, map[int][]Operation{
			1: {{Kind: Record, Stream: other, Event: 1}}, 2: {{Kind: Wait, Stream: 5, Event: 1}}}, 1, "still use"},
		{"another stream's memory, both known streams waited for", []uint64{0, 0, 2 * mib, 3 * mib}, map[int][]Operation{
			1: {{Kind: Record, Stream: other, Event: 1}, {Kind: Record, Stream: 0, Event: 2}}, 2: {{Kind: Wait, Stream: 5, Event: 1}, {Kind: Wait, Stream: 5, Event: 2}}}, 1, "still use"},
		{"another stream's memory, the device waited for", []uint64{0, 0, 2 * mib, 3 * mib}, map[int][]Operation{
			1: {{Kind: RecordWhole, Stream: 0, Event: 1}}, 2: {{Kind: Wait, Stream: 5, Event: 1}}}, 0, ""},
		{"another stream's memory, the device from before the free", []uint64{0, 0, 2 * mib, 3 * mib}, map[int][]Operation{
			0: {{Kind: RecordWhole, Stream: 0, Event: 1}}, 2: {{Kind: Wait, Stream: 5, Event: 1}}}, 1, "still use"},
		{"memory freed before the host waited", []uint64{0, 0, 0, 3 * mib}, map[int][]Operation{2: {{Kind: Settled}}}, 1, "which is live"},
		{"pending memory after the host waited", []uint64{0, mib, 0, 3 * mib}, map[int][]Operation{3: {{Kind: Settled}}}, 0, ""},
		{"pending memory, the host waited before the free", []uint64{0, mib, 0, 3 * mib}, map[int][]Operation{0: {{Kind: Settled}}}, 1, "still use"},
		{"pending memory after the host saw an event of the device", []uint64{0, mib, 0, 3 * mib}, map[int][]Operation{
			1: {{Kind: RecordWhole, Stream: 0, Event: 1}}, 3: {{Kind: Done, Stream: 0, Event: 1}}}, 0, ""},
		{"pending memory after the host saw an event of one stream", []uint64{0, mib, 0, 3 * mib}, map[int][]Operation{
			1: {{Kind: Record, Stream: 0, Event: 1}}, 3: {{Kind: Done, Stream: 0, Event: 1}}}, 1, "still use"},
		{"pending memory at another address", []uint64{0, mib, 2 * mib, 3 * mib}, map[int][]Operation{
			2: {{Kind: Carried, From: 0, To: 2 * mib, Bytes: mib}}}, 1, "still use"},
		{"pending memory at another address, the device waited for", []uint64{0, mib, 2 * mib, 3 * mib}, map[int][]Operation{
			1: {{Kind: RecordWhole, Event: 1}}, 2: {{Kind: Carried, From: 0, To: 2 * mib, Bytes: mib}, {Kind: Wait, Stream: 0, Event: 1}}}, 0, ""},
		{"live memory goes to another address", []uint64{0, mib, 2 * mib, 3 * mib}, map[int][]Operation{
			3: {{Kind: Carried, From: mib, To: 3 * mib, Bytes: 512}}}, 1, "which is live"},
		{"memory goes to where another block is live", []uint64{0, mib, 2 * mib, 3 * mib}, map[int][]Operation{
			3: {{Kind: Carried, From: 5 * mib, To: mib, Bytes: 512}}}, 1, "which is live"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := &scripted{addresses: c.addresses, operations: c.operations}
			r, err := Run(p, a)
			if err != nil {
				t.Fatal(err)
			}
			if r.Overlaps != c.overlaps || !strings.Contains(r.First, c.first) {
				t.Errorf("%d overlaps: %s; expected %d, %s", r.Overlaps, r.First, c.overlaps, c.first)
			}
			if a.recorded != 1 {
				t.Errorf("%d streams recorded, expected one, of the delayed free", a.recorded)
			}
		})
	}
}

func TestAllocatorErrorsEndTheRun(t *testing.T) {
	if _, err := Run(NewProgram(job()), &scripted{}); err == nil || !strings.Contains(err.Error(), "entry 0") {
		t.Errorf("%v", err)
	}
}

// TestDisturb: the same seed gives the same program, every request is allocated once and
// freed after that, and about the given share of requests is changed.
func TestDisturb(t *testing.T) {
	tl := &lifespan.Timeline{Events: 20_000}
	for i := range trace.Time(10_000) {
		tl.Buffers = append(tl.Buffers, lifespan.Buffer{Start: 2 * i, RequestedEnd: min(2*i+9, 20_000), CompletedEnd: min(2*i+9, 20_000), Requested: 512, Size: 512})
	}
	p := NewProgram(tl)
	a, b := p.Disturb(0.01, 7), p.Disturb(0.01, 7)
	if len(a.steps) != len(b.steps) {
		t.Fatal("the same seed gives two programs")
	}
	live, injected, original := map[int32]bool{}, 0, 0
	for i, s := range a.steps {
		if s != b.steps[i] {
			t.Fatal("the same seed gives two programs")
		}
		if s.kind == stepAlloc == live[s.request] {
			t.Fatalf("step %d allocates what lives, or frees what does not", i)
		}
		live[s.request] = s.kind == stepAlloc
	}
	for _, q := range a.Requests {
		if q.Original {
			original++
		} else {
			injected++
		}
	}
	if dropped := len(p.Requests) - original; dropped < 10 || dropped > 50 || injected < 20 || injected > 100 {
		t.Errorf("of 10000 requests at 1 %%: %d left out, %d added", dropped, injected)
	}
	if n := len(p.Disturb(0, 1).Requests); n != len(p.Requests) {
		t.Errorf("%d requests at rate 0", n)
	}
}
