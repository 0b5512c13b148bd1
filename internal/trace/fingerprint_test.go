package trace

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"
)

// sampleProgram has every rule of the fingerprint: a block that was live before, one address
// with two owners, two streams, a delayed free, and a request that failed.
func sampleProgram() Device {
	return Device{Events: []Event{
		{Action: ActionAlloc, Addr: 0x7f0000000000, Size: 1000, Stream: 7, TimeUS: 5, Stack: 3, Pool: 1},
		{Action: ActionFreeRequested, Addr: 0x100, Size: 64, Stream: 0},
		{Action: ActionFreeRequested, Addr: 0x7f0000000000, Size: 1000, Stream: 7, TimeUS: 6, Stack: None, UserMetadata: 9},
		{Action: ActionFreeCompleted, Addr: 0x100, Size: 64, Stream: 0},
		{Action: ActionFreeCompleted, Addr: 0x7f0000000000, Size: 1000, Stream: 7},
		{Action: ActionSegmentAlloc, Addr: 0x7f1000000000, Size: 2 << 20, Stream: 7},
		{Action: ActionAlloc, Addr: 0x7f0000000000, Size: 500, Stream: 0},
		{Action: ActionOOM, Addr: 4096, Size: 1 << 30, Stream: 7},
		{Action: ActionFreeRequested, Addr: 0x7f0000000000, Size: 500, Stream: 0},
	}}
}

// TestFingerprintValues fixes the values: plans name recordings by them, so they may never
// change. They were computed with Python's hashlib and struct, from the table in
// docs/trace.md: of each event pack("<BQqQ", action, what, size, stream), with what and stream
//
//	program: 0 0, 2^63 1, 0 0, 2^63 1, 0 0, 0 0, 0 1, 4096 0, 6 1
//	events:  the address and the handle
func TestFingerprintValues(t *testing.T) {
	d := sampleProgram()
	for _, c := range []struct {
		name string
		got  [32]byte
		want string
	}{
		{"program", d.Fingerprint(), "e31aace73d351b84ab14a1018f113c4a958c2e92adbead4a44d88ed2f3fd5fad"},
		{"events", d.EventsFingerprint(), "fa45319a26a1f60ee15b3f9a04a1b65fae6e54fdec21cd5ca4bf1111b35e3fee"},
	} {
		if hex.EncodeToString(c.got[:]) != c.want {
			t.Errorf("%s: fingerprint %x, want %s", c.name, c.got, c.want)
		}
		if !d.HasFingerprint(c.got) {
			t.Errorf("%s: the device is said not to have it", c.name)
		}
	}
	if d.HasFingerprint([32]byte{1}) {
		t.Error("the device is said to have any fingerprint")
	}
}

// A change of what the program does changes the fingerprint.
func TestFingerprintFields(t *testing.T) {
	d := randomTrace(5, 3000).Devices[0]
	base := d.Fingerprint()
	e := &d.Events[len(d.Events)/2]
	for name, change := range map[string]func(){
		"action": func() { e.Action++ }, "size": func() { e.Size++ },
		"a stream of its own": func() { e.Stream += 1 << 60 },
		"one fewer":           func() { d.Events = d.Events[:len(d.Events)-1] },
	} {
		saved, events := *e, d.Events
		change()
		if d.Fingerprint() == base {
			t.Errorf("the fingerprint does not depend on: %s", name)
		}
		*e, d.Events = saved, events
	}
	e.TimeUS, e.Stack, e.Pool, d.Annotations, d.Final, d.Ordinal = 77, 0, 0, nil, nil, 9
	if d.Fingerprint() != base {
		t.Error("the fingerprint depends on something else")
	}
}

// Which of two blocks is freed counts, although both events have the same size.
func TestFingerprintOfFrees(t *testing.T) {
	d := Device{Events: []Event{
		{Action: ActionAlloc, Addr: 1 << 20, Size: 512}, {Action: ActionAlloc, Addr: 2 << 20, Size: 512},
		{Action: ActionFreeRequested, Addr: 1 << 20, Size: 512}, {Action: ActionFreeRequested, Addr: 2 << 20, Size: 512},
	}}
	base := d.Fingerprint()
	d.Events[2].Addr, d.Events[3].Addr = d.Events[3].Addr, d.Events[2].Addr
	if d.Fingerprint() == base {
		t.Error("the fingerprint does not say which block is freed")
	}
}

// Another process that does the same has other addresses and handles, and the same
// fingerprint, but for the rule that names addresses.
func TestFingerprintOfAnotherProcess(t *testing.T) {
	d := sampleProgram()
	other := sampleProgram()
	for i := range other.Events {
		e := &other.Events[i]
		if e.Action != ActionOOM {
			e.Addr = ^e.Addr // another order as well
		}
		e.Stream = 1<<40 - e.Stream
	}
	if d.Fingerprint() != other.Fingerprint() {
		t.Error("addresses or handles count")
	}
	if d.EventsFingerprint() == other.EventsFingerprint() {
		t.Error("addresses and handles do not count in the events")
	}
}

// The hash of all bytes at once, as docs/trace.md describes them, for the rule that needs no
// numbering, across the buffer that the hash is fed from.
func TestFingerprintWhole(t *testing.T) {
	d := randomTrace(6, 3000).Devices[0]
	all := binary.LittleEndian.AppendUint64([]byte("stplan events 1\n"), uint64(len(d.Events)))
	for _, e := range d.Events {
		all = append(all, byte(e.Action))
		for _, v := range []uint64{e.Addr, uint64(e.Size), e.Stream} {
			all = binary.LittleEndian.AppendUint64(all, v)
		}
	}
	if sha256.Sum256(all) != d.EventsFingerprint() {
		t.Error("the hash of all bytes at once differs")
	}
}
