package trace

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"io"
)

// historyMagic is the beginning of a history, which the runtime keeps of a process
// (docs/history.md).
const historyMagic = "\x89STPHIS\n"

// HistoryVersion is the newest version of the form that this program reads: it reads those before
// too. historyWithExchanges is the first one that has exchanges, and historyWithFailures the
// first that has requests which got no memory.
const (
	HistoryVersion       = 3
	historyWithExchanges = 2
	historyWithFailures  = 3
)

// maxHistory is the largest history that is read, in bytes: 64 devices, each with what
// the runtime keeps at most.
const maxHistory = 1 << 30

// Lengths in bytes, offsets and limits of docs/history.md.
const (
	historyHeader   = 40
	historyRecord   = 40
	historyDevices  = 64
	historyStreams  = 64
	historyChecksum = 24
	historyStopped  = 1
)

var historySums = crc64.MakeTable(crc64.ECMA)

// ReadHistory reads a history of the runtime; the name is for messages. It reads r to its
// end. If the file is to blame, the error is an *InputError; an error of r itself is
// wrapped. Memory is bounded by a multiple of the file's size.
//
// The addresses of its events are invented: no two live blocks overlap, and what is known
// of the memory ends there.
func ReadHistory(r io.Reader, name string, opt Options) (*Trace, error) {
	h := historyReader{name: name}
	if opt.Base != nil {
		return nil, h.fail(0, "a history begins before the first allocation; a base is only for a memory snapshot")
	}
	if err := h.load(r); err != nil {
		return nil, err
	}
	t, err := h.trace()
	if err != nil {
		return nil, err
	}
	if opt.Progress != nil {
		opt.Progress(int64(len(h.data)), int64(len(h.data)))
	}
	if err := t.validate(opt.AllowNoEvents, entryOf); err != nil {
		return nil, err
	}
	return t, nil
}

// HistoryProgram is a hash of what a history says the program did. Processes with equal
// ones made the same requests in the same order, so a plan of one of them serves all. What
// differs between ranks does not count: the rank, the streams' handles, and the device's
// number if there is only one.
func HistoryProgram(r io.Reader, name string) (sum [32]byte, err error) {
	h := historyReader{name: name}
	if err := h.load(r); err != nil {
		return sum, err
	}
	parts, err := h.parts()
	if err != nil {
		return sum, err
	}
	hash := sha256.New()
	for _, p := range parts {
		if len(parts) == 1 {
			p.ordinal = 0
		}
		fmt.Fprintf(hash, "%d %d %d\n", p.ordinal, len(p.streams), len(p.records))
		hash.Write(p.records)
	}
	return [32]byte(hash.Sum(nil)), nil
}

type historyReader struct {
	name    string
	data    []byte
	version uint32
}

// fail makes an error about a byte of the file.
func (h *historyReader) fail(at int, format string, args ...any) error {
	return &InputError{Name: h.name, Where: fmt.Sprintf("byte %d", at), Problem: fmt.Sprintf(format, args...)}
}

// load reads the file and checks it as a whole: magic, version, length and checksum.
func (h *historyReader) load(r io.Reader) (err error) {
	if h.data, err = io.ReadAll(io.LimitReader(r, maxHistory+1)); err != nil {
		return cannotRead(h.name, err)
	}
	d := h.data
	switch {
	case len(d) > maxHistory:
		return h.fail(maxHistory, "a history of more than %d B, the most that is read", maxHistory)
	case !bytes.HasPrefix(d, []byte(historyMagic)):
		return h.fail(0, "starts with %q, expected %q: this is no history", d[:min(len(d), len(historyMagic))], historyMagic)
	case len(d) < historyHeader:
		return h.fail(len(d), "the file ends in its header, which has %d B", historyHeader)
	}
	if h.version = binary.LittleEndian.Uint32(d[8:]); h.version < 1 || h.version > HistoryVersion {
		return h.fail(8, "version %d, expected 1 to %d", h.version, HistoryVersion)
	}
	if n := binary.LittleEndian.Uint64(d[16:]); n != uint64(len(d)) {
		return h.fail(16, "the file has %d B, its header says %d", len(d), n)
	}
	stored := binary.LittleEndian.Uint64(d[historyChecksum:])
	if sum := historySum(d); sum != stored {
		return h.fail(historyChecksum, "checksum %016x, computed %016x: the file is damaged", stored, sum)
	}
	return nil
}

// historySum is the checksum of a file, whose own bytes count as zero.
func historySum(d []byte) uint64 {
	sum := crc64.Update(0, historySums, d[:historyChecksum])
	sum = crc64.Update(sum, historySums, make([]byte, 8))
	return crc64.Update(sum, historySums, d[historyChecksum+8:])
}

// historyPart is what a history says of one device. records are bytes of the file from
// `at` on.
type historyPart struct {
	ordinal            uint32
	stopped            bool
	streams            []uint64
	count, allocations uint64 // of the records, and of allocations among them
	at                 int
	records            []byte
}

// parts finds the devices in the file.
func (h *historyReader) parts() ([]historyPart, error) {
	d := h.data
	n := binary.LittleEndian.Uint32(d[12:])
	if n < 1 || n > historyDevices {
		return nil, h.fail(12, "%d devices, expected 1 to %d", n, historyDevices)
	}
	if rest := binary.LittleEndian.Uint32(d[36:]); rest != 0 {
		return nil, h.fail(36, "%d in unused bytes, expected 0", rest)
	}
	if rank := h.rank(); rank < -1 {
		return nil, h.fail(32, "rank %d, expected -1 or more", rank)
	}
	at := historyHeader + historyRecord*int(n)
	if at > len(d) {
		return nil, h.fail(len(d), "the file ends in the records of its %d devices", n)
	}
	parts := make([]historyPart, n)
	for i := range parts {
		var err error
		if at, err = h.part(&parts[i], historyHeader+historyRecord*i, at); err != nil {
			return nil, err
		}
	}
	if at != len(d) {
		return nil, h.fail(at, "%d B behind the last device, expected none", len(d)-at)
	}
	return parts, nil
}

func (h *historyReader) rank() int32 { return int32(binary.LittleEndian.Uint32(h.data[32:])) }

// part reads a device's record, at byte `from`, and what belongs to it, at byte `at`. It
// returns where that ends.
func (h *historyReader) part(p *historyPart, from, at int) (end int, err error) {
	r := h.data[from:]
	streams, length, flags := binary.LittleEndian.Uint32(r[4:]), binary.LittleEndian.Uint64(r[8:]), binary.LittleEndian.Uint32(r[32:])
	p.ordinal, p.stopped = binary.LittleEndian.Uint32(r), flags == historyStopped
	p.count, p.allocations = binary.LittleEndian.Uint64(r[16:]), binary.LittleEndian.Uint64(r[24:])
	left := uint64(len(h.data) - at)
	padded := (length + 7) &^ 7
	switch {
	case p.ordinal > maxOrdinal:
		return 0, h.fail(from, "device ordinal %d is outside 0 to %d", p.ordinal, maxOrdinal)
	case streams < 1 || streams > historyStreams:
		return 0, h.fail(from+4, "%d streams, expected 1 to %d", streams, historyStreams)
	case length > left || 8*uint64(streams)+padded > left:
		return 0, h.fail(from+8, "%d streams and %d B of records, but %d B are left of the file", streams, length, left)
	case p.count > length:
		return 0, h.fail(from+16, "%d records in %d B", p.count, length)
	case p.allocations < 1 || p.allocations > p.count:
		return 0, h.fail(from+24, "%d allocations among %d records", p.allocations, p.count)
	case flags > historyStopped || binary.LittleEndian.Uint32(r[36:]) != 0:
		return 0, h.fail(from+32, "unknown flags %#x", binary.LittleEndian.Uint64(r[32:]))
	}
	for range streams {
		p.streams = append(p.streams, binary.LittleEndian.Uint64(h.data[at:]))
		at += 8
	}
	p.at, p.records = at, h.data[at:at+int(length)]
	for i := int(length); i < int(padded); i++ {
		if h.data[at+i] != 0 {
			return 0, h.fail(at+i, "%#x in the padding, expected 0", h.data[at+i])
		}
	}
	return at + int(padded), nil
}

// trace makes the file's trace.
func (h *historyReader) trace() (*Trace, error) {
	parts, err := h.parts()
	if err != nil {
		return nil, err
	}
	t := &Trace{Name: h.name}
	whose := "a process without a rank"
	if rank := h.rank(); rank >= 0 {
		whose = fmt.Sprintf("rank %d", rank)
	}
	t.Notes = append(t.Notes, "a history that stplan kept of "+whose+": it has no addresses and no segments")
	for i := range parts {
		p := &parts[i]
		d, err := h.device(p)
		if err != nil {
			return nil, err
		}
		if p.stopped {
			t.Notes = append(t.Notes, fmt.Sprintf("device %d: the memory for the history was full after %d records; what followed is missing", p.ordinal, p.count))
		}
		t.Devices = append(t.Devices, *d)
	}
	return t, nil
}
