package planfile

import (
	"encoding/binary"
	"hash/crc64"
)

// The file is a header, a table of sections and the sections themselves, each
// padded with zeros to a multiple of sectionAlign.
const (
	magic = "\x89STPLAN\n"

	headerBytes  = 32
	versionAt    = 8
	sectionsAt   = 12
	lengthAt     = 16
	checksumAt   = 24
	entryBytes   = 32
	sectionAlign = 8
)

// sectionKind is the number of a kind of section. Numbers are never reused.
type sectionKind uint32

const (
	sectionProducer sectionKind = 1
	sectionDevice   sectionKind = 2
	sectionStreams  sectionKind = 3
	sectionSlots    sectionKind = 4
	sectionWaits    sectionKind = 5
	sectionPhases   sectionKind = 6
	sectionPasses   sectionKind = 7
	sectionPresence sectionKind = 8
	sectionWitness  sectionKind = 11
)

// noDevice is the device of a section that belongs to the whole file.
const noDevice = 0xffffffff

// deviceSections are the sections of every device, in this order, empty or not.
var deviceSections = [...]sectionKind{
	sectionDevice, sectionStreams, sectionSlots, sectionWaits, sectionPhases, sectionPasses, sectionPresence, sectionWitness,
}

// Lengths of one record in bytes.
const (
	producerBytes = 1 // a section of text
	deviceBytes   = 152
	streamBytes   = 8
	slotBytes     = 72
	waitBytes     = 12
	phaseBytes    = 56
	passBytes     = 16
	presenceBytes = 8
	witnessBytes  = 4
)

// sections maps a kind to the length of its records and its name in messages.
var sections = [...]struct {
	record uint64
	name   string
}{
	sectionProducer: {producerBytes, "producer"},
	sectionDevice:   {deviceBytes, "device"},
	sectionStreams:  {streamBytes, "stream"},
	sectionSlots:    {slotBytes, "slot"},
	sectionWaits:    {waitBytes, "wait"},
	sectionPhases:   {phaseBytes, "phase"},
	sectionPasses:   {passBytes, "pass"},
	sectionPresence: {presenceBytes, "presence"},
	sectionWitness:  {witnessBytes, "witness"},
}

// expectedSection is the kind and the device that entry i of the table must have.
func expectedSection(i int) (kind sectionKind, device uint32) {
	if i == 0 {
		return sectionProducer, noDevice
	}
	i--
	return deviceSections[i%len(deviceSections)], uint32(i / len(deviceSections))
}

// padded is n rounded up to a multiple of sectionAlign.
func padded(n uint64) uint64 { return (n + sectionAlign - 1) / sectionAlign * sectionAlign }

// checksum is the CRC-64/XZ of the file with its own eight bytes taken as zero.
func checksum(file []byte) uint64 {
	var zero [8]byte
	sum := crc64.Update(0, ecma, file[:checksumAt])
	sum = crc64.Update(sum, ecma, zero[:])
	return crc64.Update(sum, ecma, file[checksumAt+len(zero):])
}

var ecma = crc64.MakeTable(crc64.ECMA)

// visitor is given the fields of a record in file order. Writing, reading and finding a
// field by name are visitors, so that the layout of a record is written down only once.
type visitor interface {
	u16(name string, v *uint16)
	u32(name string, v *uint32)
	u64(name string, v *uint64)
	i32(name string, v *int32)
	raw(name string, v []byte)
}

func (d *Device) visit(v visitor) {
	v.u32("ordinal", &d.Ordinal)
	v.i32("rank", &d.Rank)
	v.u32("mode", (*uint32)(&d.Mode))
	v.u16("end", (*uint16)(&d.End))
	v.u16("advice", (*uint16)(&d.Advice))
	v.raw("fingerprint", d.Fingerprint[:])
	v.u64("events", &d.Events)
	v.u64("alignment", &d.Alignment)
	v.u64("arena bytes", &d.ArenaBytes)
	v.u64("peak allocated", &d.PeakAllocated)
	v.u64("peak active", &d.PeakActive)
	v.u64("recorded peak reserved", &d.RecordedPeakReserved)
	v.u32("iterations", &d.Iterations)
	v.u32("bound kind", (*uint32)(&d.Certificate.Kind))
	v.u64("steady start", &d.SteadyStart)
	v.u64("lower bound", &d.Certificate.LowerBound)
	v.u64("bound at", &d.Certificate.At)
	v.u64("gap", &d.Certificate.Gap)
	v.u64("steady end", &d.SteadyEnd)
	v.u64("stray bytes", &d.StrayBytes)
}

func (s *Slot) visit(v visitor) {
	v.u64("start", &s.Start)
	v.u64("requested end", &s.RequestedEnd)
	v.u64("completed end", &s.CompletedEnd)
	v.u64("offset", &s.Offset)
	v.u64("size", &s.Size)
	v.u64("requested", &s.Requested)
	v.u64("least", &s.Least)
	v.u32("stream", &s.Stream)
	v.u32("flags", (*uint32)(&s.Flags))
	v.u32("occurrences", &s.Occurrences)
	v.u32("cell", &s.Cell)
}

func (w *Wait) visit(v visitor) {
	v.u32("later", &w.Later)
	v.u32("earlier", &w.Earlier)
	v.u32("kind", (*uint32)(&w.Kind))
}

func (p *Phase) visit(v visitor) {
	v.u32("kind", (*uint32)(&p.Kind))
	v.u32("occurrences", &p.Occurrences)
	v.u64("length", &p.Length)
	v.u64("first slot", &p.FirstSlot)
	v.u64("slots", &p.SlotCount)
	v.u64("makespan", &p.Makespan)
	v.u64("lower bound", &p.LowerBound)
	v.u64("bound at", &p.BoundAt)
}

// passRecord is a pass without its presence, which is a section of its own.
type passRecord struct {
	firstEvent     uint64
	phase, padding uint32
}

func (p *passRecord) visit(v visitor) {
	v.u64("first event", &p.firstEvent)
	v.u32("phase", &p.phase)
	v.u32("zero", &p.padding)
}

// entry is one line of the section table.
type entry struct {
	kind, device          uint32
	offset, length, count uint64
}

func (e *entry) visit(v visitor) {
	v.u32("kind", &e.kind)
	v.u32("device", &e.device)
	v.u64("offset", &e.offset)
	v.u64("length", &e.length)
	v.u64("count", &e.count)
}

// visitStream, visitWord and visitIndex visit records of one field.
func visitStream(s *uint64, v visitor) { v.u64("handle", s) }
func visitWord(w *uint64, v visitor)   { v.u64("word", w) }
func visitIndex(i *uint32, v visitor)  { v.u32("slot", i) }

// writer appends fields, little endian.
type writer struct{ buf []byte }

func (w *writer) u16(_ string, v *uint16) { w.buf = binary.LittleEndian.AppendUint16(w.buf, *v) }
func (w *writer) u32(_ string, v *uint32) { w.buf = binary.LittleEndian.AppendUint32(w.buf, *v) }
func (w *writer) u64(_ string, v *uint64) { w.buf = binary.LittleEndian.AppendUint64(w.buf, *v) }
func (w *writer) i32(_ string, v *int32) {
	w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(*v))
}
func (w *writer) raw(_ string, v []byte) { w.buf = append(w.buf, v...) }

func (w *writer) pad() {
	w.buf = append(w.buf, make([]byte, padded(uint64(len(w.buf)))-uint64(len(w.buf)))...)
}

// reader reads fields from the front of rest. The caller makes sure that rest is long
// enough.
type reader struct{ rest []byte }

func (r *reader) u16(_ string, v *uint16) {
	*v = binary.LittleEndian.Uint16(r.rest)
	r.rest = r.rest[2:]
}

func (r *reader) u32(_ string, v *uint32) {
	*v = binary.LittleEndian.Uint32(r.rest)
	r.rest = r.rest[4:]
}

func (r *reader) u64(_ string, v *uint64) {
	*v = binary.LittleEndian.Uint64(r.rest)
	r.rest = r.rest[8:]
}

func (r *reader) i32(_ string, v *int32) {
	*v = int32(binary.LittleEndian.Uint32(r.rest))
	r.rest = r.rest[4:]
}

func (r *reader) raw(_ string, v []byte) { r.rest = r.rest[copy(v, r.rest):] }

// writeList appends the records of a section.
func writeList[T any](w *writer, records []T, visit func(*T, visitor)) {
	for i := range records {
		visit(&records[i], w)
	}
	w.pad()
}

// readList reads the records of a section that readTable has checked. It is nil if there
// are none.
func readList[T any](data []byte, e *entry, visit func(*T, visitor)) []T {
	if e.count == 0 {
		return nil
	}
	records := make([]T, e.count)
	r := &reader{e.of(data)}
	for i := range records {
		visit(&records[i], r)
	}
	return records
}

// finder is a visitor that finds the offset of a named field in its record.
type finder struct {
	name  string
	next  int64
	found int64
}

func (f *finder) see(name string, n int) {
	if name == f.name {
		f.found = f.next
	}
	f.next += int64(n)
}

func (f *finder) u16(name string, _ *uint16) { f.see(name, 2) }
func (f *finder) u32(name string, _ *uint32) { f.see(name, 4) }
func (f *finder) u64(name string, _ *uint64) { f.see(name, 8) }
func (f *finder) i32(name string, _ *int32)  { f.see(name, 4) }
func (f *finder) raw(name string, v []byte)  { f.see(name, len(v)) }

// fieldOffset is the offset in bytes of the named field in a record of a section. It is
// 0, the beginning of the record, if the name is empty.
func fieldOffset(kind sectionKind, name string) int64 {
	f := finder{name: name}
	switch kind {
	case sectionDevice:
		new(Device).visit(&f)
	case sectionSlots:
		new(Slot).visit(&f)
	case sectionWaits:
		new(Wait).visit(&f)
	case sectionPhases:
		new(Phase).visit(&f)
	case sectionPasses:
		new(passRecord).visit(&f)
	}
	return f.found
}

// entryField is the same for an entry of the section table.
func entryField(name string) int64 {
	f := finder{name: name}
	new(entry).visit(&f)
	return f.found
}
