package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
)

// column is a column that another tool might have written, its values in JSON.
type column struct {
	name   string
	typ    arrow.DataType
	values string
}

// foreign writes columns with Arrow's own writer.
func foreign(t testing.TB, columns []column, props ...pq.WriterProperty) []byte {
	t.Helper()
	var fields []arrow.Field
	var chunks []arrow.Column
	for _, c := range columns {
		values, _, err := array.FromJSON(memory.DefaultAllocator, c.typ, strings.NewReader(c.values), array.WithUseNumber())
		if err != nil {
			t.Fatal(err)
		}
		fields = append(fields, arrow.Field{Name: c.name, Type: c.typ, Nullable: true})
		chunks = append(chunks, arrow.NewColumnFromArr(fields[len(fields)-1], values))
	}
	table := array.NewTable(arrow.NewSchema(fields, nil), chunks, -1)
	var out bytes.Buffer
	if err := pqarrow.WriteTable(table, &out, 1<<20, pq.NewWriterProperties(props...), pqarrow.DefaultWriterProps()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// readAll calls read for every wanted column of every row group of a file.
func readAll(data []byte, wanted []Wanted, read func(group int, d *Decoder, g *RowGroup, k int, c *Column) error) error {
	f, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	columns, err := f.Columns(wanted)
	if err != nil {
		return err
	}
	groups, err := f.RowGroups(columns)
	if err != nil {
		return err
	}
	return f.Each(len(groups), func(i int, d *Decoder) error {
		for k := range columns {
			if err := read(i, d, &groups[i], k, &columns[k]); err != nil {
				return err
			}
		}
		return nil
	})
}

// contents reads the wanted columns of a file: for each column the values of its
// rows, as text. An integer that is null is 0, a text that is null is "null".
func contents(data []byte, wanted []Wanted) (map[string][]string, error) {
	var mu sync.Mutex
	parts := map[int]map[string][]string{} // by row group
	err := readAll(data, wanted, func(i int, d *Decoder, g *RowGroup, k int, c *Column) error {
		values, err := spelled(d, g, k, c)
		mu.Lock()
		defer mu.Unlock()
		if parts[i] == nil {
			parts[i] = map[string][]string{}
		}
		parts[i][c.Name] = values
		return err
	})
	all := map[string][]string{}
	for i := range len(parts) {
		for name, values := range parts[i] {
			all[name] = append(all[name], values...)
		}
	}
	return all, err
}

func spelled(d *Decoder, g *RowGroup, k int, c *Column) (out []string, err error) {
	if c.Kind != Text {
		ints, err := d.Ints(g, k, nil)
		for _, n := range ints {
			if c.Kind == Unsigned {
				out = append(out, fmt.Sprint(uint64(n)))
			} else {
				out = append(out, fmt.Sprint(n))
			}
		}
		return out, err
	}
	texts, err := d.Texts(g, k)
	for row, n := range texts.Rows {
		if n == None {
			out = append(out, "null")
			continue
		}
		if texts.First[n] > row {
			return nil, fmt.Errorf("text %d is in row %d, first in row %d", n, row, texts.First[n])
		}
		out = append(out, texts.Texts[n])
	}
	return out, err
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil && want == "" {
		return
	}
	var bad *Error
	if !errors.As(err, &bad) || err.Error() != want {
		t.Errorf("error\n%v\nwant\n%s", err, want)
	}
}

// small is a file of three rows.
func small(t testing.TB, props ...pq.WriterProperty) []byte {
	return foreign(t, []column{
		{"number", arrow.PrimitiveTypes.Int64, "[1, -2, 3]"},
		{"text", arrow.BinaryTypes.String, `["a", null, "a"]`},
	}, props...)
}

func TestOpenRefuses(t *testing.T) {
	data := small(t)
	at := len(data) - 8
	for n := range data {
		if _, err := Open(bytes.NewReader(data[:n]), int64(n)); err == nil {
			t.Fatalf("the first %d of %d bytes are accepted", n, len(data))
		}
	}
	_, err := Open(bytes.NewReader(nil), 0)
	wantError(t, err, "0 B, expected a Parquet file (at least 12 B)")
	_, err = Open(bytes.NewReader(data), int64(len(data)+10))
	wantError(t, err, fmt.Sprintf("byte %d: no data here, expected a file of %d B", len(data)+2, len(data)+10))
	for _, c := range []struct {
		length uint32
		want   string
	}{
		{1 << 31, fmt.Sprintf("byte %d: footer of 2147483648 B, expected at most %d B", at, len(data)-12)},
		{0, fmt.Sprintf("byte %d: malformed footer", at)},
		{3, fmt.Sprintf("byte %d: malformed footer", at-3)},
	} {
		broken := bytes.Clone(data)
		binary.LittleEndian.PutUint32(broken[at:], c.length)
		_, err := Open(bytes.NewReader(broken), int64(len(broken)))
		wantError(t, err, c.want)
	}
}

var errDisk = errors.New("disk on fire")

type brokenReaderAt struct{ io.ReaderAt }

func (brokenReaderAt) ReadAt([]byte, int64) (int, error) { return 0, errDisk }

// An error of the reader is returned as it is.
func TestOpenPassesOnErrors(t *testing.T) {
	if _, err := Open(brokenReaderAt{}, 100); err != errDisk {
		t.Errorf("error %v, want %v", err, errDisk)
	}
}

func TestColumnsRefuses(t *testing.T) {
	list := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	for _, c := range []struct {
		column column
		kind   Kind
		want   string
	}{
		{column{"a", arrow.BinaryTypes.String, `["x"]`}, Signed, "a: expected an integer column, found BYTE_ARRAY (String)"},
		{column{"a", arrow.PrimitiveTypes.Float64, "[1]"}, Unsigned, "a: expected an integer column, found DOUBLE"},
		{column{"a", arrow.PrimitiveTypes.Int64, "[1]"}, Text, "a: expected a string column, found INT64 (Int)"},
		{column{"a", arrow.FixedWidthTypes.Timestamp_us, "[null]"}, Signed, "a: expected an integer column, found INT64 (Timestamp)"},
		{column{"a", list, "[[1]]"}, Signed, "a: expected an integer column, found a nested column"},
		{column{"a", arrow.Null, "[null]"}, Signed, "a: expected an integer column, found INT32 (Null)"},
	} {
		_, err := contents(foreign(t, []column{c.column}), []Wanted{{Name: "a", Kind: c.kind, Required: true}})
		wantError(t, err, c.want)
	}
	// A column that is not required may be there without a type.
	got, err := contents(foreign(t, []column{{"a", arrow.Null, "[null]"}}), []Wanted{{Name: "a"}})
	if err != nil || len(got) > 0 {
		t.Errorf("an untyped column that is not required: %v, %v", got, err)
	}
	twice := []column{{"a", arrow.PrimitiveTypes.Int64, "[1]"}, {"b", arrow.PrimitiveTypes.Int64, "[1]"}, {"a", arrow.PrimitiveTypes.Int64, "[1]"}}
	_, err = contents(foreign(t, twice), []Wanted{{Name: "a"}})
	wantError(t, err, "a: two columns of this name (0 and 2)")
}

// More rows than the file's bytes can stand for are refused before any is read.
func TestRowGroupsRefusesManyRows(t *testing.T) {
	data := small(t)
	f, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	f.meta.RowGroups[0].NumRows = 1 << 40
	_, err = f.RowGroups(nil)
	wantError(t, err, fmt.Sprintf("row group 0 has 1099511627776 rows after 0; a file of %d B can have at most %d", len(data), freeRows+rowsPerByte*len(data)))
}

// Claims of the footer about a column's chunk.
func TestRowGroupsRefusesChunks(t *testing.T) {
	data := small(t)
	elsewhere := strings.Repeat("x", 100)
	for _, c := range []struct {
		change func(f *File)
		want   string
	}{
		{func(f *File) { f.meta.RowGroups[0].Columns[0].MetaData.NumValues = 2 }, "row group 0: number: found 2 values, expected one for each of 3 rows"},
		{func(f *File) { f.meta.RowGroups[0].Columns[0].FilePath = &elsewhere }, `row group 0: number: the column is in another file, "` + elsewhere[:60] + `"`},
		{func(f *File) { f.meta.RowGroups[0].Columns[0].MetaData.Codec = 4 }, "row group 0: number: compressed with BROTLI, expected none, SNAPPY, GZIP or ZSTD"},
		{func(f *File) { f.meta.RowGroups[0].Columns[0].MetaData.TotalCompressedSize = -1 },
			"row group 0: number: -1 B at byte 4 are outside the file's PAGES B of pages"},
		{func(f *File) { f.meta.RowGroups[0].Columns[0].MetaData = nil }, "malformed footer"},
	} {
		f, err := Open(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		columns, err := f.Columns([]Wanted{{Name: "number"}})
		if err != nil {
			t.Fatal(err)
		}
		c.change(f)
		_, err = f.RowGroups(columns)
		wantError(t, err, strings.Replace(c.want, "PAGES", fmt.Sprint(f.footer), 1))
	}
}
