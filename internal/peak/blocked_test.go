package peak

import (
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

const mib = 1 << 20

// failing is a device that has a segment of 100 MiB with one block of 40 MiB at its
// start on stream 0, one of 30 MiB on stream 1 that a block of 1 MiB keeps, and a
// request of this many bytes that fails, with driver bytes free.
func failing(t *testing.T, request, driver trace.Bytes) (*Recording, *Peak) {
	t.Helper()
	d := trace.Device{Events: []trace.Event{
		{Action: trace.ActionSegmentAlloc, Addr: 1 << 30, Size: 100 * mib, Stack: trace.None},
		{Action: trace.ActionAlloc, Addr: 1 << 30, Size: 40 * mib, Stack: trace.None},
		{Action: trace.ActionSegmentAlloc, Addr: 2 << 30, Size: 30 * mib, Stream: 1, Stack: trace.None},
		{Action: trace.ActionAlloc, Addr: 2 << 30, Size: 2 * mib, Stream: 1, Stack: trace.None},
		{Action: trace.ActionOOM, Addr: uint64(driver), Size: request, Stack: trace.None},
	}}
	tr := &trace.Trace{Devices: []trace.Device{d}}
	r, err := Read(tr, &tr.Devices[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.At(Auto)
	if err != nil {
		t.Fatal(err)
	}
	return r, p
}

// TestWhy: 60 MiB are free in one piece, 28 MiB on another stream, and the driver has
// more or less.
func TestWhy(t *testing.T) {
	for _, c := range []struct {
		request, driver trace.Bytes
		cause           Cause
		missing         trace.Bytes
	}{
		{88 * mib, 0, CauseFragmented, 0},
		{89 * mib, 0, CauseShort, 1 * mib},
		{100 * mib, 12 * mib, CauseFragmented, 0},
		{100 * mib, 11 * mib, CauseShort, 1 * mib},
		{100 * mib, 99 * mib, CauseFragmented, 0},
		{100 * mib, 100 * mib, CauseLimit, 12 * mib}, // the driver had enough
		{80 * mib, 80 * mib, CauseFragmentedLimit, 0},
		{79*mib + 512, 79*mib + 512, CauseFragmented, 0}, // it asks the driver for 80 MiB
	} {
		_, p := failing(t, c.request, c.driver)
		if cause, missing := p.Why(p.Moment.Failed); cause != c.cause || missing != c.missing {
			t.Errorf("%d B with %d free on the device: cause %d and %d B missing, expected %d and %d", c.request, c.driver, cause, missing, c.cause, c.missing)
		}
	}
}

// TestFreeForAndInTheWay tells what a request can use from what it cannot, and finds the
// block that keeps a segment.
func TestFreeForAndInTheWay(t *testing.T) {
	r, p := failing(t, 88*mib, 0)
	if got, want := p.Memory.FreeFor(88*mib, 0), (Free{Usable: 60 * mib, Largest: 60 * mib, Pieces: 1, OtherStream: 28 * mib}); got != want {
		t.Errorf("free on stream 0: %+v, expected %+v", got, want)
	}
	if got, want := p.Memory.FreeFor(512, 1), (Free{OtherClass: 28 * mib, OtherStream: 60 * mib}); got != want {
		t.Errorf("free for a small request on stream 1: %+v, expected %+v", got, want)
	}
	kept := p.Memory.InTheWay(1)
	if len(kept) != 1 || kept[0].Address != 2<<30 {
		t.Fatalf("in the way on stream 1: %+v", kept)
	}
	holders := r.Holders(p, kept)
	if len(holders) != 1 || holders[0].Free != 28*mib || holders[0].Bytes != 2*mib || holders[0].Since != 3 {
		t.Errorf("holders %+v", holders)
	}
	if kept := p.Memory.InTheWay(0); len(kept) != 1 || kept[0].FreeBytes() != 60*mib {
		t.Errorf("in the way on stream 0: %+v, expected the segment that is 60 %% free", kept)
	}
}
