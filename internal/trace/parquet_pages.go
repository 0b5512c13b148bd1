package trace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// The pages of a column chunk are walked and decoded here and in
// parquet_values.go rather than by arrow's column readers. Those allocate what
// a page header claims before they look at the data, and do not return from a
// page that holds fewer values than its header says. Doing it here also leaves
// dictionary indices as indices: a stack that 100,000 rows share is looked at
// once.

// columnChunk is one column of one row group.
type columnChunk struct {
	column string
	codec  compress.Compression
	offset int64 // of data in the file
	length int64 // of data
	data   []byte
	rows   int
	// optional says that pages carry definition levels.
	optional bool
	// required refuses rows without a value, but for those that ignored, unless
	// nil, exempts; it takes a row from the chunk's first.
	required bool
	ignored  func(row int) bool
	text     bool
}

// pageScratch holds buffers that one goroutine uses again and again.
type pageScratch struct {
	page   []byte
	levels []uint32
	zstd   *zstd.Decoder
}

// rowProblem is an error that a row of the chunk is to blame for.
type rowProblem struct {
	row     int // from the chunk's first
	problem string
}

func (p *rowProblem) Error() string { return p.problem }

// decode takes the chunk's pages into v. An error is a *rowProblem, or else
// about the page at the returned offset in the file.
func (c *columnChunk) decode(v pageValues, s *pageScratch) (at int64, err error) {
	pos, done := 0, 0
	for done < c.rows {
		at = c.offset + int64(pos)
		h, length, ok := readPageHeader(c.data[pos:])
		if !ok {
			return at, fmt.Errorf("malformed page header")
		}
		pos += length
		if h.compressed > int64(len(c.data)-pos) {
			return at, fmt.Errorf("a page of %d B with %d B left in the column", h.compressed, len(c.data)-pos)
		}
		body := c.data[pos : pos+int(h.compressed)]
		pos += int(h.compressed)
		if h.crc != nil && crc32.ChecksumIEEE(body) != *h.crc {
			return at, fmt.Errorf("the page has the checksum %#08x, expected %#08x: the file is damaged", crc32.ChecksumIEEE(body), *h.crc)
		}
		switch h.kind {
		case pageData, pageDataV2:
			if h.values > int64(c.rows-done) {
				return at, fmt.Errorf("a page of %d values with %d rows left in the row group", h.values, c.rows-done)
			}
			err = c.dataPage(h, body, v, s, done)
			done += int(h.values)
		case pageDictionary:
			err = c.dictionaryPage(h, body, v, s)
		case pageIndex:
		default:
			err = fmt.Errorf("page type %d is unknown", h.kind)
		}
		if err != nil {
			return at, err
		}
	}
	return at, nil
}

// mostBytes bounds what a page of n values may claim to hold: integers take at
// most 8 bytes, blocks and levels round up.
func (c *columnChunk) mostBytes(n int64) int64 {
	if c.text {
		return maxPage
	}
	return min(maxPage, 16*n+1<<16)
}

func (c *columnChunk) dictionaryPage(h pageHeader, body []byte, v pageValues, s *pageScratch) error {
	if h.encoding != encPlain && h.encoding != encPlainDictionary {
		return badEncoding(h.encoding, "a dictionary")
	}
	if h.values > freeRows { // there may be more than the row group uses
		return fmt.Errorf("a dictionary of %d values, more than %d", h.values, freeRows)
	}
	data, err := c.inflate(s, body, h.uncompressed, c.mostBytes(h.values))
	if err != nil {
		return err
	}
	return v.dictionary(data, int(h.values))
}

// dataPage decodes a page whose first row is the chunk's row first.
func (c *columnChunk) dataPage(h pageHeader, body []byte, v pageValues, s *pageScratch, first int) error {
	n := int(h.values)
	var levels, data []byte
	var err error
	if h.kind == pageDataV2 {
		levels, data, err = c.splitV2(h, body, s)
	} else {
		levels, data, err = c.splitV1(h, body, s)
	}
	if err != nil {
		return err
	}
	if !c.optional {
		return v.values(h.encoding, data, n)
	}
	if s.levels, err = decodeRuns(s.levels[:0], levels, 1, n); err != nil {
		return fmt.Errorf("definition levels: %w", err)
	}
	present := 0
	for i, l := range s.levels {
		switch {
		case l > 1:
			return fmt.Errorf("definition level %d, expected 0 or 1", l)
		case l == 0 && c.required && (c.ignored == nil || !c.ignored(first+i)):
			return &rowProblem{first + i, "null in a required column"}
		}
		present += int(l)
	}
	if err := v.values(h.encoding, data, present); err != nil || present == n {
		return err
	}
	v.spread(s.levels)
	return nil
}

// splitV1 takes a version 1 page apart: definition levels after their length
// in 4 bytes, then values, all compressed together.
func (c *columnChunk) splitV1(h pageHeader, body []byte, s *pageScratch) (levels, data []byte, err error) {
	data, err = c.inflate(s, body, h.uncompressed, c.mostBytes(h.values))
	if err != nil || !c.optional {
		return nil, data, err
	}
	if h.levelEncoding != encRLE {
		return nil, nil, badEncoding(h.levelEncoding, "definition levels")
	}
	if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) > uint64(len(data)-4) {
		return nil, nil, fmt.Errorf("definition levels longer than their page")
	}
	size := binary.LittleEndian.Uint32(data)
	return data[4 : 4+size], data[4+size:], nil
}

// splitV2 takes a version 2 page apart: uncompressed levels, their lengths in
// the header, then values.
func (c *columnChunk) splitV2(h pageHeader, body []byte, s *pageScratch) (levels, data []byte, err error) {
	size := h.repBytes + h.defBytes
	if h.repBytes > int64(len(body)) || h.defBytes > int64(len(body)) || size > int64(len(body)) || size > h.uncompressed {
		return nil, nil, fmt.Errorf("levels of %d B in a page of %d B", size, len(body))
	}
	levels, data = body[h.repBytes:size], body[size:]
	if h.stored {
		return levels, data, nil
	}
	data, err = c.inflate(s, data, h.uncompressed-size, c.mostBytes(h.values))
	return levels, data, err
}

// inflate decompresses a page into the scratch buffer and demands that it has
// the size that its header claims, which is at most most.
func (c *columnChunk) inflate(s *pageScratch, body []byte, size, most int64) ([]byte, error) {
	if c.codec == compress.Codecs.Uncompressed {
		return body, nil
	}
	if size > most {
		return nil, fmt.Errorf("a page of %d B uncompressed, expected at most %d B", size, most)
	}
	if len(body) == 0 && size == 0 {
		return nil, nil
	}
	if int64(cap(s.page)) < size {
		s.page = make([]byte, size)
	}
	data, err := c.decompress(s, body, s.page[:size])
	if err != nil {
		return nil, fmt.Errorf("decompress page: %w", err)
	}
	if int64(len(data)) != size {
		return nil, fmt.Errorf("a page of %d B uncompressed, expected %d B", len(data), size)
	}
	return data, nil
}

// decompress fills buf, which has the size that the result should have.
func (c *columnChunk) decompress(s *pageScratch, body, buf []byte) ([]byte, error) {
	switch c.codec {
	case compress.Codecs.Zstd:
		return s.zstd.DecodeAll(body, buf[:0])
	case compress.Codecs.Snappy:
		if n, err := snappy.DecodedLen(body); err != nil || n != len(buf) {
			return nil, fmt.Errorf("snappy data of another size than the page")
		}
		return snappy.Decode(buf, body)
	default:
		r, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		n, err := io.ReadFull(r, buf)
		if err == nil {
			// One byte more shows whether there is more.
			if extra, _ := r.Read(make([]byte, 1)); extra > 0 {
				n++
			}
		}
		if n > len(buf) {
			return nil, fmt.Errorf("more than %d B", len(buf))
		}
		return buf[:n], err
	}
}

// readableCodec says whether decompress knows a codec.
func readableCodec(c compress.Compression) bool {
	switch c {
	case compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Gzip, compress.Codecs.Zstd:
		return true
	}
	return false
}
