package parquet

import (
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/klauspost/compress/zstd"
)

// zstdCodec takes the place of Arrow's zstd codec. Arrow makes an encoder of several
// megabytes for every page. Here all pages share one, which halves what writing
// allocates. The encoder has its fastest level. Its window is as large as a page of
// 8-byte numbers: a larger window costs memory and finds no more repetitions.
type zstdCodec struct {
	compress.Codec
	encoder *zstd.Encoder
}

// Encode compresses one page. Several goroutines may call it at once.
func (c zstdCodec) Encode(dst, src []byte) []byte { return c.encoder.EncodeAll(src, dst[:0]) }

// EncodeLevel is Encode: there is one level.
func (c zstdCodec) EncodeLevel(dst, src []byte, _ int) []byte { return c.Encode(dst, src) }

// init registers the codec. Arrow requires that this happens in an init function.
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
