package planfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
)

// Decode reads a plan and checks every rule of the format. Its errors are
// *FormatError, and errors.Is(err, ErrNewerVersion) tells a plan for a newer
// reader from a damaged one. It allocates a small multiple of len(data) at
// most. Lists without records are nil.
func Decode(data []byte) (*Plan, error) {
	if err := checkHeader(data); err != nil {
		return nil, err
	}
	table, err := readTable(data)
	if err != nil {
		return nil, err
	}
	p := &Plan{
		Producer: string(table[0].of(data)),
		Devices:  make([]Device, len(table)/len(deviceSections)),
	}
	var left fault // of the bytes that no record in memory has room for
	for i := range p.Devices {
		at := 1 + i*len(deviceSections)
		c := checker{d: &p.Devices[i], device: i}
		if f := c.read(data, table[at:at+len(deviceSections)]); !left.is() {
			left = f
		}
	}
	f := check(p)
	if !f.is() {
		f = left
	}
	if f.is() {
		return nil, locate(p, f, table)
	}
	return p, nil
}

// Read is Decode for a stream. It takes no more than what the header claims and
// one byte, so something else than a plan is told by its first bytes, however
// long it is. Errors of r itself come back as they are.
func Read(r io.Reader) (*Plan, error) {
	var data bytes.Buffer
	if _, err := io.CopyN(&data, r, headerBytes); err != nil && err != io.EOF {
		return nil, err
	}
	if err := checkStart(data.Bytes()); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint64(data.Bytes()[lengthAt:])
	rest := int64(min(length, math.MaxInt64-1)) - headerBytes + 1
	if _, err := io.Copy(&data, io.LimitReader(r, rest)); err != nil {
		return nil, err
	}
	return Decode(data.Bytes())
}

// checkHeader judges the file as a whole: whether it is a plan, of this
// version, all of it and no more, and as it was written.
func checkHeader(data []byte) error {
	if err := checkStart(data); err != nil {
		return err
	}
	if err := checkLength(uint64(len(data)), binary.LittleEndian.Uint64(data[lengthAt:])); err != nil {
		return err
	}
	stored, computed := binary.LittleEndian.Uint64(data[checksumAt:]), checksum(data)
	if stored != computed {
		return &FormatError{ClassChecksum, checksumAt, "checksum", fmt.Sprintf("%016x, computed %016x: the file is damaged", stored, computed)}
	}
	return nil
}

// checkStart judges what a file begins with. The version comes before the
// length and the checksum, whose place a later version may change.
func checkStart(data []byte) error {
	if n := min(len(data), len(magic)); !bytes.Equal(data[:n], []byte(magic[:n])) {
		return &FormatError{ClassBadMagic, 0, "magic", fmt.Sprintf("%q, expected %q: this is no plan", data[:n], magic)}
	}
	if len(data) >= sectionsAt {
		if err := checkVersion(binary.LittleEndian.Uint32(data[versionAt:])); err != nil {
			return err
		}
	}
	if len(data) < headerBytes {
		return &FormatError{ClassTruncated, int64(len(data)), "header", fmt.Sprintf("the file ends after %d bytes, expected at least %d", len(data), headerBytes)}
	}
	return nil
}

func checkVersion(v uint32) error {
	switch {
	case v > Version:
		return &FormatError{ClassNewerVersion, versionAt, "version", fmt.Sprintf("plan format %d is newer than %d, the newest that this stplan reads; upgrade stplan", v, Version)}
	case v != Version:
		return &FormatError{ClassBadVersion, versionAt, "version", fmt.Sprintf("%d, expected %d", v, Version)}
	}
	return nil
}

func checkLength(found, stored uint64) error {
	switch {
	case found < stored:
		return &FormatError{ClassTruncated, int64(found), "length", fmt.Sprintf("the file has %d of %d bytes: truncated", found, stored)}
	case found > stored:
		return &FormatError{ClassTrailing, lengthAt, "length", fmt.Sprintf("%d bytes, and something follows them", stored)}
	}
	return nil
}

// readTable reads the section table, every value of which follows from the
// counts: the sections in their order, each at the first multiple of 8 after
// the one before, the last ending with the file.
func readTable(data []byte) ([]entry, error) {
	count := uint64(binary.LittleEndian.Uint32(data[sectionsAt:]))
	length := uint64(len(data))
	if count < 1+uint64(len(deviceSections)) || (count-1)%uint64(len(deviceSections)) != 0 || count > 1+maxDevices*uint64(len(deviceSections)) {
		return nil, structure(sectionsAt, "sections", "%d, expected 1 and %d for each of 1 to %d devices", count, len(deviceSections), maxDevices)
	}
	if count > (length-headerBytes)/entryBytes {
		return nil, structure(sectionsAt, "sections", "%d do not fit into a file of %d bytes", count, length)
	}
	table := make([]entry, count)
	r := reader{data[headerBytes:]}
	at := headerBytes + count*entryBytes
	for i := range table {
		table[i].visit(&r)
		if err := table[i].check(i, at, data); err != nil {
			return nil, err
		}
		at = padded(at + table[i].length)
	}
	if at != length {
		return nil, structure(int64(at), "sections", "they end at byte %d of %d", at, length)
	}
	return table, nil
}

// check compares entry i with what it has to be: a section that starts at byte
// at. Whatever passes lies inside the file, with its padding.
func (e *entry) check(i int, at uint64, data []byte) error {
	kind, device := expectedSection(i)
	record := sections[kind].record
	bad := func(field, format string, args ...any) error {
		where := headerBytes + int64(i)*entryBytes + entryField(field)
		return structure(where, fmt.Sprintf("section %d: %s", i, field), format, args...)
	}
	switch {
	case e.kind != uint32(kind):
		return bad("kind", "%d, expected %d (%s)", e.kind, kind, sections[kind].name)
	case e.device != device:
		return bad("device", "%#x, expected %#x", e.device, device)
	case e.offset != at:
		return bad("offset", "%d, expected %d", e.offset, at)
	case e.count > (uint64(len(data))-at)/record:
		return bad("count", "%d records of %d bytes do not fit into the %d bytes that follow", e.count, record, uint64(len(data))-at)
	case e.length != e.count*record:
		return bad("length", "%d, expected %d for %d records of %d bytes", e.length, e.count*record, e.count, record)
	case kind == sectionDevice && e.count != 1:
		return bad("count", "%d, expected 1", e.count)
	case padded(e.offset+e.length) > uint64(len(data)):
		return bad("length", "%d, and the padding is beyond the end of the file", e.length)
	}
	return e.checkPadding(i, data)
}

func (e *entry) checkPadding(i int, data []byte) error {
	end := e.offset + e.length
	for at := end; at < padded(end); at++ {
		if data[at] != 0 {
			return structure(int64(at), fmt.Sprintf("section %d: padding", i), "%#02x, expected 0", data[at])
		}
	}
	return nil
}

// of is the section's bytes.
func (e *entry) of(data []byte) []byte { return data[e.offset : e.offset+e.length] }

// read takes a device from its sections, which readTable has found whole, and
// says what is wrong with bytes that a device in memory has no place for.
func (c *checker) read(data []byte, table []entry) fault {
	d := c.d
	d.visit(&reader{table[0].of(data)})
	d.Streams = readList(data, &table[1], visitStream)
	d.Slots = readList(data, &table[2], (*Slot).visit)
	d.Waits = readList(data, &table[3], (*Wait).visit)
	d.Phases = readList(data, &table[4], (*Phase).visit)
	records := readList(data, &table[5], (*passRecord).visit)
	words := readList(data, &table[6], visitWord)
	d.Certificate.Witness = readList(data, &table[7], visitIndex)
	if len(records) > 0 {
		d.Passes = make([]Pass, len(records))
	}
	var left fault
	for i, r := range records {
		if r.padding != 0 && !left.is() {
			left = c.fault(sectionPasses, i, "zero", "%d, expected 0", r.padding)
		}
		d.Passes[i] = Pass{FirstEvent: r.firstEvent, Phase: r.phase}
		if n := d.presenceOf(r.phase, len(words)); n > 0 {
			d.Passes[i].Present, words = words[:n:n], words[n:]
		}
	}
	if len(words) > 0 && !left.is() {
		left = c.fault(sectionPresence, int(table[6].count)-len(words), "", "%d words beyond the last pass", len(words))
	}
	return left
}

// presenceOf is how many words a pass of a phase takes, or what is left: a pass
// that lacks some is refused by its own rule.
func (d *Device) presenceOf(phase uint32, left int) int {
	if uint64(phase) >= uint64(len(d.Phases)) {
		return 0
	}
	return int(min(presenceWords(d.Phases[phase].Length), uint64(left)))
}

// locate says at which byte a plan that was read breaks a rule.
func locate(p *Plan, f fault, table []entry) error {
	section := 0
	if f.kind != sectionProducer {
		section = 1 + f.device*len(deviceSections) + slices.Index(deviceSections[:], f.kind)
	}
	at := table[section].offset + uint64(f.record)*sections[f.kind].record
	return structure(int64(at)+fieldOffset(f.kind, f.field), f.where(p), "%s", f.problem)
}

func structure(at int64, field, format string, args ...any) error {
	return &FormatError{ClassStructure, at, field, fmt.Sprintf(format, args...)}
}
