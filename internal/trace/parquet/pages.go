package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/apache/arrow/go/v17/parquet/compress"
)

// chunkReader walks the pages of one column chunk.
type chunkReader struct {
	chunk
	data []byte // of the chunk
	// ignored, unless nil, exempts rows of a required column from having a
	// value. It takes a row counted from the chunk's first.
	ignored       func(row int) bool
	hasDictionary bool
	*scratch
}

// rowProblem is an error that one row of the chunk is to blame for.
type rowProblem struct {
	row     int // counted from the chunk's first
	problem string
}

func (p *rowProblem) Error() string { return p.problem }

// read gives the chunk's pages to v. If the error is not a *rowProblem, it is about the
// page at the returned offset in the file.
func (c *chunkReader) read(v pageValues) (at int64, err error) {
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
		n, err := c.page(h, body, v, done)
		if err != nil {
			return at, err
		}
		done += n
	}
	return at, nil
}

// page gives a page to v. It returns the page's number of rows, the first of which is row
// first of the chunk.
func (c *chunkReader) page(h pageHeader, body []byte, v pageValues, first int) (rows int, err error) {
	if c.codec != compress.Codecs.Uncompressed && h.uncompressed > largePage {
		c.budget.large.Lock()
		small := c.inflated
		c.inflated = c.budget.page
		defer func() {
			c.inflated, c.budget.page = small, c.inflated
			c.budget.large.Unlock()
		}()
	}
	switch h.kind {
	case pageData, pageDataV2:
		switch {
		case h.values > int64(c.rows-first):
			return 0, fmt.Errorf("a page of %d values with %d rows left in the row group", h.values, c.rows-first)
		case h.values == 0:
			return 0, nil // whatever else it holds
		}
		return int(h.values), c.dataPage(h, body, v, first)
	case pageDictionary:
		return 0, c.dictionaryPage(h, body, v)
	case pageIndex:
		return 0, nil
	}
	return 0, fmt.Errorf("page type %d is unknown", h.kind)
}

// mostBytes is the largest uncompressed size that a page of n values may claim, in
// bytes. Integers take at most 8 B each; the rest is for levels and for encodings that
// round up to whole blocks.
func (c *chunkReader) mostBytes(n int64) int64 {
	if c.Kind == Text {
		return maxPage
	}
	return min(maxPage, 16*n+1<<16)
}

func (c *chunkReader) dictionaryPage(h pageHeader, body []byte, v pageValues) error {
	if h.encoding != encPlain && h.encoding != encPlainDictionary {
		return badEncoding(h.encoding, "a dictionary")
	}
	switch {
	case h.values > maxDictionary:
		return fmt.Errorf("a dictionary of %d values, expected at most %d", h.values, maxDictionary)
	case c.hasDictionary:
		return errors.New("a second dictionary, expected at most one in a column of a row group")
	}
	c.hasDictionary = true
	data, err := c.inflate(c.codec, body, h.uncompressed, c.mostBytes(h.values))
	if err != nil {
		return err
	}
	cost := int64(len(data))
	if c.Kind == Text {
		cost += entryCost * h.values
	}
	if err := c.budget.kept.add(cost); err != nil {
		return err
	}
	return v.dictionary(data, int(h.values))
}

// dataPage decodes a page that begins with row first of the chunk.
func (c *chunkReader) dataPage(h pageHeader, body []byte, v pageValues, first int) error {
	n := int(h.values)
	var levels, data []byte
	var err error
	if h.kind == pageDataV2 {
		levels, data, err = c.splitV2(h, body)
	} else {
		levels, data, err = c.splitV1(h, body)
	}
	if err != nil {
		return err
	}
	if !c.nullable {
		return v.values(h.encoding, data, n)
	}
	if c.levels, err = decodeRuns(c.levels[:0], levels, 1, n); err != nil {
		return fmt.Errorf("definition levels: %w", err)
	}
	present := 0
	for i, l := range c.levels {
		switch {
		case l > 1:
			return fmt.Errorf("definition level %d, expected 0 or 1", l)
		case l == 0 && c.Required && (c.ignored == nil || !c.ignored(first+i)):
			return &rowProblem{first + i, "null in a required column"}
		}
		present += int(l)
	}
	if err := v.values(h.encoding, data, present); err != nil || present == n {
		return err
	}
	v.spread(c.levels)
	return nil
}

// splitV1 takes a version 1 page apart: the length of the definition levels in 4
// bytes, the levels, then the values, all compressed together.
func (c *chunkReader) splitV1(h pageHeader, body []byte) (levels, data []byte, err error) {
	data, err = c.inflate(c.codec, body, h.uncompressed, c.mostBytes(h.values))
	if err != nil || !c.nullable {
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

// splitV2 takes a version 2 page apart: levels, never compressed, their lengths
// in the header, then the values.
func (c *chunkReader) splitV2(h pageHeader, body []byte) (levels, data []byte, err error) {
	size := h.repBytes + h.defBytes
	if h.repBytes > int64(len(body)) || h.defBytes > int64(len(body)) || size > int64(len(body)) || size > h.uncompressed {
		return nil, nil, fmt.Errorf("levels of %d B, expected at most the page's %d B", size, len(body))
	}
	levels, data = body[h.repBytes:size], body[size:]
	if h.stored {
		return levels, data, nil
	}
	data, err = c.inflate(c.codec, data, h.uncompressed-size, c.mostBytes(h.values))
	return levels, data, err
}
