package planfile

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files and test vectors in testdata")

const vectorFolder = "testdata/vectors"

// vector is one case of the generator: a file and the class of error that a reader must
// report.
type vector struct {
	name, note string
	expect     Class // "" is ok
	data       []byte
}

// TestVectors reads the files of vectorFolder as a reader in any language would.
// docs/planfile.md has their form. With -update they are generated anew.
func TestVectors(t *testing.T) {
	if *update {
		writeVectors(t)
	}
	files, err := filepath.Glob(vectorFolder + "/*.vec")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors in %s (%v)", vectorFolder, err)
	}
	seen := map[Class]bool{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".vec"), func(t *testing.T) {
			v := readVector(t, file)
			seen[v.expect] = true
			runVector(t, v)
		})
	}
	for _, c := range []Class{"", ClassBadMagic, ClassBadVersion, ClassNewerVersion, ClassTruncated, ClassTrailing, ClassChecksum, ClassStructure} {
		if !seen[c] {
			t.Errorf("no vector of class %q", c)
		}
	}
	if want := len(vectors()); len(files) != want {
		t.Errorf("%d vectors, the generator makes %d; run with -update", len(files), want)
	}
}

// readVector parses a file. The note of the result is the error text in the file.
func readVector(t *testing.T, file string) vector {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	header, body, ok := strings.Cut(string(text), "\n\n")
	if !ok {
		t.Fatal("no empty line between header and body")
	}
	v := vector{name: file, expect: "unset"}
	for _, line := range strings.Split(header, "\n") {
		key, value, ok := strings.Cut(line, ": ")
		if !ok {
			t.Fatalf("header line %q has no key", line)
		}
		switch key {
		case "expect":
			v.expect = parseClass(t, value)
		case "error":
			v.note = value
		case "note":
		default:
			t.Fatalf("unknown key %q", key)
		}
	}
	if v.expect == "unset" {
		t.Fatal("no expect")
	}
	if v.data, err = hex.DecodeString(strings.Join(strings.Fields(body), "")); err != nil {
		t.Fatal(err)
	}
	return v
}

func parseClass(t *testing.T, s string) Class {
	t.Helper()
	switch c := Class(s); c {
	case "ok":
		return ""
	case ClassBadMagic, ClassBadVersion, ClassNewerVersion, ClassTruncated, ClassTrailing, ClassChecksum, ClassStructure:
		return c
	}
	t.Fatalf("unknown class %q", s)
	return ""
}

func runVector(t *testing.T, v vector) {
	p, err := Decode(v.data)
	streamed, streamErr := Read(bytes.NewReader(v.data))
	if !reflect.DeepEqual(streamed, p) || fmt.Sprint(streamErr) != fmt.Sprint(err) {
		t.Errorf("Read differs from Decode: %v, %v", streamErr, err)
	}
	if v.expect == "" {
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		if again, err := Encode(p); err != nil || !bytes.Equal(again, v.data) {
			t.Errorf("encodes to other bytes (%v)", err)
		}
		return
	}
	if err == nil {
		t.Fatalf("accepted, expected %s", v.expect)
	}
	if class := classOf(t, err); class != v.expect {
		t.Errorf("class %s, expected %s: %v", class, v.expect, err)
	}
	if err.Error() != v.note {
		t.Errorf("error\n%s, expected\n%s", err, v.note)
	}
}

func advised() *Plan {
	p := minimal()
	p.Devices[0].Advice = AdvicePool
	return p
}

func writeVectors(t *testing.T) {
	t.Helper()
	old, err := filepath.Glob(vectorFolder + "/*.vec")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range vectors() {
		if err := os.WriteFile(filepath.Join(vectorFolder, v.name+".vec"), v.text(t), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// text is the vector as a file. The class comes from the generator, the error text from
// this reader.
func (v vector) text(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	_, err := Decode(v.data)
	if v.expect == "" {
		fmt.Fprintf(&b, "expect: ok\nnote: %s\n\n", v.note)
	} else {
		if err == nil || classOf(t, err) != v.expect {
			t.Fatalf("%s: %v, expected %s", v.name, err, v.expect)
		}
		fmt.Fprintf(&b, "expect: %s\nnote: %s\nerror: %v\n\n", v.expect, v.note, err)
	}
	for rest := v.data; len(rest) > 0; rest = rest[min(32, len(rest)):] {
		fmt.Fprintf(&b, "%x\n", rest[:min(32, len(rest))])
	}
	return b.Bytes()
}

// vectors makes all cases. No two have the same name.
func vectors() []vector {
	all := goodVectors()
	for _, more := range [][]vector{wholeVectors(), tableVectors(), recordVectors(), phaseVectors(), bodyVectors(), sharedVectors()} {
		all = append(all, more...)
	}
	return all
}

func goodVectors() []vector {
	several := sample()
	several.Devices = append(several.Devices, minimal().Devices[0], minimal().Devices[0])
	for i := range several.Devices {
		several.Devices[i].Ordinal, several.Devices[i].Rank = uint32(10*i), 0
	}
	large := minimal()
	large.Producer = strings.Repeat("p", maxProducer)
	d := &large.Devices[0]
	d.Events, d.ArenaBytes, d.Alignment = maxNumber, maxNumber, maxAlignment
	d.PeakAllocated, d.PeakActive, d.RecordedPeakReserved = maxNumber, maxNumber, maxNumber
	d.Certificate = Certificate{Kind: BoundLoad, LowerBound: maxNumber, At: maxNumber}
	d.SteadyStart = maxNumber
	d.Streams = []uint64{^uint64(0)}
	d.Slots = []Slot{{Start: 0, RequestedEnd: maxNumber, CompletedEnd: maxNumber, Size: maxNumber, Requested: maxNumber, Least: maxNumber, Flags: SlotResident, Occurrences: 1, Cell: NoCell}}
	apart := sample()
	apart.Devices[0].Certificate.Kind = BoundApart
	proven := sample()
	proven.Devices[0].Certificate = Certificate{Kind: BoundWitness, LowerBound: 3584, Gap: 512, Witness: []uint32{0, 2, 4}}
	return []vector{
		{"ok-apart", "a bound over the streams one by one", "", encode(apart)},
		{"ok-witness", "a bound by the witness of three slots", "", encode(proven)},
		{"ok-sample", "two devices, both kinds of end, every flag and kind of wait", "", encode(sample())},
		{"ok-periodic", "two bodies, a cell, optional slots, a stray, waits over the seam", "", encode(periodic())},
		{"ok-modes", "a periodic device between two recorded ones", "", encode(all())},
		{"ok-periodic-completed", "a periodic plan for completed ends, a cell freed before its body begins and completed in it, another one never seen filled", "", encode(periodicCompleted())},
		{"ok-periodic-words", "a body of 130 allocations, so of three words a pass", "", encode(periodicWide())},
		{"ok-periodic-interlude", "an interlude without cells behind a body that fills one", "", encode(periodicInterlude())},
		{"ok-shared", "slots that share a place in the prologue, a body and an interlude", "", encode(shared())},
		{"ok-minimal", "one device without slots", "", encode(minimal())},
		{"ok-advice", "a plan that does not pay", "", encode(advised())},
		{"ok-several", "four devices, two of them without slots", "", encode(several)},
		{"ok-largest", "every number at its largest", "", encode(large)},
		{"ok-producer", "a producer of 16 bytes, so no padding, that is not ASCII", "", encode(&Plan{Producer: "stplan ½ – 日", Devices: minimal().Devices})},
	}
}

// wholeVectors are wrong as a whole: magic, version, length or checksum.
func wholeVectors() []vector {
	good := func() []byte { return encode(sample()) }
	patch := func(at int, b ...byte) []byte {
		data := good()
		copy(data[at:], b)
		return data
	}
	return []vector{
		{"empty", "no bytes at all", ClassTruncated, nil},
		{"bad-magic", "another file", ClassBadMagic, []byte("PK\x03\x04 is no plan, though it is long enough for a header")},
		{"bad-magic-short", "another file, shorter than the magic", ClassBadMagic, []byte("PK")},
		{"bad-magic-crlf", "a plan after a transfer as text", ClassBadMagic, bytes.Replace(good(), []byte("\n"), []byte("\r\n"), 1)},
		{"version-0", "the version before the first", ClassBadVersion, patch(versionAt, 0)},
		{"version-3", "the next version, whatever follows", ClassNewerVersion, patch(versionAt, 3)},
		{"version-99-short", "a far version of which 12 bytes are left", ClassNewerVersion, patch(versionAt, 99)[:12]},
		{"truncated-magic", "a part of the magic", ClassTruncated, good()[:5]},
		{"truncated-header", "half a header", ClassTruncated, good()[:16]},
		{"truncated-table", "half a section table", ClassTruncated, good()[:100]},
		{"truncated-last", "one byte short", ClassTruncated, good()[:len(good())-1]},
		{"trailing", "eight zeros after the plan", ClassTrailing, append(good(), make([]byte, 8)...)},
		{"checksum-body", "a flip in the last byte", ClassChecksum, flip(good(), -1)},
		{"checksum-stored", "a flip in the checksum itself", ClassChecksum, flip(good(), checksumAt)},
		{"checksum-sections", "a flip in the number of sections", ClassChecksum, flip(good(), sectionsAt)},
	}
}

func flip(data []byte, at int) []byte {
	if at < 0 {
		at += len(data)
	}
	data[at] ^= 0x10
	return data
}

// tableVectors break the section table or the padding. Length and checksum are right.
func tableVectors() []vector {
	// The sections of the sample: 0 producer; 1–8 and 9–16 the devices.
	field := func(section int, name string) int {
		return headerBytes + section*entryBytes + int(entryField(name))
	}
	u32 := func(at int, v uint32) []byte {
		data := encode(sample())
		binary.LittleEndian.PutUint32(data[at:], v)
		return seal(data)
	}
	u64 := func(at int, v uint64) []byte {
		data := encode(sample())
		binary.LittleEndian.PutUint64(data[at:], v)
		return seal(data)
	}
	// gap makes room before the last section, and says so in its entry.
	gap := encode(sample())
	last := field(16, "offset")
	binary.LittleEndian.PutUint64(gap[last:], binary.LittleEndian.Uint64(gap[last:])+8)
	odd := append(encode(sample()), 0)
	return []vector{
		{"sections-none", "no sections", ClassStructure, u32(sectionsAt, 0)},
		{"sections-not-1-plus-8n", "a section too few", ClassStructure, u32(sectionsAt, 16)},
		{"sections-beyond-file", "more sections than the file has room for", ClassStructure, u32(sectionsAt, 1+8*65536)},
		{"sections-most", "the most sections a header can claim", ClassStructure, u32(sectionsAt, 0xffffffff)},
		{"sections-fewer", "a device that the header does not count", ClassStructure, u32(sectionsAt, 9)},
		{"section-unknown-kind", "a kind of section that version 1 does not have", ClassStructure, u32(field(2, "kind"), 9)},
		{"section-order", "slots before streams", ClassStructure, u32(field(2, "kind"), 4)},
		{"section-device", "a section of another device", ClassStructure, u32(field(2, "device"), 1)},
		{"section-producer-device", "a producer of one device", ClassStructure, u32(field(0, "device"), 0)},
		{"section-gap", "eight bytes before the last section that belong to none", ClassStructure, seal(append(gap, make([]byte, 8)...))},
		{"section-overlap", "two sections in one place", ClassStructure, u64(field(3, "offset"), 0)},
		{"section-offset-wraps", "an offset near 2^64", ClassStructure, u64(field(3, "offset"), ^uint64(7))},
		{"section-count-huge", "a count near 2^64", ClassStructure, u64(field(3, "count"), ^uint64(0))},
		{"section-count-wraps", "a count whose bytes wrap around to few", ClassStructure, u64(field(2, "count"), 1<<61)},
		{"section-length", "a length that is not that of its records", ClassStructure, u64(field(4, "length"), 35)},
		{"section-length-huge", "a length near 2^64", ClassStructure, u64(field(4, "length"), ^uint64(0))},
		{"section-two-devices", "two device records in one section", ClassStructure, twoRecords()},
		{"section-after-last", "eight zeros after the last section that the header counts in", ClassStructure, seal(append(encode(sample()), make([]byte, 8)...))},
		{"section-unpadded-end", "a file that is not a multiple of 8 long", ClassStructure, seal(odd)},
		{"padding-producer", "a byte in the padding of the producer", ClassStructure, seal(flip(encode(sample()), headerBytes+17*entryBytes+len(sample().Producer)))},
		{"padding-missing", "the padding of the last section left out", ClassStructure, unpadded()},
	}
}

// twoRecords is a minimal plan with two records in its device section, which leave no
// room for other sections.
func twoRecords() []byte {
	data := encode(minimal())
	at := headerBytes + entryBytes
	binary.LittleEndian.PutUint64(data[at+int(entryField("length")):], 2*deviceBytes)
	binary.LittleEndian.PutUint64(data[at+int(entryField("count")):], 2)
	return seal(append(data, make([]byte, deviceBytes)...))
}

// unpadded is a plan without the padding after its last section with records, the waits.
func unpadded() []byte {
	p := sample()
	p.Devices = p.Devices[:1]
	data := encode(p)
	return seal(data[:len(data)-4])
}

// recordVectors have the right layout and break a rule about a record.
func recordVectors() []vector {
	var all []vector
	plan := func(name, note string, change func(p *Plan)) {
		p := sample()
		change(p)
		all = append(all, vector{name, note, ClassStructure, encode(p)})
	}
	device := func(name, note string, change func(d *Device)) {
		plan("device-"+name, note, func(p *Plan) { change(&p.Devices[0]) })
	}
	slot := func(i int, name, note string, change func(s *Slot)) {
		plan("slot-"+name, note, func(p *Plan) { change(&p.Devices[0].Slots[i]) })
	}
	wait := func(i int, name, note string, change func(w *Wait)) {
		plan("wait-"+name, note, func(p *Plan) { change(&p.Devices[0].Waits[i]) })
	}

	plan("producer-empty", "no producer", func(p *Plan) { p.Producer = "" })
	plan("producer-long", "a producer of 256 bytes", func(p *Plan) { p.Producer = strings.Repeat("p", 256) })
	plan("producer-utf8", "a producer that is not UTF-8", func(p *Plan) { p.Producer = "st\xffplan" })
	plan("producer-control", "a producer that would move a terminal's cursor", func(p *Plan) { p.Producer = "st\x1b[2Jplan" })

	plan("device-order", "devices that do not ascend", func(p *Plan) { p.Devices[1].Ordinal = 0 })
	plan("device-ordinal-large", "an ordinal that does not fit an int", func(p *Plan) { p.Devices[1].Ordinal = 1 << 31 })
	plan("device-ranks", "devices of two processes", func(p *Plan) { p.Devices[1].Rank = 4 })
	device("rank", "a rank below -1", func(d *Device) { d.Rank = -2 })
	device("mode-0", "no mode", func(d *Device) { d.Mode = 0 })
	device("mode-periodic", "a periodic plan without phases", func(d *Device) { d.Mode, d.SteadyEnd = ModePeriodic, 20 })
	device("mode-unknown", "an unknown mode", func(d *Device) { d.Mode = 3 })
	device("steady-end", "a recorded plan with a steady end", func(d *Device) { d.SteadyEnd = 20 })
	device("stray-bytes", "a recorded plan with strays", func(d *Device) { d.StrayBytes = 512 })
	device("phases", "a recorded plan with phases", func(d *Device) { d.Phases = periodic().Devices[0].Phases })
	device("passes", "a recorded plan with a pass", func(d *Device) { d.Passes = []Pass{{Phase: 0}} })
	device("presence", "a recorded plan with a word of presence", func(d *Device) { d.Passes = []Pass{{Phase: 0, Present: []uint64{1}}} })
	device("end-0", "no kind of end", func(d *Device) { d.End = 0 })
	device("end-unknown", "an unknown kind of end", func(d *Device) { d.End = 3 })
	device("advice-unknown", "an unknown advice", func(d *Device) { d.Advice = 2 })
	device("events", "more than 2^62 events", func(d *Device) { d.Events = maxNumber + 1 })
	device("alignment-0", "no alignment", func(d *Device) { d.Alignment = 0 })
	device("alignment-small", "an alignment under 512", func(d *Device) { d.Alignment = 256 })
	device("alignment-odd", "an alignment that is no power of two", func(d *Device) { d.Alignment = 1536 })
	device("alignment-large", "an alignment over 2^30", func(d *Device) { d.Alignment = 1 << 31 })
	device("arena-large", "an arena over 2^62", func(d *Device) { d.ArenaBytes = maxNumber + 512 })
	device("arena-alignment", "an arena that is no multiple of the alignment", func(d *Device) { d.ArenaBytes++ })
	device("peak-allocated", "a peak over 2^62", func(d *Device) { d.PeakAllocated = maxNumber + 1 })
	device("peak-active", "a peak over 2^62", func(d *Device) { d.PeakActive = ^uint64(0) })
	device("peak-reserved", "a peak over 2^62", func(d *Device) { d.RecordedPeakReserved = maxNumber + 1 })
	device("steady", "a steady start after the last event", func(d *Device) { d.SteadyStart = 21 })
	device("bound-kind", "an unknown kind of bound", func(d *Device) { d.Certificate.Kind = 4 })
	witness := func(name, note string, slots ...uint32) {
		device("witness-"+name, note, func(d *Device) { d.Certificate = Certificate{Kind: BoundWitness, LowerBound: 4096, Witness: slots} })
	}
	witness("none", "a bound by a witness that is not there")
	witness("beyond", "a witness that is no slot", 0, 5)
	witness("order", "a witness that does not ascend", 1, 1)
	witness("many", "a witness of 25 slots", make([]uint32, MaxWitness+1)...)
	device("witness-of-load", "a witness of a load", func(d *Device) { d.Certificate.Witness = []uint32{0} })
	device("witness-at", "a witness with a time", func(d *Device) {
		d.Certificate = Certificate{Kind: BoundWitness, LowerBound: 4096, At: 3, Witness: []uint32{0}}
	})
	device("witness-periodic", "a witness in a periodic plan", func(d *Device) {
		*d = periodic().Devices[0]
		d.Certificate.Kind, d.Certificate.At = BoundWitness, 0
	})
	device("bound", "a lower bound over the arena", func(d *Device) { d.Certificate.LowerBound = 4097 })
	device("bound-at", "a bound after the last event", func(d *Device) { d.Certificate.At = 21 })
	device("gap", "a gap that is none", func(d *Device) { d.Certificate.Gap = 1 })

	device("streams-equal", "one stream twice", func(d *Device) { d.Streams[1] = 0 })
	device("streams-unused", "a stream that no slot is on", func(d *Device) { d.Streams = append(d.Streams, 77) })
	device("streams-none", "slots without streams", func(d *Device) { d.Streams = nil })

	slot(2, "empty-range", "a live range that ends where it starts", func(s *Slot) { s.RequestedEnd = 3 })
	slot(2, "ends", "a completed end before the requested end", func(s *Slot) { s.CompletedEnd = 5 })
	slot(2, "late", "an end after the last event", func(s *Slot) { s.CompletedEnd = 21 })
	slot(2, "late-huge", "a start and end near 2^64", func(s *Slot) { s.Start, s.RequestedEnd, s.CompletedEnd = 1<<63, ^uint64(0), ^uint64(0) })
	slot(2, "initial-late", "a slot that was live before and starts later", func(s *Slot) { s.Flags = SlotInitial })
	slot(4, "resident-freed", "a slot that is never freed and ends", func(s *Slot) { s.RequestedEnd = 19 })
	slot(2, "size-0", "no size", func(s *Slot) { s.Size = 0 })
	slot(2, "size-alignment", "a size that is no multiple of the alignment", func(s *Slot) { s.Size = 513 })
	slot(2, "offset-alignment", "an offset that is no multiple of the alignment", func(s *Slot) { s.Offset = 3080 })
	slot(2, "beyond-arena", "a slot whose end is beyond the arena", func(s *Slot) { s.Size = 1536 })
	slot(2, "offset-beyond", "an offset beyond the arena", func(s *Slot) { s.Offset = 4608 })
	slot(2, "offset-wraps", "an offset and size that wrap around to 0", func(s *Slot) { s.Offset = ^uint64(0) - 1023 })
	slot(2, "size-wraps", "a size that wraps around to 0 with the offset", func(s *Slot) { s.Size = ^uint64(0) - 3071 })
	slot(2, "requested", "a request larger than the slot", func(s *Slot) { s.Requested = 1025 })
	slot(4, "stream", "a stream that the device does not have", func(s *Slot) { s.Stream = 2 })
	slot(0, "stream-order", "streams not in the order of their first slot", func(s *Slot) { s.Stream = 1 })
	slot(2, "flags", "an unknown flag", func(s *Slot) { s.Flags = 64 })
	slot(2, "flags-entering", "a recorded plan with an entering slot", func(s *Slot) { s.Flags, s.Cell = SlotEntering, 0 })
	slot(2, "flags-leaving", "a recorded plan with a leaving slot", func(s *Slot) { s.Flags, s.Cell = SlotLeaving, 0 })
	slot(2, "flags-stray", "a recorded plan with a stray", func(s *Slot) { s.Flags = SlotStray })
	slot(1, "flags-shares", "a recorded plan with a slot that shares its place", func(s *Slot) { s.Flags, s.Cell = SlotShares, 0 })
	slot(2, "cell", "a recorded plan with a cell", func(s *Slot) { s.Cell = 0 })
	slot(2, "occurrences-0", "a slot that never occurred", func(s *Slot) { s.Occurrences = 0 })
	slot(2, "occurrences-2", "a recorded plan's slot that occurred twice", func(s *Slot) { s.Occurrences = 2 })
	slot(2, "least", "a recorded plan's slot with two sizes", func(s *Slot) { s.Least-- })
	slot(3, "order", "a slot that starts before the one before it", func(s *Slot) { s.Start = 2 })
	slot(3, "same-start", "two slots of one event", func(s *Slot) { s.Start = 3 })
	slot(0, "initial-after", "an initial slot after an allocation at event 0", func(s *Slot) { s.Flags = SlotResident })

	wait(2, "later", "a wait of a slot that the device does not have", func(w *Wait) { w.Later = 5 })
	wait(2, "itself", "a wait of a slot for itself", func(w *Wait) { w.Earlier = 4 })
	wait(2, "earlier", "a wait for a later slot", func(w *Wait) { w.Earlier = ^uint32(0) })
	wait(2, "kind-0", "a wait of no kind", func(w *Wait) { w.Kind = 0 })
	wait(2, "kind", "a wait of an unknown kind", func(w *Wait) { w.Kind = 9 })
	wait(2, "seam", "a recorded plan with a wait over the seam", func(w *Wait) { w.Kind |= WaitSeam })
	wait(1, "order", "waits of one slot that do not ascend", func(w *Wait) { w.Earlier = 0 })
	wait(1, "twice", "a wait listed twice", func(w *Wait) { w.Earlier = 1 })
	return all
}
