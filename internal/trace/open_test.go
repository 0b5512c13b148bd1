package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stplan/stplan/internal/trace/parquet"
)

// A Parquet trace is recognized by its first bytes, in a file and in a stream.
func TestReadEitherWay(t *testing.T) {
	data := smallFile(t)
	path := filepath.Join(t.TempDir(), "any.name")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	fromFile, err := ReadFile(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var done, total int64
	fromStream, err := Read(io.MultiReader(bytes.NewReader(data)), "standard input", Options{Progress: func(d, n int64) { done, total = d, n }})
	if err != nil {
		t.Fatal(err)
	}
	if fromFile.Name != path || fromStream.Name != "standard input" {
		t.Errorf("names %q and %q", fromFile.Name, fromStream.Name)
	}
	if !reflect.DeepEqual(canonical(fromFile), canonical(fromStream)) {
		t.Error("a file and a stream differ")
	}
	if total != int64(len(data)) || done == 0 || done > total {
		t.Errorf("progress ended at %d of %d, file of %d", done, total, len(data))
	}
}

func TestReadFileErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadFile(filepath.Join(dir, "absent"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	if _, err := ReadFile(dir, Options{}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("folder: %v", err)
	}
	_, err := ReadFile(filepath.Join(dir, "absent"), Options{})
	wantText(t, err, filepath.Join(dir, "absent")+": cannot read: no such file or directory")
	_, err = ReadFile(dir, Options{})
	wantText(t, err, dir+": cannot read: is a directory")
	plan := filepath.Join(dir, "plan")
	if err := os.WriteFile(plan, []byte("\x89STPLAN\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = ReadFile(plan, Options{})
	wantProblem(t, err, plan+": this is a plan; expected a trace: a memory snapshot, a history or a Parquet file")
	_, err = Read(strings.NewReader("\x89STPLAN\r\n"), "standard input", Options{})
	wantProblem(t, err, "standard input: this is a plan; expected a trace: a memory snapshot, a history or a Parquet file")
	_, err = Read(strings.NewReader("\x89STP"), "standard input", Options{})
	wantProblem(t, err, "standard input: byte 0: not a pickle of protocol 2 to 5: expected the byte 0x80, found 0x89")
	encrypted := filepath.Join(dir, "encrypted")
	if err := os.WriteFile(encrypted, []byte("PARE and so on PARE"), 0o600); err != nil {
		t.Fatal(err)
	}
	const pare = `: this is an encrypted Parquet file (it begins with "PARE"); expected one that is not encrypted`
	_, err = ReadFile(encrypted, Options{})
	wantProblem(t, err, encrypted+pare)
	_, err = Read(strings.NewReader("PARE and so on PARE"), "standard input", Options{})
	wantProblem(t, err, "standard input"+pare)
	cut := filepath.Join(dir, "cut")
	if err := os.WriteFile(cut, []byte("PAR1 and no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = ReadFile(cut, Options{})
	wantProblem(t, err, cut+`: byte 12: expected "PAR1", found "more"; the file is truncated or not Parquet`)
	_, err = Read(strings.NewReader("PAR1 and no more"), "standard input", Options{})
	wantProblem(t, err, `standard input: byte 12: expected "PAR1", found "more"; the file is truncated or not Parquet`)
	_, err = decode(smallFile(t), Options{Base: &Trace{}})
	wantProblem(t, err, "t.parquet: a Parquet trace has the state in which it begins; a base is only for a memory snapshot")
}

func wantText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// watched checks the folder of temporary files while a stream is read.
type watched struct {
	io.Reader
	t   *testing.T
	dir string
}

func (w watched) Read(p []byte) (int, error) {
	if files, err := os.ReadDir(w.dir); runtime.GOOS != "windows" && (err != nil || len(files) > 0) {
		w.t.Errorf("%d files while reading, %v", len(files), err)
	}
	return w.Reader.Read(p)
}

// The copy of a stream has no name in its folder, and has a size limit.
func TestSpool(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	data := smallFile(t)
	in := func() io.Reader { return watched{iotest.OneByteReader(bytes.NewReader(data)), t, dir} }
	if _, err := readSpooled(in(), "pipe", int64(len(data)), Options{}); err != nil {
		t.Error(err)
	}
	_, err := readSpooled(in(), "pipe", int64(len(data))-1, Options{})
	wantProblem(t, err, fmt.Sprintf("pipe: a Parquet trace of more than %d B, the most that is copied from a stream; give the name of a file instead", len(data)-1))
	_, err = readSpooled(&failing{bytes.NewReader(data), 9}, "pipe", 1<<20, Options{})
	wantText(t, err, "pipe: cannot read: disk on fire")
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("%d files are left", len(files))
	}
}

// A recording without events, such as a base, is all metadata.
func TestRoundTripWithoutEvents(t *testing.T) {
	tr := &Trace{Devices: []Device{{Ordinal: 1, Final: []Segment{{Address: 512, Size: 512, Blocks: []Block{{512, 512, 7, BlockAllocated, None}}}}}}, Notes: []string{"a"}}
	data := encode(t, tr)
	got, err := decode(data, Options{AllowNoEvents: true})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(canonical(tr), canonical(got)) {
		t.Errorf("got %+v, want %+v", got, tr)
	}
	_, err = decode(data, Options{})
	wantProblem(t, err, "t.parquet: empty trace: no device has an event; "+advice)
}

// Neither the bytes written nor the trace read depend on the number of cores.
func TestDeterminism(t *testing.T) {
	tr := randomTrace(1, parquet.GroupRows)
	var data [2][]byte
	var read [2]*Trace
	for i, procs := range []int{1, 8} {
		old := runtime.GOMAXPROCS(procs)
		data[i] = encode(t, tr)
		var err error
		read[i], err = decode(data[i], Options{})
		runtime.GOMAXPROCS(old)
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(data[0], data[1]) || !reflect.DeepEqual(read[0], read[1]) {
		t.Error("one core and eight differ")
	}
}

// fullDisk takes left bytes and then fails.
type fullDisk struct{ left int }

var errFull = errors.New("disk full")

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.left -= len(p); d.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// An error of the writer is returned from any part of the file, also from the footer.
func TestWriteErrors(t *testing.T) {
	tr := randomTrace(3, 40)
	size := len(encode(t, tr))
	for _, left := range []int{0, 3, size / 2, size - 1} {
		err := WriteParquet(&fullDisk{left}, tr, Options{})
		if !errors.Is(err, errFull) || err.Error() != "write trace: disk full" {
			t.Errorf("room for %d of %d B: %v", left, size, err)
		}
	}
	tr.Devices[0].Events[0].Stack = 1 << 20
	err := WriteParquet(io.Discard, tr, Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "write trace: device ") {
		t.Errorf("stack out of range: %v", err)
	}
}

func TestWriteProgress(t *testing.T) {
	tr := randomTrace(1, parquet.GroupRows)
	var calls [][2]int64
	if err := WriteParquet(io.Discard, tr, Options{Progress: func(done, total int64) { calls = append(calls, [2]int64{done, total}) }}); err != nil {
		t.Fatal(err)
	}
	var rows int64
	for _, d := range tr.Devices {
		rows += int64(len(d.Events) + len(d.Annotations))
	}
	if n := len(calls); n < 2 || calls[n-1] != [2]int64{rows, rows} || calls[0][0] != parquet.GroupRows {
		t.Errorf("progress %v for %d rows", calls, rows)
	}
}
