package parquet

import (
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/klauspost/compress/zstd"
)

// zstdCodec replaces Arrow's zstd codec in Arrow's register. Arrow makes an encoder
// of several megabytes for every page; here all pages share one, which halves what
// writing allocates. The encoder works at its fastest level. Its window is a page
// of 8-byte numbers: a larger window costs memory and finds no more.
type zstdCodec struct {
	compress.Codec
	encoder *zstd.Encoder
}

// Encode compresses one page. Several goroutines may call it at once.
func (c zstdCodec) Encode(dst, src []byte) []byte { return c.encoder.EncodeAll(src, dst[:0]) }

// EncodeLevel is Encode: there is one level.
func (c zstdCodec) EncodeLevel(dst, src []byte, _ int) []byte { return c.Encode(dst, src) }

// init registers the codec, which Arrow requires to happen during initialization.
func init() {
	old, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		panic(err) // arrow always has zstd
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithZeroFrames(true),
		zstd.WithWindowSize(8*GroupRows), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // the options are constant
	}
	compress.RegisterCodec(compress.Codecs.Zstd, zstdCodec{old, enc})
}
