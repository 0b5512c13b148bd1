package parquet

import (
	"bytes"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// codec is a compression of pages.
type codec = compress.Compression

// readable reports whether pages compressed with c can be read.
func readable(c codec) bool {
	switch c {
	case compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Gzip, compress.Codecs.Zstd:
		return true
	}
	return false
}

// scratch holds buffers that one goroutine uses for page after page.
type scratch struct {
	inflated []byte // a page
	levels   []uint32
	gzip     gzip.Reader
	zstd     *zstd.Decoder // may serve several goroutines
	budget   *budget       // of the file
}

// newZstdDecoder makes a decoder for any number of goroutines. It refuses output larger than
// a page, or than the buffer that it is given: a frame may claim any size.
func newZstdDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxPage), zstd.WithDecodeAllCapLimit(true))
}

// inflate decompresses a page into the scratch buffer. size is the uncompressed size that
// the page's header claims, in bytes. It must be at most most and must be right.
func (s *scratch) inflate(c codec, body []byte, size, most int64) ([]byte, error) {
	if c == compress.Codecs.Uncompressed {
		return body, nil
	}
	if size > most {
		return nil, fmt.Errorf("a page of %d B uncompressed, expected at most %d B", size, most)
	}
	if len(body) == 0 && size == 0 {
		return nil, nil
	}
	if err := s.budget.inflated.add(size); err != nil {
		return nil, err
	}
	if int64(cap(s.inflated)) < size {
		s.inflated = make([]byte, size)
	}
	data, err := s.decompress(c, body, s.inflated[:size])
	if err != nil {
		return nil, fmt.Errorf("decompress page: %w", err)
	}
	if int64(len(data)) != size {
		return nil, fmt.Errorf("a page of %d B uncompressed, expected %d B", len(data), size)
	}
	return data, nil
}

// decompress fills buf, which has the size that the result should have.
func (s *scratch) decompress(c codec, body, buf []byte) ([]byte, error) {
	switch c {
	case compress.Codecs.Zstd:
		return s.zstd.DecodeAll(body, buf[:0])
	case compress.Codecs.Snappy:
		if n, err := snappy.DecodedLen(body); err != nil || n != len(buf) {
			return nil, fmt.Errorf("snappy data of another size than the page")
		}
		return snappy.Decode(buf, body)
	default:
		return s.gunzip(body, buf)
	}
}

func (s *scratch) gunzip(body, buf []byte) ([]byte, error) {
	if err := s.gzip.Reset(bytes.NewReader(body)); err != nil {
		return nil, err
	}
	n, err := io.ReadFull(&s.gzip, buf)
	if err == nil {
		// Reading one byte more shows whether the data is longer than buf.
		if extra, _ := s.gzip.Read(make([]byte, 1)); extra > 0 {
			n++
		}
	}
	if n > len(buf) {
		return nil, fmt.Errorf("more than %d B", len(buf))
	}
	return buf[:n], err
}
