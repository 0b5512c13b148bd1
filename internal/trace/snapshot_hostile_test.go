package trace

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// stretched replaces a short text of a pickle by a long one. The text must be in the
// pickle once; all its uses refer to that place.
func stretched(t *testing.T, data []byte, short, long string) []byte {
	t.Helper()
	old := append([]byte{0x8c, byte(len(short))}, short...)
	if n := bytes.Count(data, old); n != 1 {
		t.Fatalf("%q is %d times in the pickle", short, n)
	}
	text := append(binary.LittleEndian.AppendUint32([]byte{'X'}, uint32(len(long))), long...)
	return bytes.Replace(data, old, text, 1)
}

// TestSharedWork reads files that use one long list or one long text in very many places.
// To look at all of it in each place takes minutes. In time proportional to the file's
// size, all of this test takes a fraction of a second.
func TestSharedWork(t *testing.T) {
	const places, length = 50_000, 4 << 20
	long := strings.Repeat("x", length)
	frame := newDict("filename", "f.py", "line", 1, "name", "f")
	entries := func(items func(i int) *pyDict) *pyDict {
		list := newList()
		for i := range places {
			list.items = append(list.items, items(i))
		}
		return snapshotDict(newList(), newList(list), newList())
	}

	broken := newList()
	for range length / 8 {
		broken.items = append(broken.items, frame)
	}
	broken.items = append(broken.items, nil)
	data := (&pickler{protocol: 4}).pickle(entries(func(i int) *pyDict {
		return entryDict("alloc", start+int64(i)<<20, 512, 0, 1, "frames", broken)
	}))
	checkWork(t, "a list that is no stack", data, "device 0: entry 0: frames: frame 524288: expected a stack frame, found None")

	data = (&pickler{protocol: 4}).pickle(entries(func(i int) *pyDict {
		f := newDict("filename", "FILE", "line", i, "name", "FILE")
		return entryDict("alloc", start+int64(i)<<20, 512, 0, 1, "frames", newList(f))
	}))
	checkWork(t, "a file name", stretched(t, data, "FILE", long), "")

	v := entries(func(i int) *pyDict {
		return entryDict([]string{"alloc", "FIRST", "SECOND"}[min(i, 1+i%2)], start, 512, 0, 1)
	})
	data = stretched(t, (&pickler{protocol: 4}).pickle(v), "FIRST", long+"1")
	checkWork(t, "names of actions", stretched(t, data, "SECOND", long+"2"), "")

	marks := newList()
	for i := range places {
		marks.items = append(marks.items, newDict("name", "NAME", "stage", "START", "device", 0, "time_us", i))
	}
	v = oneBlock()
	set(v, "external_annotations", marks)
	tr := checkWork(t, "a name of annotations", stretched(t, (&pickler{protocol: 4}).pickle(v), "NAME", long), "")
	began := time.Now()
	if err := WriteParquet(io.Discard, tr, Options{}); err != nil || time.Since(began) > mostWork {
		t.Errorf("writing a name of annotations: %v after %v", err, time.Since(began))
	}
}

// mostWork is far longer than one file of TestSharedWork may take, even on a busy machine.
const mostWork = 10 * time.Second

// checkWork expects a trace, or, unless want is empty, that error.
func checkWork(t *testing.T, what string, data []byte, want string) *Trace {
	t.Helper()
	began := time.Now()
	tr, err := readBytes(data, Options{})
	if took := time.Since(began); took > mostWork {
		t.Errorf("%s in many places: a file of %d bytes took %v", what, len(data), took)
	}
	if want != "" {
		wantProblem(t, err, "run.pickle: "+want)
	} else if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return tr
}

// repeated compresses n bytes that are one text again and again, after a beginning.
func repeated(t *testing.T, begin, again string, n int) []byte {
	t.Helper()
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(z, begin)
	for piece := strings.Repeat(again, 1+(1<<16)/len(again)); n > 0; n -= len(piece) {
		io.WriteString(z, piece)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestSnapshotBombs reads small files that decompress to pickles of very many values, or of
// one long text. All that is allocated stays within a few times the bound on what is in use:
// it includes what growing slices leave to the garbage collector.
func TestSnapshotBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("counts allocated bytes, which takes seconds, and minutes under the race detector")
	}
	const size = 160 << 20 // of the pickles
	const tooMuch = "run.pickle: byte #: the values up to here take # B of memory, expected at most # B for what was read of the file"
	for name, c := range map[string]struct{ begin, again, want string }{
		"lists":        {"\x80\x04", "]", tooMuch},
		"entries":      {"\x80\x04\x8c\x06action\x940\x8c\x05alloc\x940", "}(h\x00h\x01u0", tooMuch},
		"memo entries": {"\x80\x04N", "\x94", tooMuch},
		"a text":       {"\x80\x04X\xff\xff\xff\x7f", noise(220), tooMuch},
		"one letter": {"\x80\x04X\xff\xff\xff\x7f", "x",
			"run.pickle: byte #: # B of gzip data decompress to # B or more, expected at most # times the size plus # B: this is not a snapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			data := repeated(t, c.begin, c.again, size)
			allowed := int64(freeMemory + memoryPerByte*len(data))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := readBytes(data, Options{})
			runtime.ReadMemStats(&after)
			// The numbers depend on how slices grow, and on the compressor.
			if found := numbers.ReplaceAllString(fmt.Sprint(err), "#"); found != c.want {
				t.Errorf("%v\nexpected\n%s", err, c.want)
			}
			if used := int64(after.TotalAlloc - before.TotalAlloc); used > 6*allowed {
				t.Errorf("%d B of file made it allocate %d B, %d times the bound", len(data), used, used/allowed)
			}
		})
	}
}

var numbers = regexp.MustCompile(`[0-9]+`)

// noise is a text of n letters that does not compress.
func noise(n int) string {
	r := rand.New(rand.NewPCG(1, 1))
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('a' + r.IntN(26))
	}
	return string(text)
}
