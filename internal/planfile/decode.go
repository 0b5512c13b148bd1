package planfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
)

// Decode reads a plan and checks every rule of the format. Its errors are *FormatError.
// errors.Is(err, ErrNewerVersion) tells a plan for a newer reader from a damaged one.
// Decode allocates at most a small multiple of len(data). Lists without records are nil.
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
	var left fault // in bytes that the plan in memory has no field for
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
	if err := checkDemanded(p, binary.LittleEndian.Uint32(data[versionAt:])); err != nil {
		return nil, err
	}
	return p, nil
}

// Checksum is the checksum that a plan's file has in its header, which names the plan as the
// runtime does. data is a file that Decode accepts, or the first bytes of one, at least a header.
func Checksum(data []byte) uint64 { return binary.LittleEndian.Uint64(data[checksumAt:]) }

// Read is Decode for a stream. It reads the header, and then at most the length that the
// header claims and one byte more. So anything else than a plan is refused by its first
// bytes, however long it is. Errors of r itself are returned as they are.
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

// checkHeader checks the file as a whole: magic, version, length and checksum.
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

// checkStart checks the magic and the version, and that the header is complete. The
// version is checked before length and checksum because a later version may move those.
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
	case v > VersionShares:
		return &FormatError{ClassNewerVersion, versionAt, "version", fmt.Sprintf("plan format %d is newer than %d, the newest that this stplan reads; upgrade stplan", v, VersionShares)}
	case v < Version:
		return &FormatError{ClassBadVersion, versionAt, "version", fmt.Sprintf("%d, expected %d or %d", v, Version, VersionShares)}
	}
	return nil
}

// checkDemanded checks that a plan is stored in the version that it demands. Otherwise it
// would have two byte strings.
func checkDemanded(p *Plan, stored uint32) error {
	switch demanded := p.Version(); {
	case stored < demanded:
		return structure(versionAt, "version", "%d, expected %d for a plan in which a slot shares its place", stored, demanded)
	case stored > demanded:
		return structure(versionAt, "version", "%d, expected %d for a plan in which no slot shares its place", stored, demanded)
	}
	return nil
}

func checkLength(found, stored uint64) error {
	switch {
	case found < stored:
		return &FormatError{ClassTruncated, int64(found), "length", fmt.Sprintf("the file has %d of %d bytes: truncated", found, stored)}
	case found > stored:
		return &FormatError{ClassTrailing, lengthAt, "length", fmt.Sprintf("%d bytes, but the file goes on after them", stored)}
	}
	return nil
}

// readTable reads and checks the section table. All its values follow from the counts:
// the sections are in a fixed order, each at the first multiple of 8 after the one
// before it, and the last one ends with the file.
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
		return nil, structure(int64(at), "sections", "the last one ends at byte %d, expected %d, the end of the file", at, length)
	}
	return table, nil
}

// check checks entry i of the table: its section has to start at byte at. After that the
// section and its padding lie inside the file.
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
		return bad("length", "%d, but its padding goes beyond the end of the file", e.length)
	}
	return e.checkPadding(i, data)
}

// checkPadding checks that the bytes after section i are 0.
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

// read fills the device from its sections, which readTable has checked. It returns what
// is wrong with bytes that a device in memory has no field for.
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

// presenceOf is the number of words that a pass of a phase takes, but at most left. If
// words are missing, the rule for the presence of a pass finds it.
func (d *Device) presenceOf(phase uint32, left int) int {
	if uint64(phase) >= uint64(len(d.Phases)) {
		return 0
	}
	return int(min(presenceWords(d.Phases[phase].Length), uint64(left)))
}

// locate is the error for a fault of a plan that was read, with the byte where it lies.
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
