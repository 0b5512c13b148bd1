package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
)

func smallFile(t testing.TB) []byte { return encode(t, randomTrace(3, 40)) }

// A file cut anywhere is refused, with the reason that it is cut.
func TestReadTruncated(t *testing.T) {
	data := smallFile(t)
	for n := range data {
		tr, err := decode(data[:n], Options{})
		var bad *InputError
		if tr != nil || !errors.As(err, &bad) {
			t.Fatalf("first %d of %d bytes: trace %v, error %v", n, len(data), tr != nil, err)
		}
	}
	_, err := decode(data[:len(data)-1], Options{})
	wantProblem(t, err, fmt.Sprintf("t.parquet: byte %d: expected \"PAR1\", found %q; the file is truncated or not Parquet", len(data)-5, data[len(data)-5:len(data)-1]))
	_, err = decode(nil, Options{})
	wantProblem(t, err, "t.parquet: 0 B, expected a Parquet file (at least 12 B)")
}

// A size larger than what the reader then delivers is a truncated file.
func TestReadShorterThanClaimed(t *testing.T) {
	data := smallFile(t)
	_, err := ReadParquet(bytes.NewReader(data), int64(len(data)+10), "t.parquet", Options{})
	wantProblem(t, err, fmt.Sprintf("t.parquet: byte %d: no data here, expected a file of %d B", len(data)+2, len(data)+10))
}

type brokenReaderAt struct{ io.ReaderAt }

var errReadAt = errors.New("disk on fire")

func (brokenReaderAt) ReadAt([]byte, int64) (int, error) { return 0, errReadAt }

func TestReadPassesOnErrors(t *testing.T) {
	_, err := ReadParquet(brokenReaderAt{}, 100, "t.parquet", Options{})
	if !errors.Is(err, errReadAt) || !strings.HasPrefix(err.Error(), "t.parquet: ") {
		t.Errorf("error %v", err)
	}
}

func TestReadFooterClaims(t *testing.T) {
	data := smallFile(t)
	at := len(data) - 8
	for _, c := range []struct {
		length uint32
		want   string
	}{
		{1 << 31, fmt.Sprintf("t.parquet: byte %d: footer of 2147483648 B, expected at most %d B", at, len(data)-12)},
		{0, fmt.Sprintf("t.parquet: byte %d: malformed footer", at)},
		{3, fmt.Sprintf("t.parquet: byte %d: malformed footer", at-3)},
	} {
		broken := bytes.Clone(data)
		binary.LittleEndian.PutUint32(broken[at:], c.length)
		_, err := decode(broken, Options{})
		wantProblem(t, err, c.want)
	}
}

// Flipping bits anywhere gives a trace or an *InputError, never a panic.
func TestReadDamaged(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, data := range damagedSeeds(t) {
		for range 2000 {
			broken := bytes.Clone(data)
			for range 1 + r.IntN(3) {
				broken[r.IntN(len(broken))] ^= 1 << r.IntN(8)
			}
			checkSane(t, broken)
		}
	}
}

func damagedSeeds(t testing.TB) [][]byte {
	return [][]byte{
		smallFile(t),
		foreign(t, with(plainTrace(), texts(colStack, "a.py:1:f", nil, "b.py:2:g"), texts(colPool, "0,0", nil, nil)), nil),
		foreign(t, plainTrace(), nil, parquet.WithDictionaryDefault(false), parquet.WithDataPageVersion(parquet.DataPageV2),
			parquet.WithEncodingFor(colAddr, parquet.Encodings.DeltaBinaryPacked), parquet.WithEncodingFor(colAction, parquet.Encodings.DeltaLengthByteArray)),
		foreign(t, plainTrace(), nil, parquet.WithCompression(compress.Codecs.Gzip)),
		foreign(t, plainTrace(), nil, parquet.WithCompression(compress.Codecs.Snappy)),
	}
}

// checkSane reads bytes that may be anything.
func checkSane(t *testing.T, data []byte) {
	t.Helper()
	tr, err := decode(data, Options{AllowNoEvents: true})
	var bad *InputError
	switch {
	case (tr == nil) == (err == nil):
		t.Fatalf("trace %v, error %v", tr != nil, err)
	case err != nil && !errors.As(err, &bad):
		t.Fatalf("error of another kind: %v", err)
	case err == nil:
		if bad := tr.validate(true, entryOf); bad != nil {
			t.Fatalf("read and invalid: %v", bad)
		}
	}
}

// What a small file may make the reader allocate, whatever it claims.
const hostileBytes = 600 << 20

func FuzzReadParquet(f *testing.F) {
	for _, data := range damagedSeeds(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		checkSane(t, data)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > hostileBytes {
			t.Fatalf("%d B of input made it allocate %d B", len(data), used)
		}
	})
}

// More rows than the file's bytes can stand for are refused before any is read.
func TestReadManyRows(t *testing.T) {
	p := &parquetReader{r: bytes.NewReader(smallFile(t)), size: int64(len(smallFile(t))), name: "t.parquet"}
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	p.meta.RowGroups[0].NumRows = 1 << 40
	bad := p.plan()
	if bad == nil || !strings.Contains(bad.Problem, "row group 0 has 1099511627776 rows after 0; a file of") {
		t.Errorf("plan: %v", bad)
	}
}

// A page may not claim more than its values need, nor inflate beyond its claim.
func TestInflateBounds(t *testing.T) {
	codec, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		t.Fatal(err)
	}
	bomb := codec.Encode(nil, make([]byte, 1<<24))
	c := columnChunk{codec: compress.Codecs.Snappy}
	if _, err := c.inflate(&pageScratch{}, []byte{1}, 1<<20, c.mostBytes(10)); err == nil || err.Error() != "a page of 1048576 B uncompressed, expected at most 65696 B" {
		t.Errorf("claim: %v", err)
	}
	for _, name := range []string{"GZIP", "SNAPPY", "ZSTD"} {
		codecs := map[string]compress.Compression{"GZIP": compress.Codecs.Gzip, "SNAPPY": compress.Codecs.Snappy, "ZSTD": compress.Codecs.Zstd}
		codec, err := compress.GetCodec(codecs[name])
		if err != nil {
			t.Fatal(err)
		}
		body := codec.Encode(nil, make([]byte, 1000))
		c := columnChunk{codec: codecs[name]}
		for _, claimed := range []int64{999, 1001} {
			if _, err := c.inflate(newPageScratch(t), body, claimed, maxPage); err == nil {
				t.Errorf("%s: a page of 1000 B passed for one of %d B", name, claimed)
			}
		}
		if data, err := c.inflate(newPageScratch(t), body, 1000, maxPage); err != nil || len(data) != 1000 {
			t.Errorf("%s: %d B, %v", name, len(data), err)
		}
	}
	z := columnChunk{codec: compress.Codecs.Zstd}
	if _, err := z.inflate(newPageScratch(t), bomb, 100, maxPage); err == nil {
		t.Error("16 MiB passed for a page of 100 B")
	}
}

func newPageScratch(t *testing.T) *pageScratch {
	t.Helper()
	dec, err := newPageDecoder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dec.Close)
	return &pageScratch{zstd: dec}
}
