package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// historyFile makes a history by docs/history.md: it shares nothing with the reader.
type historyFile struct {
	version uint32 // 0 is 3
	rank    int32
	devices []historyDeviceFile
}

type historyDeviceFile struct {
	ordinal, flags     uint32
	streams            []uint64
	records            []byte
	count, allocations uint64
}

// record appends a record's numbers, the first with its kind.
func (d *historyDeviceFile) record(kind, first uint64, rest ...uint64) {
	d.count++
	if kind < 4 {
		d.allocations++
	}
	d.records = binary.AppendUvarint(d.records, first<<3|kind)
	for _, v := range rest {
		d.records = binary.AppendUvarint(d.records, v)
	}
}

func (f *historyFile) encode() []byte {
	le := binary.LittleEndian
	version := f.version
	if version == 0 {
		version = 3
	}
	out := le.AppendUint32([]byte("\x89STPHIS\n"), version)
	out = le.AppendUint32(out, uint32(len(f.devices)))
	out = append(out, make([]byte, 16)...)
	out = le.AppendUint32(out, uint32(f.rank))
	out = le.AppendUint32(out, 0)
	for _, d := range f.devices {
		out = le.AppendUint32(out, d.ordinal)
		out = le.AppendUint32(out, uint32(len(d.streams)))
		for _, v := range []uint64{uint64(len(d.records)), d.count, d.allocations, uint64(d.flags)} {
			out = le.AppendUint64(out, v)
		}
	}
	for _, d := range f.devices {
		for _, s := range d.streams {
			out = le.AppendUint64(out, s)
		}
		out = append(out, d.records...)
		for len(out)%8 != 0 {
			out = append(out, 0)
		}
	}
	le.PutUint64(out[16:], uint64(len(out)))
	return signed(out)
}

// signed puts the right checksum into a history.
func signed(data []byte) []byte {
	binary.LittleEndian.PutUint64(data[24:], 0)
	const polynomial = 0xc96c5795d7870f42
	sum := ^uint64(0)
	for _, b := range data {
		sum ^= uint64(b)
		for range 8 {
			sum = sum>>1 ^ polynomial*(sum&1)
		}
	}
	binary.LittleEndian.PutUint64(data[24:], ^sum)
	return data
}

// smallHistory has each kind of record.
func smallHistory() *historyFile {
	d := historyDeviceFile{ordinal: 3, streams: []uint64{0, 0x7f00}}
	d.record(1, 4)          // 2048 B on stream 0
	d.record(0, 100)        // 100 B on stream 0
	d.record(3, 2, 1)       // 1024 B on stream 1
	d.record(5, 2, 1)       // the 2048 B are used on stream 1
	d.record(4, 2)          // and freed
	d.record(6, 1)          // a step of the first optimizer
	d.record(1, 4)          // 2048 B on stream 1
	d.record(6, 0)          // a mark
	d.record(2, 1<<20+1, 0) // on stream 0
	d.record(4, 1)          // the second 2048 B
	return &historyFile{rank: 5, devices: []historyDeviceFile{d}}
}

func readHistory(data []byte) (*Trace, error) {
	return ReadHistory(bytes.NewReader(data), "run.history", Options{})
}

func TestReadHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.history")
	if err := os.WriteFile(path, smallHistory().encode(), 0o666); err != nil {
		t.Fatal(err)
	}
	read, err := ReadFile(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &read.Devices[0]
	type plain struct {
		Action Action
		Addr   uint64
		Size   Bytes
		Stream uint64
	}
	var found []plain
	for _, e := range d.Events {
		found = append(found, plain{e.Action, e.Addr - 1<<40, e.Size, e.Stream})
	}
	want := []plain{
		{ActionAlloc, 0, 2048, 0},
		{ActionAlloc, 2048, 100, 0},
		{ActionAlloc, 2560, 1024, 0x7f00},
		{ActionFreeRequested, 0, 2048, 0},
		{ActionFreeCompleted, 0, 2048, 0},
		{ActionAlloc, 0, 2048, 0x7f00},
		{ActionAlloc, 3584, 1<<20 + 1, 0},
		{ActionFreeRequested, 0, 2048, 0x7f00},
		{ActionFreeCompleted, 0, 2048, 0x7f00},
	}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("events %v, expected %v", found, want)
	}
	marks := []Annotation{{Name: "Optimizer.step#1", End: true, At: 5}, {Name: "stplan.mark", At: 6}}
	if !reflect.DeepEqual(d.Annotations, marks) {
		t.Errorf("annotations %v, expected %v", d.Annotations, marks)
	}
	if d.Ordinal != 3 || !d.AddressesInvented || len(d.Initial) > 0 {
		t.Errorf("device %d, invented %v, %d initial segments", d.Ordinal, d.AddressesInvented, len(d.Initial))
	}
	if notes := strings.Join(read.Notes, "; "); notes != "a history that stplan kept of rank 5: it has no addresses and no segments" {
		t.Errorf("notes: %s", notes)
	}
}

// exchangesInVersion1 is a history that has what came with version 2.
func exchangesInVersion1() []byte {
	f := smallHistory()
	f.version = 1
	f.devices[0].record(7, 0)
	return f.encode()
}

// failureInVersion2 is a history that has what came with version 3.
func failureInVersion2() []byte {
	f := smallHistory()
	f.version = 2
	f.devices[0].record(6, 256, 1, 0, 0)
	return f.encode()
}

// TestFormerVersions: histories of before are read, with the same result.
func TestFormerVersions(t *testing.T) {
	for version := range uint32(2) {
		old := smallHistory()
		old.version = version + 1
		before, err := readHistory(old.encode())
		if err != nil {
			t.Fatal(err)
		}
		now, err := readHistory(smallHistory().encode())
		if err != nil || !reflect.DeepEqual(before, now) {
			t.Errorf("version %d, %v: found %v, expected %v", old.version, err, before, now)
		}
	}
}

// TestAHistoryWithFailures: requests that got no memory are events as in a snapshot, and the
// last one ends the recording unless something is allocated after it.
func TestAHistoryWithFailures(t *testing.T) {
	d := historyDeviceFile{streams: []uint64{0, 0x7f00}}
	d.record(1, 1)                // block 0
	d.record(6, 256, 5000, 1, 1)  // no memory
	d.record(0, 100)              // block 1, on the stream of block 0
	d.record(6, 256, 70000, 0, 3) // no memory, and again
	d.record(6, 256, 70000, 0, 4)
	d.record(4, 0) // block 1 is freed
	read, err := readHistory((&historyFile{devices: []historyDeviceFile{d}}).encode())
	if err != nil {
		t.Fatal(err)
	}
	type plain struct {
		Action Action
		Size   Bytes
		Stream uint64
		Had    uint64
	}
	var found []plain
	for _, e := range read.Devices[0].Events {
		p := plain{e.Action, e.Size, e.Stream, 0}
		if e.Action == ActionOOM {
			p.Had = e.Addr
		}
		found = append(found, p)
	}
	want := []plain{{ActionAlloc, 512, 0, 0}, {ActionOOM, 5000, 0x7f00, 512}, {ActionAlloc, 100, 0, 0}, {ActionOOM, 70000, 0, 1536},
		{ActionOOM, 70000, 0, 2048}, {ActionFreeRequested, 100, 0, 0}, {ActionFreeCompleted, 100, 0, 0}}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("events %v, expected %v", found, want)
	}
	if f := read.Devices[0].Failures(); !f.Fatal || f.FatalAt() != 4 || len(f.At) != 3 {
		t.Errorf("failures %+v", f)
	}
}

// TestAHistoryWithExchanges: what another stream used is held until every exchange that had begun
// by its free is awaited, and everything else is not.
func TestAHistoryWithExchanges(t *testing.T) {
	d := historyDeviceFile{streams: []uint64{0, 0x7f00}}
	d.record(1, 1)    // block 0
	d.record(5, 0, 1) // is used by the other stream
	d.record(1, 2)    // block 1
	d.record(7, 0)    // exchange 1 begins
	d.record(4, 1)    // block 0 is freed
	d.record(4, 0)    // block 1 is freed, which nobody else used
	d.record(7, 1, 1) // the other stream waits for exchange 1
	d.record(7, 0)    // exchange 2 begins
	d.record(1, 1)    // block 2
	d.record(7, 2, 0) // the first stream waits for exchange 1
	d.record(5, 0, 1) // block 2 is used by the other stream
	d.record(4, 0)    // and freed
	d.record(6, 1)    // a step
	d.record(7, 1, 0) // the first stream waits for exchange 2, and again
	d.record(7, 1, 0)
	d.record(7, 0)    // exchange 3 begins, and nobody waits for it
	d.record(1, 1)    // block 3
	d.record(5, 0, 1) // is used by the other stream
	d.record(4, 0)    // and freed
	f := &historyFile{devices: []historyDeviceFile{d}}
	read, err := readHistory(f.encode())
	if err != nil {
		t.Fatal(err)
	}
	type plain struct {
		Action Action
		Addr   uint64
	}
	var found []plain
	for _, e := range read.Devices[0].Events {
		found = append(found, plain{e.Action, e.Addr - 1<<40})
	}
	want := []plain{
		{ActionAlloc, 0}, {ActionAlloc, 512},
		{ActionFreeRequested, 0},
		{ActionFreeRequested, 512}, {ActionFreeCompleted, 512},
		{ActionAlloc, 1536}, // block 0 has its address yet
		{ActionFreeCompleted, 0},
		{ActionFreeRequested, 1536},
		{ActionFreeCompleted, 1536},
		{ActionAlloc, 1536},
		{ActionFreeRequested, 1536}, {ActionFreeCompleted, 1536},
	}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("events %v, expected %v", found, want)
	}
	exchanges := []Exchange{{2, []Await{{0x7f00, 5}, {0, 7}}}, {5, []Await{{0, 9}}}}
	if found := read.Devices[0].Exchanges(); !reflect.DeepEqual(found, exchanges) {
		t.Errorf("exchanges %v, expected %v", found, exchanges)
	}
}

// TestAHistoryKeepsItsMarkInParquet: that addresses are invented is known of the import too.
func TestAHistoryKeepsItsMarkInParquet(t *testing.T) {
	read, err := readHistory(smallHistory().encode())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := WriteParquet(&out, read, Options{}); err != nil {
		t.Fatal(err)
	}
	again, err := ReadParquet(bytes.NewReader(out.Bytes()), int64(out.Len()), "run.parquet", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d := &again.Devices[0]; !d.AddressesInvented || d.Fingerprint() != read.Devices[0].Fingerprint() {
		t.Errorf("invented %v; fingerprints equal: %v", d.AddressesInvented, d.Fingerprint() == read.Devices[0].Fingerprint())
	}
}

func TestAHistoryThatStopped(t *testing.T) {
	f := smallHistory()
	f.rank, f.devices[0].flags = -1, 1
	read, err := readHistory(f.encode())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a history that stplan kept of a process without a rank: it has no addresses and no segments",
		"device 3: the memory for the history was full after 10 records; what followed is missing"}
	if !reflect.DeepEqual(read.Notes, want) {
		t.Errorf("notes %q, expected %q", read.Notes, want)
	}
}

// TestHistoryProgram: what differs between ranks does not count, what the program does
// counts.
func TestHistoryProgram(t *testing.T) {
	program := func(change func(*historyFile)) [32]byte {
		f := smallHistory()
		change(f)
		sum, err := HistoryProgram(bytes.NewReader(f.encode()), "run.history")
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	one := program(func(*historyFile) {})
	same := program(func(f *historyFile) { f.rank, f.devices[0].ordinal, f.devices[0].streams[1] = 1, 0, 0x7e00 })
	other := program(func(f *historyFile) { f.devices[0].record(4, 0) })
	two := func(ordinal uint32) [32]byte {
		return program(func(f *historyFile) {
			f.devices = append(f.devices, f.devices[0])
			f.devices[1].ordinal = ordinal
		})
	}
	if one != same || one == other || two(4) == two(5) {
		t.Errorf("equal programs: %v; different ones: %v; on other devices: %v", one == same, one == other, two(4) == two(5))
	}
}

// TestHistoriesThatAreRefused has a file for each rule of docs/history.md.
func TestHistoriesThatAreRefused(t *testing.T) {
	file := func(change func(d *historyDeviceFile)) []byte {
		f := smallHistory()
		change(&f.devices[0])
		return f.encode()
	}
	records := func(build func(d *historyDeviceFile)) []byte {
		return file(func(d *historyDeviceFile) {
			d.records, d.count, d.allocations = nil, 0, 0
			d.record(1, 1)
			build(d)
		})
	}
	poke := func(at int, b byte) []byte {
		data := smallHistory().encode()
		data[at] = b
		return signed(data)
	}
	small := smallHistory().encode()
	devices := func(change func(f *historyFile)) []byte {
		f := smallHistory()
		f.devices = append(f.devices, f.devices[0])
		f.devices[1].ordinal++
		change(f)
		return f.encode()
	}
	cases := []struct {
		name    string
		data    []byte
		problem string
	}{
		{"magic", []byte("\x89STPLAN\n"), `byte 0: starts with "\x89STPLAN\n", expected "\x89STPHIS\n": this is no history`},
		{"header cut off", small[:39], "byte 39: the file ends in its header, which has 40 B"},
		{"version", poke(8, 4), "byte 8: version 4, expected 1 to 3"},
		{"no version", poke(8, 0), "byte 8: version 0, expected 1 to 3"},
		{"cut off", small[:len(small)-1], "byte 16: the file has 119 B, its header says 120"},
		{"longer", append(bytes.Clone(small), 0), "byte 16: the file has 121 B, its header says 120"},
		{"checksum", append(bytes.Clone(small[:119]), 1), "byte 24: checksum "},
		{"no device", poke(12, 0), "byte 12: 0 devices, expected 1 to 64"},
		{"too many devices", poke(12, 65), "byte 12: 65 devices, expected 1 to 64"},
		{"devices beyond the end", poke(12, 3), "byte 120: the file ends in the records of its 3 devices"},
		{"rank", devices(func(f *historyFile) { f.rank = -2 }), "byte 32: rank -2, expected -1 or more"},
		{"unused bytes", poke(36, 1), "byte 36: 1 in unused bytes, expected 0"},
		{"ordinal", file(func(d *historyDeviceFile) { d.ordinal = 1 << 15 }), "byte 40: device ordinal 32768 is outside 0 to 32767"},
		{"ordinals out of order", devices(func(f *historyFile) { f.devices[1].ordinal = 3 }), "device 3 after device 3"},
		{"no stream", poke(44, 0), "byte 44: 0 streams, expected 1 to 64"},
		{"too many streams", poke(44, 65), "byte 44: 65 streams, expected 1 to 64"},
		{"records beyond the end", poke(49, 1), "byte 48: 2 streams and "},
		{"more records than bytes", file(func(d *historyDeviceFile) { d.count = 100 }), "byte 56: 100 records in "},
		{"no allocation", file(func(d *historyDeviceFile) { d.allocations = 0 }), "byte 64: 0 allocations among 10 records"},
		{"more allocations than records", file(func(d *historyDeviceFile) { d.allocations = 11 }), "byte 64: 11 allocations among 10 records"},
		{"flags", file(func(d *historyDeviceFile) { d.flags = 2 }), "byte 72: unknown flags 0x2"},
		{"wrong number of records", file(func(d *historyDeviceFile) { d.count++ }), "device 3: found 10 records, 5 of them allocations, expected 11 and 5"},
		{"too few allocations", file(func(d *historyDeviceFile) { d.allocations++ }), "device 3: found 10 records, 5 of them allocations, expected 10 and 6"},
		{"too many allocations", file(func(d *historyDeviceFile) { d.allocations-- }), "more than 4 allocations"},
		{"nothing in bytes", records(func(d *historyDeviceFile) { d.record(0, 0) }), "an allocation of 0 B, expected 1 to 281474976710656 B"},
		{"no units", records(func(d *historyDeviceFile) { d.record(1, 0) }), "an allocation of 0 B, expected 1 to"},
		{"too many units", records(func(d *historyDeviceFile) { d.record(1, 1<<39+1) }), "an allocation of 549755813889 units of 512 B, expected at most"},
		{"too many bytes", records(func(d *historyDeviceFile) { d.record(0, 1<<48+1) }), "an allocation of 281474976710657 B, expected"},
		{"units in bytes", records(func(d *historyDeviceFile) { d.record(0, 1024) }), "an allocation of 1024 B in bytes, expected it in units of 512 B"},
		{"unknown stream", records(func(d *historyDeviceFile) { d.record(3, 1, 2) }), "stream 2 is not one of 2"},
		{"the same stream", records(func(d *historyDeviceFile) { d.record(3, 1, 0) }), "stream 0 is named where it goes without saying"},
		{"a use on its own stream", records(func(d *historyDeviceFile) { d.record(5, 0, 0) }), "stream 0 is named where it goes without saying"},
		{"a free of nothing", records(func(d *historyDeviceFile) { d.record(4, 1) }), "1 allocations back of 1 there is none"},
		{"a double free", records(func(d *historyDeviceFile) { d.record(4, 0); d.record(4, 0) }), "allocation 0 has been freed before"},
		{"a use of what is freed", records(func(d *historyDeviceFile) { d.record(4, 0); d.record(5, 0, 1) }), "allocation 0 has been freed before"},
		{"mark", records(func(d *historyDeviceFile) { d.record(6, 257) }), "mark 257, expected at most 255"},
		{"a failure in version 2", failureInVersion2(), "mark 256, expected at most 255"},
		{"a failure of nothing", records(func(d *historyDeviceFile) { d.record(6, 256, 0, 0, 0) }), "a request of 0 B, expected 1 to 281474976710656 B"},
		{"a failure of too much", records(func(d *historyDeviceFile) { d.record(6, 256, 1<<48+1, 0, 0) }), "a request of 281474976710657 B, expected"},
		{"a failure on no stream", records(func(d *historyDeviceFile) { d.record(6, 256, 1, 2, 0) }), "stream 2 is not one of 2"},
		{"a failure with too much", records(func(d *historyDeviceFile) { d.record(6, 256, 1, 0, 1<<39+1) }), "549755813889 units of 512 B to have, expected at most"},
		{"a failure cut off", records(func(d *historyDeviceFile) { d.record(6, 256, 1) }), "the records end within a number"},
		{"an exchange in version 1", exchangesInVersion1(), "a record of the unknown kind 7"},
		{"a wait for no exchange", records(func(d *historyDeviceFile) { d.record(7, 0); d.record(7, 2, 0) }), "1 exchanges back of 1 there is none"},
		{"a wait of no stream", records(func(d *historyDeviceFile) { d.record(7, 0); d.record(7, 1, 2) }), "stream 2 is not one of 2"},
		{"a wait cut off", records(func(d *historyDeviceFile) { d.record(7, 0); d.record(7, 1) }), "the records end within a number"},
		{"a long number", records(func(d *historyDeviceFile) { d.count++; d.records = append(d.records, 0x8e, 0) }), "a number in 2 bytes that fits in fewer"},
		{"a number that is too large", records(func(d *historyDeviceFile) {
			d.count++
			d.records = append(d.records, bytes.Repeat([]byte{0xff}, 11)...)
		}), "a number of more than 64 bits"},
		{"a number cut off", records(func(d *historyDeviceFile) { d.count++; d.records = append(d.records, 0x80) }), "the records end within a number"},
		{"more than there are addresses", records(func(d *historyDeviceFile) {
			for range 1 << 15 {
				d.record(1, 1<<39)
			}
		}), "allocations take more than the address space"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			read, err := readHistory(c.data)
			var input *InputError
			if read != nil || !errors.As(err, &input) || !strings.HasPrefix(err.Error(), "run.history: ") || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("found %v, expected %q", err, c.problem)
			}
		})
	}
}

func TestPaddingOfAHistoryIsZero(t *testing.T) {
	f := smallHistory()
	for f.devices[0].record(4, 0); len(f.devices[0].records)%8 == 0; f.devices[0].record(6, 0) {
	}
	data := f.encode()
	data[len(data)-1] = 7
	if _, err := readHistory(signed(data)); err == nil || !strings.Contains(err.Error(), "0x7 in the padding, expected 0") {
		t.Errorf("found %v", err)
	}
}

func TestAHistoryTakesNoBase(t *testing.T) {
	_, err := ReadHistory(bytes.NewReader(smallHistory().encode()), "run.history", Options{Base: &Trace{}})
	if err == nil || !strings.Contains(err.Error(), "a history begins before the first allocation") {
		t.Errorf("found %v", err)
	}
}

// TestEveryFlippedBitOfAHistoryIsFound: the checksum finds it, or the header.
func TestEveryFlippedBitOfAHistoryIsFound(t *testing.T) {
	data := smallHistory().encode()
	for bit := range 8 * len(data) {
		data[bit/8] ^= 1 << (bit % 8)
		if _, err := readHistory(data); err == nil {
			t.Errorf("bit %d of byte %d", bit%8, bit/8)
		}
		data[bit/8] ^= 1 << (bit % 8)
	}
}

// randomHistory makes a history of random requests.
func randomHistory(r *rand.Rand, requests int) *historyFile {
	d := historyDeviceFile{streams: []uint64{0, 1, 2}}
	var live []uint64 // numbers of allocations
	stream, exchanges := uint64(0), uint64(0)
	for range requests {
		switch k := r.IntN(11); {
		case k < 4 || len(live) == 0:
			kind, size := uint64(1), uint64(r.IntN(1000)+1)
			if r.IntN(2) == 0 {
				kind, size = 0, size*512-1
			}
			live = append(live, d.allocations)
			if to := r.Uint64N(3); to != stream {
				stream = to
				d.record(kind+2, size, to)
			} else {
				d.record(kind, size)
			}
		case k < 7:
			at := r.IntN(len(live))
			d.record(4, d.allocations-1-live[at])
			live = append(live[:at], live[at+1:]...)
		case k < 8:
			d.record(5, d.allocations-1-live[len(live)-1], stream^1) // the last one is of this stream
		case k < 9:
			d.record(7, 0)
			exchanges++
		case k < 10 && exchanges > 0:
			d.record(7, r.Uint64N(exchanges)+1, r.Uint64N(3))
		case k < 10:
			d.record(6, 256, r.Uint64N(1<<20)+1, r.Uint64N(3), r.Uint64N(1<<20))
		default:
			d.record(6, r.Uint64N(3))
		}
	}
	return &historyFile{rank: -1, devices: []historyDeviceFile{d}}
}

// FuzzHistory expects for every file a valid Trace or an error, and memory within a
// multiple of the file's size. The checksum of the input is made right, so that what is
// behind it is searched.
func FuzzHistory(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	f.Add(smallHistory().encode())
	for _, n := range []int{1, 10, 1000} {
		f.Add(randomHistory(r, n).encode())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		data = bytes.Clone(data)
		if len(data) >= historyHeader {
			copy(data, historyMagic)
			binary.LittleEndian.PutUint32(data[8:], HistoryVersion)
			binary.LittleEndian.PutUint64(data[16:], uint64(len(data)))
			signed(data)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		read, err := readHistory(data)
		runtime.ReadMemStats(&after)
		if limit := uint64(8<<20 + 1000*len(data)); after.TotalAlloc-before.TotalAlloc > limit {
			t.Errorf("%d bytes allocated for a file of %d", after.TotalAlloc-before.TotalAlloc, len(data))
		}
		if (read == nil) == (err == nil) {
			t.Fatalf("trace %v with error %v", read, err)
		}
		if err == nil {
			if err := read.validate(false, entryOf); err != nil {
				t.Error(err)
			}
		}
	})
}
