package lifespan

import (
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// failing is a device whose recording ends in a request of this many bytes that fails,
// with one buffer of 4 KiB live and one of 1 KiB freed before; survived puts an
// allocation after the failure.
func failing(request trace.Bytes, survived bool) *trace.Device {
	d := &trace.Device{Events: []trace.Event{
		{Action: trace.ActionAlloc, Addr: 0x1000, Size: 1024},
		{Action: trace.ActionAlloc, Addr: 0x2000, Size: 4096},
		{Action: trace.ActionFreeRequested, Addr: 0x1000, Size: 1024},
		{Action: trace.ActionFreeCompleted, Addr: 0x1000, Size: 1024},
		{Action: trace.ActionOOM, Addr: 0x2000, Size: request, Stream: 7}, // the address is what the driver had free
	}}
	if survived {
		d.Events = append(d.Events, trace.Event{Action: trace.ActionAlloc, Addr: 0x1000, Size: 512})
	}
	d.Events = append(d.Events,
		trace.Event{Action: trace.ActionFreeRequested, Addr: 0x2000, Size: 4096},
		trace.Event{Action: trace.ActionFreeCompleted, Addr: 0x2000, Size: 4096})
	return d
}

// TestFailedRequest: the request that a recording ends in is a buffer that lives for the
// event at which it failed, beside what is live then; one that the program survived is
// none.
func TestFailedRequest(t *testing.T) {
	tl, err := Build(failing(10_000, false))
	if err != nil {
		t.Fatal(err)
	}
	want := Buffer{Start: 4, RequestedEnd: 5, CompletedEnd: 5, Requested: 10_000, Size: 10_240, Stream: 7, Failed: true}
	if f := tl.Failed(); f == nil || *f != want {
		t.Errorf("the failed request is %+v, expected %+v", f, want)
	}
	if want := (Peak{Bytes: 4096 + 10_240, At: 4}); tl.PeakAllocated != want || tl.PeakActive != want || len(tl.Buffers) != 3 {
		t.Errorf("peaks %+v and %+v of %d buffers, expected %+v of 3", tl.PeakAllocated, tl.PeakActive, len(tl.Buffers), want)
	}
	if tl, err = Build(failing(10_000, true)); err != nil || tl.Failed() != nil || tl.PeakAllocated.Bytes != 1024+4096 {
		t.Errorf("survived: %v, failed %v, peak %+v; expected none and 5120 B", err, tl.Failed(), tl.PeakAllocated)
	}
	if _, err = Build(failing(1<<49, false)); err == nil {
		t.Error("a request of 2^49 B was accepted")
	}
}
