package trace

import (
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/klauspost/compress/zstd"
)

// arrow makes a zstd encoder of several megabytes for every page it writes.
// zstdCodec puts one in its place that all pages share, at the level that
// WriteParquet wants, and so halves what writing allocates. Its window is that
// of a page of 8-byte numbers: a larger one costs memory and finds no more.
type zstdCodec struct {
	compress.Codec
	encoder *zstd.Encoder
}

// Encode compresses one page; EncodeAll may run in several goroutines.
func (c zstdCodec) Encode(dst, src []byte) []byte { return c.encoder.EncodeAll(src, dst[:0]) }

// EncodeLevel is Encode: there is one level.
func (c zstdCodec) EncodeLevel(dst, src []byte, _ int) []byte { return c.Encode(dst, src) }

// init registers the codec, as arrow wants it done.
func init() {
	old, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		panic(err) // arrow always has zstd
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithZeroFrames(true),
		zstd.WithWindowSize(8*rowGroupRows), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // the options are constant
	}
	compress.RegisterCodec(compress.Codecs.Zstd, zstdCodec{old, enc})
}

// newPageDecoder makes a decoder for any number of goroutines that refuses what
// no page can hold.
func newPageDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxPage))
}
