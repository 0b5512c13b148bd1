package trace

import (
	"crypto/sha256"
	"encoding/binary"
)

// fingerprintDomain is the beginning of what Fingerprint hashes. With it, no hash of
// other data can equal a fingerprint, and a later rule can use another text.
const fingerprintDomain = "stplan events 1\n"

// fingerprintRecord is the length of one event in what Fingerprint hashes, in bytes.
const fingerprintRecord = 1 + 8 + 8 + 8

// Fingerprint is the SHA-256 of the device's events: action, address, size and
// stream of each in order, byte by byte as docs/trace.md says. It names what the
// allocator did, not the file: a snapshot and its import have the same fingerprint.
// Times, stacks, annotations and segments do not count.
func (d *Device) Fingerprint() [32]byte {
	h := sha256.New()
	h.Write([]byte(fingerprintDomain))
	buf := binary.LittleEndian.AppendUint64(make([]byte, 0, 1024*fingerprintRecord), uint64(len(d.Events)))
	for i := range d.Events {
		if len(buf)+fingerprintRecord > cap(buf) {
			h.Write(buf)
			buf = buf[:0]
		}
		e := &d.Events[i]
		buf = append(buf, byte(e.Action))
		buf = binary.LittleEndian.AppendUint64(buf, e.Addr)
		buf = binary.LittleEndian.AppendUint64(buf, uint64(e.Size))
		buf = binary.LittleEndian.AppendUint64(buf, e.Stream)
	}
	h.Write(buf)
	return [32]byte(h.Sum(nil))
}
