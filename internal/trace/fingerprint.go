package trace

import (
	"crypto/sha256"
	"encoding/binary"
)

// The beginnings of what fingerprints hash. With them, no hash of other data can equal a
// fingerprint, nor a fingerprint of one kind one of the other.
const (
	programDomain = "stplan program 1\n"
	eventsDomain  = "stplan events 1\n"
)

// fingerprintRecord is the length of one event in what fingerprints hash, in bytes.
const fingerprintRecord = 1 + 8 + 8 + 8

// beforeRecording is added to the numbers of blocks that no recorded event allocated, so
// that they differ from every index of an event.
const beforeRecording = uint64(1) << 63

// Fingerprint is the SHA-256 of the program that the device's events are, byte by byte as
// docs/trace.md says: each event's action and size in order, with a free named by the event
// that allocated the block, and a stream by when it was first used. Addresses and stream
// handles do not count, so two processes that do the same have one fingerprint. Nor do
// times, stacks, annotations and segments' places.
func (d *Device) Fingerprint() [32]byte {
	held := make(map[uint64]uint64, 1024) // by address: the block that is there, or was last
	streams := make(map[uint64]uint64, 8) // by handle: the stream's number
	before := beforeRecording             // the next block that no event allocated
	return d.hash(programDomain, func(i int, e *Event) (what, stream uint64) {
		switch e.Action {
		case ActionAlloc:
			held[e.Addr] = uint64(i)
		case ActionFreeRequested, ActionFreeCompleted:
			block, ok := held[e.Addr]
			if !ok {
				block = before
				held[e.Addr] = block
				before++
			}
			what = block
		case ActionOOM:
			what = e.Addr // what the driver had free, which is no address
		}
		stream, ok := streams[e.Stream]
		if !ok {
			stream = uint64(len(streams))
			streams[e.Stream] = stream
		}
		return what, stream
	})
}

// EventsFingerprint is the SHA-256 of the device's events with their addresses and stream
// handles, by which plans named their recording before Fingerprint left these out.
func (d *Device) EventsFingerprint() [32]byte {
	return d.hash(eventsDomain, func(_ int, e *Event) (what, stream uint64) { return e.Addr, e.Stream })
}

// HasFingerprint says whether a plan of this fingerprint was made from these events, or from
// those of a process that did the same.
func (d *Device) HasFingerprint(f [32]byte) bool {
	return f == d.Fingerprint() || f == d.EventsFingerprint()
}

// hash is the SHA-256 of a domain, the number of events, and of each its action, what name
// gives for it, and its size.
func (d *Device) hash(domain string, name func(i int, e *Event) (what, stream uint64)) [32]byte {
	h := sha256.New()
	h.Write([]byte(domain))
	buf := binary.LittleEndian.AppendUint64(make([]byte, 0, 1024*fingerprintRecord), uint64(len(d.Events)))
	for i := range d.Events {
		if len(buf)+fingerprintRecord > cap(buf) {
			h.Write(buf)
			buf = buf[:0]
		}
		e := &d.Events[i]
		what, stream := name(i, e)
		buf = append(buf, byte(e.Action))
		buf = binary.LittleEndian.AppendUint64(buf, what)
		buf = binary.LittleEndian.AppendUint64(buf, uint64(e.Size))
		buf = binary.LittleEndian.AppendUint64(buf, stream)
	}
	h.Write(buf)
	return [32]byte(h.Sum(nil))
}
