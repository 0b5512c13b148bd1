package parquet

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
)

// The same values in every encoding, compression and page layout that is read.
func TestReadForeign(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	columns := []column{
		{"wide", arrow.PrimitiveTypes.Int64, ""}, {"unsigned", arrow.PrimitiveTypes.Uint64, ""}, {"small", arrow.PrimitiveTypes.Int32, ""},
		{"narrow", arrow.PrimitiveTypes.Uint32, ""}, {"byte", arrow.PrimitiveTypes.Int8, ""}, {"text", arrow.BinaryTypes.String, ""},
	}
	want := map[string][]string{}
	values := make([][]any, len(columns))
	for range 1000 {
		row := []any{r.Int64() >> r.IntN(63), r.Uint64() >> r.IntN(64), int32(r.Uint32()), r.Uint32(), int8(r.Uint32()), strings.Repeat("é", r.IntN(3)) + fmt.Sprint(r.IntN(40))}
		for i, c := range columns {
			text := fmt.Sprint(row[i])
			if r.IntN(10) == 0 {
				row[i], text = nil, map[bool]string{true: "null", false: "0"}[c.name == "text"]
			}
			values[i] = append(values[i], row[i])
			want[c.name] = append(want[c.name], text)
		}
	}
	for i := range columns {
		text, err := json.Marshal(values[i])
		if err != nil {
			t.Fatal(err)
		}
		columns[i].values = string(text)
	}
	wanted := []Wanted{{Name: "wide"}, {Name: "unsigned", Kind: Unsigned}, {Name: "small"}, {Name: "narrow", Kind: Unsigned}, {Name: "byte"}, {Name: "text", Kind: Text}}
	plain := pq.WithDictionaryDefault(false)
	delta := []pq.WriterProperty{plain, pq.WithEncodingFor("text", pq.Encodings.DeltaLengthByteArray)}
	for _, name := range []string{"wide", "unsigned", "small", "narrow", "byte"} {
		delta = append(delta, pq.WithEncodingFor(name, pq.Encodings.DeltaBinaryPacked))
	}
	for _, c := range []struct {
		name  string
		props []pq.WriterProperty
	}{
		{"dictionary", nil},
		{"plain", []pq.WriterProperty{plain}},
		{"delta", delta},
		{"delta in pages of version 2", append(delta[:len(delta):len(delta)], pq.WithDataPageVersion(pq.DataPageV2))},
		{"snappy", []pq.WriterProperty{pq.WithCompression(compress.Codecs.Snappy)}},
		{"gzip", []pq.WriterProperty{pq.WithCompression(compress.Codecs.Gzip)}},
		{"zstd", []pq.WriterProperty{pq.WithCompression(compress.Codecs.Zstd), pq.WithDataPageVersion(pq.DataPageV2)}},
		{"format version 1", []pq.WriterProperty{pq.WithVersion(pq.V1_0)}},
		{"small pages", []pq.WriterProperty{pq.WithDataPageSize(1), pq.WithBatchSize(7)}},
		{"small dictionary", []pq.WriterProperty{pq.WithDictionaryPageSizeLimit(200), pq.WithBatchSize(50)}},
		{"row groups", []pq.WriterProperty{pq.WithMaxRowGroupLength(64)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := contents(foreign(t, columns, c.props...), wanted)
			if err != nil {
				t.Fatal(err)
			}
			for name := range want {
				if !reflect.DeepEqual(got[name], want[name]) {
					t.Errorf("%s: read\n%.500v\nwant\n%.500v", name, got[name], want[name])
				}
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	ints := func(values string) []column { return []column{{"a", arrow.PrimitiveTypes.Int64, values}} }
	words := func(values string) []column { return []column{{"a", arrow.PrimitiveTypes.Uint64, values}} }
	for _, c := range []struct {
		columns []column
		wanted  Wanted
		props   []pq.WriterProperty
		want    string
	}{
		{ints("[1, null]"), Wanted{Required: true}, nil, "row 1: a: null in a required column"},
		{ints("[0, 5, -1]"), Wanted{Kind: Unsigned}, nil, "row 2: a: expected 0 or more, found -1"},
		{words("[1, 9223372036854775808]"), Wanted{}, nil, "row 1: a: expected at most 9223372036854775807, found 9223372036854775808"},
		{[]column{{"a", arrow.BinaryTypes.String, `["x"]`}}, Wanted{Kind: Text},
			[]pq.WriterProperty{pq.WithDictionaryDefault(false), pq.WithEncodingFor("a", pq.Encodings.DeltaByteArray)},
			"byte 4: a: encoding DELTA_BYTE_ARRAY of text is not supported"},
	} {
		c.wanted.Name = "a"
		data := foreign(t, c.columns, c.props...)
		_, err := contents(data, []Wanted{c.wanted})
		wantError(t, err, c.want)
	}
}

// Rows that are ignored may hold anything; the rows around them may not.
func TestIgnoredRows(t *testing.T) {
	for _, odd := range []string{"null", "-1", "-9223372036854775808"} {
		data := foreign(t, []column{{"a", arrow.PrimitiveTypes.Int64, "[7, " + odd + ", 9]"}})
		for ignored := range 3 {
			err := readAll(data, []Wanted{{Name: "a", Kind: Unsigned, Required: true}}, func(_ int, d *Decoder, g *RowGroup, k int, _ *Column) error {
				got, err := d.Ints(g, k, func(row int) bool { return row == ignored })
				if err == nil && (got[0] != 7 || got[2] != 9) {
					t.Errorf("read %d", got)
				}
				return err
			})
			if (err == nil) != (ignored == 1) {
				t.Errorf("%s in row 1, row %d ignored: %v", odd, ignored, err)
			}
		}
	}
}

// Of several errors, that of the first row group counts.
func TestEachReturnsFirstError(t *testing.T) {
	f := &File{}
	for range 50 {
		err := f.Each(8, func(i int, _ *Decoder) error {
			if i < 3 {
				return nil
			}
			return fmt.Errorf("group %d", i)
		})
		if err == nil || err.Error() != "group 3" {
			t.Fatalf("error %v, want that of group 3", err)
		}
	}
}

// A page may not claim more than its values need, nor inflate beyond its claim.
func TestInflateBounds(t *testing.T) {
	c := chunkReader{chunk: chunk{Column: &Column{}}, scratch: newScratch(t)}
	if _, err := c.inflate(compress.Codecs.Snappy, []byte{1}, 1<<20, c.mostBytes(10)); err == nil || err.Error() != "a page of 1048576 B uncompressed, expected at most 65696 B" {
		t.Errorf("claim: %v", err)
	}
	for name, id := range map[string]compress.Compression{"GZIP": compress.Codecs.Gzip, "SNAPPY": compress.Codecs.Snappy, "ZSTD": compress.Codecs.Zstd} {
		codec, err := compress.GetCodec(id)
		if err != nil {
			t.Fatal(err)
		}
		body := codec.Encode(nil, make([]byte, 1000))
		for _, claimed := range []int64{999, 1001} {
			if _, err := newScratch(t).inflate(id, body, claimed, maxPage); err == nil {
				t.Errorf("%s: a page of 1000 B passed for one of %d B", name, claimed)
			}
		}
		if data, err := newScratch(t).inflate(id, body, 1000, maxPage); err != nil || len(data) != 1000 {
			t.Errorf("%s: %d B, %v", name, len(data), err)
		}
	}
	codec, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		t.Fatal(err)
	}
	bomb := codec.Encode(nil, make([]byte, 1<<24))
	if _, err := newScratch(t).inflate(compress.Codecs.Zstd, bomb, 100, maxPage); err == nil {
		t.Error("16 MiB passed for a page of 100 B")
	}
}

func newScratch(t *testing.T) *scratch {
	t.Helper()
	dec, err := newZstdDecoder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dec.Close)
	return &scratch{zstd: dec, budget: newBudget(1 << 20)}
}

// FuzzReadColumns reads bytes that may be anything: the result is rows or an *Error, never
// a panic.
func FuzzReadColumns(f *testing.F) {
	f.Add(small(f))
	f.Add(small(f, pq.WithDictionaryDefault(false), pq.WithDataPageVersion(pq.DataPageV2),
		pq.WithEncodingFor("number", pq.Encodings.DeltaBinaryPacked), pq.WithEncodingFor("text", pq.Encodings.DeltaLengthByteArray)))
	f.Add(small(f, pq.WithCompression(compress.Codecs.Zstd)))
	f.Add(small(f, pq.WithCompression(compress.Codecs.Snappy)))
	f.Fuzz(func(t *testing.T, data []byte) {
		err := readAll(data, []Wanted{{Name: "number"}, {Name: "text", Kind: Text}}, func(_ int, d *Decoder, g *RowGroup, k int, c *Column) error {
			if c.Kind == Text {
				texts, err := d.Texts(g, k)
				if err == nil && (len(texts.Rows) != g.Rows || len(texts.First) != len(texts.Texts)) {
					t.Errorf("%d rows, expected %d; first rows of %d texts, expected %d", len(texts.Rows), g.Rows, len(texts.First), len(texts.Texts))
				}
				return err
			}
			ints, err := d.Ints(g, k, nil)
			if err == nil && len(ints) != g.Rows {
				t.Errorf("%d rows, expected %d", len(ints), g.Rows)
			}
			return err
		})
		var bad *Error
		if err != nil && !errors.As(err, &bad) {
			t.Errorf("error of another kind: %v", err)
		}
	})
}
