package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
)

var testFields = []Field{
	{Name: "small", Kind: Signed32}, {Name: "indexed", Kind: Unsigned}, {Name: "plain", Kind: Unsigned, Encoding: Plain},
	{Name: "delta", Kind: Signed, Encoding: Delta}, {Name: "text", Kind: Text}, {Name: "some", Kind: Text, Nullable: true},
}

// written writes row groups of the given numbers of rows, and returns the file and
// what it should hold.
func written(t *testing.T, seed uint64, sizes ...int) ([]byte, map[string][]string) {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, "test", testFields, [][2]string{{"key", "value"}, {"empty", ""}})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	texts := []string{"", "a", "é\x00\n", "a", "long enough to be longer"}
	text := NewDictionary(10, len(texts), func(id int32) string { return texts[id] })
	some := NewDictionary(0, len(texts), func(id int32) string { return texts[id] })
	want := map[string][]string{}
	for _, n := range sizes {
		small, indexed := []uint64{5, ^uint64(6), 1 << 31}, []uint64{1 << 63, 0, 7}
		rows, wide := make([]int32, n), make([]int64, n)
		text.Reset()
		some.Reset()
		for i := range n {
			rows[i], wide[i] = int32(r.IntN(3)), int64(r.Uint64()>>r.IntN(64))
			id, other := int32(r.IntN(len(texts))), int32(r.IntN(len(texts)+1))-1
			text.Add(id)
			some.Add(other)
			values := []any{int32(small[rows[i]]), indexed[rows[i]], uint64(wide[i]), wide[i], texts[id], "null"}
			if other != None {
				values[5] = texts[other]
			}
			for k, f := range testFields {
				want[f.Name] = append(want[f.Name], fmt.Sprint(values[k]))
			}
		}
		if text.Bytes() > 30 {
			t.Errorf("%d B of distinct text", text.Bytes())
		}
		err := w.Group(func(field int, c *ColumnWriter) error {
			switch field {
			case 0:
				return c.Indexed(small, rows)
			case 1:
				return c.Indexed(indexed, rows)
			case 2, 3:
				return c.Ints(wide)
			case 4:
				return c.Texts(text)
			}
			return c.Texts(some)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), want
}

func TestRoundTrip(t *testing.T) {
	var wanted []Wanted
	for _, f := range testFields {
		wanted = append(wanted, Wanted{Name: f.Name, Kind: f.Kind, Required: !f.Nullable})
	}
	for _, sizes := range [][]int{{1}, {1000}, {3, 200, 50}, {GroupRows, 1}} {
		data, want := written(t, 7, sizes...)
		got, err := contents(data, wanted)
		if err != nil {
			t.Fatal(err)
		}
		for name := range want {
			if !reflect.DeepEqual(got[name], want[name]) {
				t.Errorf("rows %v, column %s: read\n%.300v\nwant\n%.300v", sizes, name, got[name], want[name])
			}
		}
		f, err := Open(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		if v, e, none := f.Metadata("key"), f.Metadata("empty"), f.Metadata("other"); v == nil || *v != "value" || e == nil || *e != "" || none != nil {
			t.Errorf("metadata %v, %v, %v", v, e, none)
		}
	}
}

// The bytes do not depend on the number of cores.
func TestWriterIsDeterministic(t *testing.T) {
	var data [2][]byte
	for i, procs := range []int{1, 8} {
		old := runtime.GOMAXPROCS(procs)
		data[i], _ = written(t, 3, 5000, 700)
		runtime.GOMAXPROCS(old)
	}
	if !bytes.Equal(data[0], data[1]) {
		t.Error("one core and eight differ")
	}
}

// fullDisk takes left bytes and then fails.
type fullDisk struct{ left int }

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.left -= len(p); d.left < 0 {
		return 0, errDisk
	}
	return len(p), nil
}

// An error of the writer below comes back whenever it happens: in the magic, in a
// row group and in the footer.
func TestWriterPassesOnErrors(t *testing.T) {
	fields := []Field{{Name: "a", Kind: Signed, Encoding: Plain}}
	write := func(out *fullDisk) error {
		w, err := NewWriter(out, "test", fields, nil)
		if err != nil {
			return err
		}
		if err := w.Group(func(_ int, c *ColumnWriter) error { return c.Ints(make([]int64, 100)) }); err != nil {
			return err
		}
		return w.Close()
	}
	all := &fullDisk{1 << 20}
	if err := write(all); err != nil {
		t.Fatal(err)
	}
	size := 1<<20 - all.left
	for left := range size {
		if err := write(&fullDisk{left}); !errors.Is(err, errDisk) {
			t.Fatalf("room for %d of %d B: %v", left, size, err)
		}
	}
}

func TestColumnWriterRefuses(t *testing.T) {
	text := NewDictionary(1, 1, func(int32) string { return "" })
	for _, c := range []struct {
		field Field
		write func(c *ColumnWriter) error
		want  string
	}{
		{Field{Name: "a", Kind: Text}, func(c *ColumnWriter) error { return c.Ints([]int64{1}) }, "column a takes no integers of 64 bits"},
		{Field{Name: "a", Kind: Text}, func(c *ColumnWriter) error { return c.Indexed([]uint64{1}, []int32{0}) }, "column a takes no integers"},
		{Field{Name: "a"}, func(c *ColumnWriter) error { return c.Texts(text) }, "column a takes no text"},
		{Field{Name: "a", Encoding: Plain}, func(c *ColumnWriter) error { return c.Indexed([]uint64{1}, []int32{0}) }, "column a takes no dictionary"},
	} {
		w, err := NewWriter(&bytes.Buffer{}, "test", []Field{c.field}, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = w.Group(func(_ int, cw *ColumnWriter) error { return c.write(cw) })
		if err == nil || err.Error() != c.want {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}
