package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/parquet/compress"
)

var (
	inGzip = compress.Codecs.Gzip
	inZstd = compress.Codecs.Zstd
)

// cost reads column "a" of every row group of a file, and returns what that allocates in
// bytes, garbage included.
func cost(data []byte, kind Kind) (int64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := readAll(data, []Wanted{{Name: "a", Kind: kind}}, func(_ int, d *Decoder, g *RowGroup, k int, _ *Column) error {
		if kind == Text {
			_, err := d.Texts(g, k)
			return err
		}
		_, err := d.Ints(g, k, nil)
		return err
	})
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc), err
}

// same is n row groups with the same pages.
func same(n int, pages []byte, rows int64) []rawChunk {
	return slices.Repeat([]rawChunk{{pages, rows}}, n)
}

// TestBombs reads small files that claim, or decompress to, very much. What is allocated is
// bounded by the file's size, however the cost is spread over row groups and pages, and the
// error does not depend on the number of cores.
func TestBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("counts allocated bytes, which takes seconds, and minutes under the race detector")
	}
	const (
		tooMuch = "a file of %d B may have pages of %d B uncompressed, and %d B of dictionaries and distinct texts; this one has more"
		limit   = 2*keepFree + inflateFree
	)
	// 8 row groups of 2 texts of 120 MB.
	const long = 120_000_000
	body := append(plainText(bytes.Repeat([]byte{'x'}, long)), plainText(bytes.Repeat([]byte{'y'}, long))...)
	indices := rawPage(t, pageData, 2, encDictionary, inZstd, []byte{1, 3, 0b10})
	texts := rawFile(rawSchema(true), true, inZstd, same(8, append(rawPage(t, pageDictionary, 2, encPlain, inZstd, body), indices...), 2))
	plain := rawFile(rawSchema(true), true, inZstd, same(8, rawPage(t, pageData, 2, encPlain, inZstd, body), 2))

	// Dictionaries of 2^22 empty texts, in one row group and in 50.
	dictionary := rawPage(t, pageDictionary, 1<<22, encPlain, inZstd, make([]byte, 4<<22))
	use := rawPage(t, pageData, 1, encDictionary, inZstd, []byte{0, 2})
	one := rawFile(rawSchema(true), true, inZstd, same(1, append(bytes.Repeat(dictionary, 50), use...), 1))
	many := rawFile(rawSchema(true), true, inZstd, same(50, slices.Concat(dictionary, use), 1))
	numbers := rawFile(rawSchema(false), false, inZstd, same(50, slices.Concat(rawPage(t, pageDictionary, 1<<22, encPlain, inZstd, make([]byte, 8<<22)), use), 1))

	// Pages without values, which decompress to 64 KiB each, and one with a value.
	empty := rawPage(t, pageData, 0, encPlain, inGzip, make([]byte, 1<<16))
	last := rawPage(t, pageData, 1, encPlain, inGzip, make([]byte, 8))
	pages := rawFile(rawSchema(false), false, inGzip, same(1, append(bytes.Repeat(empty, 8000), last...), 1))

	// The same text of 8 MB 1,000 times: nothing that is kept, and 8 GB of pages.
	again := plainText(bytes.Repeat([]byte{'x'}, 8_000_000))
	repeated := rawFile(rawSchema(true), true, inZstd, same(50, rawPage(t, pageData, 20, encPlain, inZstd, bytes.Repeat(again, 20)), 20))

	// Many distinct texts of 6 B, in pages of 2^18.
	var distinct []byte
	for i := range uint32(1 << 18) {
		distinct = append(distinct, plainText([]byte{'a', 'b', 'c', byte(i), byte(i >> 8), byte(i >> 16)})...)
	}
	short := rawFile(rawSchema(true), true, inZstd, same(4, rawPage(t, pageData, 1<<18, encPlain, inZstd, distinct), 1<<18))

	for _, c := range []struct {
		name string
		data []byte
		kind Kind
		most int64 // bytes that reading may allocate
		want string
	}{
		{"texts in dictionaries", texts, Text, limit, tooMuch},
		{"texts", plain, Text, limit, tooMuch},
		{"one text again and again", repeated, Text, limit, tooMuch},
		{"dictionaries in one row group", one, Text, limit, fmt.Sprintf("byte %d: a: a second dictionary, expected at most one in a column of a row group", 4+len(dictionary))},
		{"dictionaries in row groups", many, Text, 2 * limit, tooMuch},
		{"dictionaries of numbers", numbers, Signed, 2 * limit, tooMuch},
		{"empty pages", pages, Signed, 16 << 20, ""},
		{"distinct texts", short, Text, limit, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			size := int64(len(c.data))
			want := c.want
			if want == tooMuch {
				want = fmt.Sprintf(tooMuch, size, allowance(size, inflateFree, inflatePerByte), allowance(size, keepFree, keepPerByte))
			}
			for _, cores := range []int{1, 4} {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
				used, err := cost(c.data, c.kind)
				wantError(t, err, want)
				if used > c.most {
					t.Errorf("%d B of file made it allocate %d B on %d cores, expected at most %d", size, used, cores, c.most)
				}
			}
		})
	}
}

// TestSchemaBombs: a schema that is wide or deep is refused before Arrow builds it. Arrow goes
// down into groups by recursion, until the process dies.
func TestSchemaBombs(t *testing.T) {
	group := new(record).text(4, "a").number(5, 1).bytes()
	leaf := rawSchema(false)[1]
	for _, c := range []struct {
		schema [][]byte
		want   string
	}{
		{append(slices.Repeat([][]byte{group}, maxNesting), leaf), ""},
		{append(slices.Repeat([][]byte{group}, maxNesting+1), leaf), "columns are nested more than 32 deep"},
		{append(slices.Repeat([][]byte{group}, maxSchema-1), leaf), "columns are nested more than 32 deep"},
		{append(slices.Repeat([][]byte{group}, maxSchema), leaf), "a schema of 65537 entries, expected at most 65536"},
		{append([][]byte{new(record).text(4, "root").number(5, maxSchema-1).bytes()}, slices.Repeat([][]byte{leaf}, maxSchema-1)...), ""},
	} {
		data := rawFile(c.schema, false, inZstd, nil)
		want := c.want
		if want != "" {
			want = fmt.Sprintf("byte 4: %s", want)
		}
		_, err := Open(bytes.NewReader(data), int64(len(data)))
		wantError(t, err, want)
	}
}

// TestRowsForTheSize: a file has room for rows by its size, over all row groups.
func TestRowsForTheSize(t *testing.T) {
	run := binary.AppendUvarint([]byte{0}, 1<<20<<1)
	one := slices.Concat(rawPage(t, pageDictionary, 1, encPlain, inZstd, make([]byte, 8)), rawPage(t, pageData, 1<<20, encDictionary, inZstd, run))
	if _, err := cost(rawFile(rawSchema(false), false, inZstd, same(1, one, 1<<20)), Signed); err != nil {
		t.Error(err)
	}
	data := rawFile(rawSchema(false), false, inZstd, same(8, one, 1<<20))
	_, err := cost(data, Signed)
	wantError(t, err, fmt.Sprintf("row group 1 has 1048576 rows after 1048576; a file of %d B can have at most %d", len(data), freeRows+rowsPerByte*len(data)))
}

// TestWriterRefusesWhatCannotBeRead: what is written can be read, or is refused.
func TestWriterRefusesWhatCannotBeRead(t *testing.T) {
	fields := []Field{{Name: "a", Kind: Text}}
	long := string(make([]byte, 20<<20))
	texts := []string{long + "1", long + "2", long + "3"}
	d := NewDictionary(1, len(texts), func(id int32) string { return texts[id] })
	var out bytes.Buffer
	w, err := NewWriter(&out, "test", fields, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range texts {
		d.Reset()
		d.Add(int32(i))
		if err = w.Group(func(_ int, c *ColumnWriter) error { return c.Texts(d) }); err != nil {
			break
		}
	}
	want := fmt.Sprintf("83886236 B of dictionaries and distinct texts in a file of %d B: it can have at most %d B, so it could not be read", out.Len(), keepFree+keepPerByte*out.Len())
	if err == nil || err.Error() != want {
		t.Errorf("%v, expected %s", err, want)
	}

	out.Reset()
	if w, err = NewWriter(&out, "test", fields, nil); err != nil {
		t.Fatal(err)
	}
	texts = []string{"x"}
	for err == nil && out.Len() < 1<<20 {
		d.Reset()
		for range GroupRows {
			d.Add(0)
		}
		err = w.Group(func(_ int, c *ColumnWriter) error { return c.Texts(d) })
	}
	want = fmt.Sprintf("1179648 rows in %d B: a file of that size can have at most %d, so it could not be read", out.Len(), freeRows+rowsPerByte*out.Len())
	if err == nil || err.Error() != want {
		t.Errorf("%v, expected %s", err, want)
	}
}
