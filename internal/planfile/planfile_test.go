package planfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// classOf is the class of a *FormatError. Any other error fails the test.
func classOf(t *testing.T, err error) Class {
	t.Helper()
	var format *FormatError
	if !errors.As(err, &format) {
		t.Fatalf("error %v is a %T, expected a *FormatError", err, err)
	}
	return format.Class
}

func mustEncode(t testing.TB, p *Plan) []byte {
	t.Helper()
	data, err := Encode(p)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		p := random(r)
		data := mustEncode(t, p)
		got, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, p) {
			t.Fatalf("decoded\n%+v, encoded\n%+v", got, p)
		}
		if again := mustEncode(t, got); string(again) != string(data) {
			t.Fatal("a decoded plan encodes to other bytes")
		}
	}
}

// TestTruncated cuts a plan at every byte.
func TestTruncated(t *testing.T) {
	data := mustEncode(t, all())
	for n := range data {
		p, err := Decode(data[:n])
		if p != nil || err == nil {
			t.Fatalf("the first %d of %d bytes are accepted", n, len(data))
		}
		want := fmt.Sprintf("byte %d: length: the file has %d of %d bytes: truncated", n, n, len(data))
		if n < headerBytes {
			want = fmt.Sprintf("byte %d: header: the file ends after %d bytes, expected at least 32", n, n)
		}
		if class := classOf(t, err); class != ClassTruncated || err.Error() != want {
			t.Fatalf("the first %d bytes: class %s, %q, expected %s, %q", n, class, err, ClassTruncated, want)
		}
	}
}

// TestBitFlips flips every bit of a plan of each version.
func TestBitFlips(t *testing.T) {
	for _, p := range []*Plan{all(), shared()} {
		flipBits(t, mustEncode(t, p))
	}
}

func flipBits(t *testing.T, data []byte) {
	t.Helper()
	for bit := range 8 * len(data) {
		flipped := append([]byte(nil), data...)
		flipped[bit/8] ^= 1 << (bit % 8)
		p, err := Decode(flipped)
		if p != nil || err == nil {
			t.Fatalf("accepted with bit %d of byte %d flipped", bit%8, bit/8)
		}
		if class := classOf(t, err); class != flippedClass(flipped, bit/8) {
			t.Fatalf("bit %d of byte %d: class %s, expected %s: %v", bit%8, bit/8, class, flippedClass(flipped, bit/8), err)
		}
	}
}

// flippedClass is the class of the error for a file with a flipped bit in byte i.
func flippedClass(file []byte, i int) Class {
	switch {
	case i < versionAt:
		return ClassBadMagic
	case i < sectionsAt && binary.LittleEndian.Uint32(file[versionAt:]) > VersionShares:
		return ClassNewerVersion
	case i < sectionsAt:
		return ClassBadVersion
	case i >= lengthAt && i < checksumAt && binary.LittleEndian.Uint64(file[lengthAt:]) > uint64(len(file)):
		return ClassTruncated
	case i >= lengthAt && i < checksumAt:
		return ClassTrailing
	}
	return ClassChecksum
}

func TestNewerVersion(t *testing.T) {
	data := mustEncode(t, sample())
	data[versionAt] = 7
	_, err := Decode(data)
	if !errors.Is(err, ErrNewerVersion) {
		t.Fatalf("%v is not ErrNewerVersion", err)
	}
	const want = "byte 8: version: plan format 7 is newer than 2, the newest that this stplan reads; upgrade stplan"
	if err.Error() != want {
		t.Errorf("error %q, expected %q", err, want)
	}
	if _, err = Decode(data[:4]); errors.Is(err, ErrNewerVersion) {
		t.Errorf("%v is ErrNewerVersion", err)
	}
}

// TestChecksum compares with CRC-64/XZ computed bit by bit.
func TestChecksum(t *testing.T) {
	naive := func(data []byte) uint64 {
		crc := ^uint64(0)
		for _, b := range data {
			crc ^= uint64(b)
			for range 8 {
				crc = crc>>1 ^ -(crc&1)&0xc96c5795d7870f42
			}
		}
		return ^crc
	}
	if got := naive([]byte("123456789")); got != 0x995dc9bbdf1939fa {
		t.Fatalf("the reference gives %016x for the check value of CRC-64/XZ", got)
	}
	data := mustEncode(t, sample())
	stored := binary.LittleEndian.Uint64(data[24:])
	zeroed := append([]byte(nil), data...)
	copy(zeroed[24:32], make([]byte, 8))
	if want := naive(zeroed); stored != want {
		t.Errorf("checksum %016x, expected %016x", stored, want)
	}
}

// TestEncodeRefuses checks the errors of Encode. The vectors check the rules one by
// one, as files.
func TestEncodeRefuses(t *testing.T) {
	change := func(f func(d *Device)) *Plan {
		p := sample()
		f(&p.Devices[0])
		return p
	}
	for _, c := range []struct {
		name string
		plan *Plan
		want string
	}{
		{"no devices", &Plan{Producer: "x"}, "invalid plan: 0 devices, expected 1 to 65536"},
		{"too many devices", &Plan{Producer: "x", Devices: make([]Device, maxDevices+1)}, "invalid plan: 65537 devices, expected 1 to 65536"},
		{"no producer", &Plan{Devices: sample().Devices}, "invalid plan: producer: 0 bytes, expected 1 to 255"},
		{"too many streams", change(func(d *Device) { d.Streams = make([]uint64, maxStreams+1) }), "invalid plan: device 0: stream 65536: the device has 65537, expected at most 65536"},
		{"slot", change(func(d *Device) { d.Slots[2].Offset = 3073 }), "invalid plan: device 0: slot 2: offset: 3073 is not a multiple of the alignment 512"},
	} {
		if data, err := Encode(c.plan); err == nil || err.Error() != c.want || data != nil {
			t.Errorf("%s: error %v, expected %q", c.name, err, c.want)
		}
	}
}

// TestDecodeAllocates bounds the memory that Decode takes for a small file with counts
// that claim a lot.
func TestDecodeAllocates(t *testing.T) {
	data := mustEncode(t, all())
	for at := sectionsAt; at < headerBytes+22*entryBytes; at += 4 {
		hostile := append([]byte(nil), data...)
		binary.LittleEndian.PutUint32(hostile[at:], 0x7ffffff1)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Decode(seal(hostile))
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<10 {
			t.Errorf("a hostile value at byte %d takes %d B for a file of %d B (%v)", at, took, len(data), err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	f.Add(mustEncode(f, all()), true)
	f.Add(mustEncode(f, minimal()), false)
	f.Add(mustEncode(f, shared()), true)
	f.Add(mustEncode(f, random(r)), true)
	f.Add([]byte(magic), false)
	f.Fuzz(func(t *testing.T, data []byte, sealed bool) {
		if sealed && len(data) >= headerBytes { // past the checksum, to the structure
			data = seal(append([]byte(nil), data...))
		}
		p, err := Decode(data)
		if err != nil {
			if p != nil {
				t.Error("a plan beside an error")
			}
			classOf(t, err)
			return
		}
		if again, err := Encode(p); err != nil || string(again) != string(data) {
			t.Errorf("an accepted file encodes to other bytes (%v)", err)
		}
	})
}

// TestVersion: a plan is of version 2 if and only if some slot of some device shares its
// place. The vectors check that a reader demands it.
func TestVersion(t *testing.T) {
	both := all()
	d := shared().Devices[0]
	d.Ordinal, d.Rank = 9, both.Devices[0].Rank
	both.Devices = append(both.Devices, d)
	for _, c := range []struct {
		name string
		plan *Plan
		want uint32
	}{{"sample", sample(), 1}, {"periodic", periodic(), 1}, {"shared", shared(), 2}, {"a sharing device behind others", both, 2}} {
		data := mustEncode(t, c.plan)
		if got := binary.LittleEndian.Uint32(data[versionAt:]); got != c.want || c.plan.Version() != c.want {
			t.Errorf("%s: version %d in the file, %d in memory, expected %d", c.name, got, c.plan.Version(), c.want)
		}
		if p, err := Decode(data); err != nil || p.Version() != c.want {
			t.Errorf("%s: decoded with error %v", c.name, err)
		}
	}
}

// TestKeptEnds: a holder keeps its place until the last slot that shares it has ended.
func TestKeptEnds(t *testing.T) {
	d := &shared().Devices[0]
	requested, completed := d.KeptEnds()
	if want := []uint64{10, 7, 7, 10, 1, 3, 3, 4, 4, 2, 2}; !slices.Equal(requested, want) {
		t.Errorf("requested ends %d, expected %d", requested, want)
	}
	if want := []uint64{10, 11, 11, 11, 1, 5, 5, 4, 4, 2, 2}; !slices.Equal(completed, want) {
		t.Errorf("completed ends %d, expected %d", completed, want)
	}
	if got, want := fmt.Sprint(d.Shared()), "[false true true false false true true false false true true]"; got != want {
		t.Errorf("shared %s, expected %s", got, want)
	}
	if !d.Shares() || periodic().Devices[0].Shares() {
		t.Error("a plan shares places that should not, or the other way round")
	}
	d.Slots[2].Cell, d.Slots[6].Cell = NoCell, 6 // neither names a slot before it
	requested, _ = d.KeptEnds()
	if requested[1] != 5 || requested[5] != 2 || d.Shared()[1] {
		t.Errorf("requested ends %d by holders that there cannot be", requested)
	}
}

func TestNames(t *testing.T) {
	got := strings.Join([]string{ModeRecorded.String(), ModePeriodic.String(), Mode(9).String(), EndRequested.String(), EndCompleted.String(), EndKind(9).String(),
		PhasePrologue.String(), PhaseBody.String(), PhaseKind(9).String()}, " ")
	if want := "recorded periodic mode 9 requested completed end 9 prologue body phase kind 9"; got != want {
		t.Errorf("names %q, expected %q", got, want)
	}
	d := &sample().Devices[0]
	if d.SlotEnd(3) != 10 {
		t.Errorf("slot 3 ends at %d, expected its requested end 10", d.SlotEnd(3))
	}
	d.End = EndCompleted
	if d.SlotEnd(3) != 14 {
		t.Errorf("slot 3 ends at %d, expected its completed end 14", d.SlotEnd(3))
	}
}

// million is a plan of 2^20 slots and a quarter as many waits.
func million() *Plan {
	const n = 1 << 20
	p := minimal()
	d := &p.Devices[0]
	d.Events, d.ArenaBytes, d.Certificate.Gap, d.Streams = n+1, 512, 512, []uint64{0}
	for i := range uint64(n) {
		d.Slots = append(d.Slots, Slot{Start: i, RequestedEnd: i + 1, CompletedEnd: i + 1, Size: 512, Requested: 1, Least: 1, Occurrences: 1, Cell: NoCell})
		if i%4 == 3 {
			d.Waits = append(d.Waits, Wait{uint32(i), uint32(i - 1), WaitPending})
		}
	}
	return p
}

func BenchmarkEncode(b *testing.B) {
	p := million()
	for b.Loop() {
		data := mustEncode(b, p)
		b.SetBytes(int64(len(data)))
	}
}

func BenchmarkDecode(b *testing.B) {
	data := mustEncode(b, million())
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := Decode(data); err != nil {
			b.Fatal(err)
		}
	}
}

// endless is a stream of start and then zeros without end. It counts the bytes read.
type endless struct {
	start []byte
	taken int64
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.start)
	e.start = e.start[n:]
	clear(p[n:])
	e.taken += int64(len(p))
	return len(p), nil
}

// TestReadTakesNoMoreThanItNeeds: a stream that is not a plan, or that goes on after a
// plan, is not read to its end.
func TestReadTakesNoMoreThanItNeeds(t *testing.T) {
	zeros := &endless{}
	if _, err := Read(zeros); classOf(t, err) != ClassBadMagic || zeros.taken > 64<<10 {
		t.Errorf("%v after %d bytes, want bad-magic after the header", err, zeros.taken)
	}
	data := mustEncode(t, sample())
	more := &endless{start: data}
	if _, err := Read(more); classOf(t, err) != ClassTrailing || more.taken > int64(len(data))+64<<10 {
		t.Errorf("%v after %d bytes, want trailing-data soon after %d", err, more.taken, len(data))
	}
	broken := errors.New("disk on fire")
	if _, err := Read(io.MultiReader(bytes.NewReader(data[:100]), iotest.ErrReader(broken))); err != broken {
		t.Errorf("error %v, want the reader's own", err)
	}
}
