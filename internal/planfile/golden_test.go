package planfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// dump is a visitor that prints the bytes of a file field by field.
type dump struct {
	file []byte
	at   int
	text strings.Builder
}

func (d *dump) line(n int, name string, value any) {
	for n > 0 {
		k := min(n, 16)
		line := fmt.Sprintf("%04x  %-47s  %s", d.at, fmt.Sprintf("% x", d.file[d.at:d.at+k]), name)
		if name != "" && value != nil {
			line += fmt.Sprintf(" = %v", value)
		}
		d.text.WriteString(strings.TrimRight(line, " ") + "\n")
		d.at, n, name = d.at+k, n-k, ""
	}
}

func (d *dump) u16(name string, _ *uint16) {
	d.line(2, name, binary.LittleEndian.Uint16(d.file[d.at:]))
}
func (d *dump) u32(name string, _ *uint32) {
	d.line(4, name, binary.LittleEndian.Uint32(d.file[d.at:]))
}
func (d *dump) u64(name string, _ *uint64) {
	d.line(8, name, binary.LittleEndian.Uint64(d.file[d.at:]))
}
func (d *dump) i32(name string, _ *int32) {
	d.line(4, name, int32(binary.LittleEndian.Uint32(d.file[d.at:])))
}
func (d *dump) raw(name string, v []byte) { d.line(len(v), name, nil) }

func (d *dump) title(format string, args ...any) { fmt.Fprintf(&d.text, "\n"+format+"\n", args...) }

func (d *dump) pad() {
	if n := int(padded(uint64(d.at))) - d.at; n > 0 {
		d.line(n, "padding", nil)
	}
}

// annotate prints an encoded plan with field names, so that a reviewer sees why a byte
// changed.
func annotate(file []byte) string {
	d := &dump{file: file}
	d.title("header")
	d.line(len(magic), "magic", nil)
	d.u32("version", nil)
	d.u32("sections", nil)
	d.u64("length", nil)
	d.line(8, "checksum", nil)
	count := int(binary.LittleEndian.Uint32(file[sectionsAt:]))
	table := make([]entry, count)
	r := reader{file[headerBytes:]}
	for i := range table {
		d.title("section %d", i)
		table[i].visit(&r)
		table[i].visit(d)
	}
	for i, e := range table {
		for k := range e.count {
			d.record(sectionKind(e.kind), i, k, e.count)
		}
		d.pad()
	}
	return strings.TrimPrefix(d.text.String(), "\n")
}

func (d *dump) record(kind sectionKind, section int, k, count uint64) {
	if kind == sectionProducer {
		if k == 0 {
			d.title("section %d: producer", section)
			d.line(int(count), fmt.Sprintf("%q", d.file[d.at:d.at+int(count)]), nil)
		}
		return
	}
	d.title("section %d: %s %d", section, sections[kind].name, k)
	switch kind {
	case sectionDevice:
		new(Device).visit(d)
	case sectionStreams:
		visitStream(nil, d)
	case sectionSlots:
		new(Slot).visit(d)
	case sectionWaits:
		new(Wait).visit(d)
	case sectionPhases:
		new(Phase).visit(d)
	case sectionPasses:
		new(passRecord).visit(d)
	case sectionPresence:
		visitWord(nil, d)
	case sectionWitness:
		visitIndex(nil, d)
	}
}

func TestGolden(t *testing.T) {
	for name, p := range map[string]*Plan{"sample": sample(), "minimal": minimal(), "periodic": periodic(), "shared": shared()} {
		file := filepath.Join("testdata", name+".golden")
		got := annotate(mustEncode(t, p))
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs; if that is meant, raise the version, run with -update and read the difference", file)
		}
	}
}

// TestNumbers pins the numbers of the format, which may not change once a plan has been
// written.
func TestNumbers(t *testing.T) {
	got := fmt.Sprintf("%q versions %d %d; modes %d %d; ends %d %d; advice %d; bounds %d %d, witness of %d; slot flags %d %d %d %d %d %d; no cell %d; wait kinds %d %d %d; phase kinds %d %d; "+
		"sections %d %d %d %d %d %d %d %d %d of %d %d %d %d %d %d %d %d %d bytes; header %d, entry %d, fields %d %d %d %d; "+
		"limits %d %d %d %d %d %d %d %d",
		magic, Version, VersionShares, ModeRecorded, ModePeriodic, EndRequested, EndCompleted, AdvicePool, BoundLoad, BoundWitness, MaxWitness, SlotResident, SlotInitial, SlotEntering, SlotLeaving, SlotStray, SlotShares, NoCell,
		WaitCrossStream, WaitPending, WaitSeam, PhasePrologue, PhaseBody,
		sectionProducer, sectionDevice, sectionStreams, sectionSlots, sectionWaits, sectionPhases, sectionPasses, sectionPresence, sectionWitness,
		producerBytes, deviceBytes, streamBytes, slotBytes, waitBytes, phaseBytes, passBytes, presenceBytes, witnessBytes,
		headerBytes, entryBytes, versionAt, sectionsAt, lengthAt, checksumAt,
		maxProducer, maxDevices, maxStreams, uint64(maxRecords), uint64(maxNumber), minAlignment, maxAlignment, maxPhases)
	const want = `"\x89STPLAN\n" versions 1 2; modes 1 2; ends 1 2; advice 1; bounds 1 2, witness of 24; slot flags 1 2 4 8 16 32; no cell 4294967295; wait kinds 1 2 4; phase kinds 1 2; ` +
		`sections 1 2 3 4 5 6 7 8 11 of 1 152 8 72 12 56 16 8 4 bytes; header 32, entry 32, fields 8 12 16 24; ` +
		`limits 255 65536 65536 4294967295 4611686018427387904 512 1073741824 256`
	if got != want {
		t.Errorf("numbers\n%s\nexpected\n%s", got, want)
	}
}

// layoutOf lists the fields of a record as docs/planfile.md does.
type layoutOf struct {
	at   int
	rows []string
}

func (l *layoutOf) row(name, kind string, n int) {
	l.rows = append(l.rows, fmt.Sprintf("%d %s %s", l.at, kind, name))
	l.at += n
}

func (l *layoutOf) u16(name string, _ *uint16) { l.row(name, "u16", 2) }
func (l *layoutOf) u32(name string, _ *uint32) { l.row(name, "u32", 4) }
func (l *layoutOf) u64(name string, _ *uint64) { l.row(name, "u64", 8) }
func (l *layoutOf) i32(name string, _ *int32)  { l.row(name, "i32", 4) }
func (l *layoutOf) raw(name string, v []byte)  { l.row(name, strconv.Itoa(len(v))+" bytes", len(v)) }

// TestDocument compares the byte tables of docs/planfile.md with the code.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/planfile.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		title  string
		visit  func(visitor)
		length int
	}{
		{"Header", visitHeader, headerBytes},
		{"Section table", new(entry).visit, entryBytes},
		{"Device record", new(Device).visit, deviceBytes},
		{"Slot record", new(Slot).visit, slotBytes},
		{"Wait record", new(Wait).visit, waitBytes},
		{"Phase record", new(Phase).visit, phaseBytes},
		{"Pass record", new(passRecord).visit, passBytes},
	} {
		var code layoutOf
		c.visit(&code)
		if code.at != c.length {
			t.Errorf("%s: fields of %d bytes, expected %d", c.title, code.at, c.length)
		}
		if got, want := documented(text, c.title), strings.Join(code.rows, "\n"); got != want {
			t.Errorf("%s: the document has\n%s\nthe code\n%s", c.title, got, want)
		}
	}
	for kind := sectionProducer; kind <= sectionPresence; kind++ {
		row := fmt.Sprintf("| %d | %s", kind, sections[kind].name)
		if !regexp.MustCompile(regexp.QuoteMeta(row) + fmt.Sprintf(`(e?s)? \| %d \|`, sections[kind].record)).Match(text) {
			t.Errorf("the document has no row %q with records of %d bytes", row, sections[kind].record)
		}
	}
}

// visitHeader visits the header as the document has it. The code reads and writes it by
// offset.
func visitHeader(v visitor) {
	v.raw("magic", make([]byte, versionAt))
	v.u32("version", nil)
	v.u32("sections", nil)
	v.u64("length", nil)
	v.u64("checksum", nil)
}

// documented is the first table under a title of the document: byte, type and field of
// each row.
func documented(text []byte, title string) string {
	_, section, _ := bytes.Cut(text, []byte("\n### "+title+"\n"))
	_, section, _ = bytes.Cut(section, []byte("\n| byte |"))
	table, _, _ := bytes.Cut(section, []byte("\n\n"))
	var rows []string
	for _, line := range strings.Split(string(table), "\n")[2:] {
		cells := strings.Split(line, "|")
		rows = append(rows, strings.TrimSpace(cells[1])+" "+strings.TrimSpace(cells[2])+" "+strings.TrimSpace(cells[3]))
	}
	return strings.Join(rows, "\n")
}
