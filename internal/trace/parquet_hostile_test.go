package trace

import (
	"bytes"
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

// A file that is cut anywhere is refused as truncated.
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

type brokenReaderAt struct{ io.ReaderAt }

var errReadAt = errors.New("disk on fire")

func (brokenReaderAt) ReadAt([]byte, int64) (int, error) { return 0, errReadAt }

func TestReadPassesOnErrors(t *testing.T) {
	_, err := ReadParquet(brokenReaderAt{}, 100, "t.parquet", Options{})
	if !errors.Is(err, errReadAt) || !strings.HasPrefix(err.Error(), "t.parquet: ") {
		t.Errorf("error %v", err)
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

// hostileBytes is the most that reading a small file may allocate, in bytes.
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
