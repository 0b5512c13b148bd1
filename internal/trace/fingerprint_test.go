package trace

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"
)

// TestFingerprintValue fixes the value: plans name traces by it, so it may never
// change. It was computed with Python:
//
//	hashlib.sha256(b"stplan events 1\n" + struct.pack("<Q", 2)
//	    + struct.pack("<BQqQ", 1, 0x7f0000000000, 1000, 7)
//	    + struct.pack("<BQqQ", 2, 0x7f0000000000, 1000, 7)).hexdigest()
func TestFingerprintValue(t *testing.T) {
	d := Device{Events: []Event{
		{Action: ActionAlloc, Addr: 0x7f0000000000, Size: 1000, Stream: 7, TimeUS: 5, Stack: 3, Pool: 1},
		{Action: ActionFreeRequested, Addr: 0x7f0000000000, Size: 1000, Stream: 7, TimeUS: 6, Stack: None, UserMetadata: 9},
	}}
	got := d.Fingerprint()
	const want = "18aed83c7c505099e2674b5360d1447a548b5e3cbc1ea56075c5cedf6bbf3393"
	if hex.EncodeToString(got[:]) != want {
		t.Errorf("fingerprint %x, want %s", got, want)
	}
}

// A change of any field that counts changes the fingerprint; no other change does.
func TestFingerprintFields(t *testing.T) {
	d := randomTrace(5, 3000).Devices[0]
	base := d.Fingerprint()
	e := &d.Events[len(d.Events)/2]
	for name, change := range map[string]func(){
		"action": func() { e.Action++ }, "addr": func() { e.Addr++ }, "size": func() { e.Size++ }, "stream": func() { e.Stream++ },
		"one fewer": func() { d.Events = d.Events[:len(d.Events)-1] },
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

// The hash of all bytes at once, as docs/trace.md describes them.
func TestFingerprintWhole(t *testing.T) {
	d := randomTrace(6, 3000).Devices[0]
	all := binary.LittleEndian.AppendUint64([]byte("stplan events 1\n"), uint64(len(d.Events)))
	for _, e := range d.Events {
		all = append(all, byte(e.Action))
		for _, v := range []uint64{e.Addr, uint64(e.Size), e.Stream} {
			all = binary.LittleEndian.AppendUint64(all, v)
		}
	}
	if sha256.Sum256(all) != d.Fingerprint() {
		t.Error("the hash of all bytes at once differs")
	}
}
