package parquet

import (
	"encoding/binary"
	"fmt"
)

// pageValues decodes the pages of one column chunk, one after the other.
type pageValues interface {
	// dictionary takes the chunk's dictionary of n plain values.
	dictionary(data []byte, n int) error
	// values takes the next n values, in the encoding enc.
	values(enc int64, data []byte, n int) error
	// spread moves the last page's values to the rows that they belong to.
	// levels has an entry for each row of the page: 0 for a row without a value,
	// 1 for the others.
	spread(levels []uint32)
}

// spread moves the values out[page:] to the rows with level 1 and puts fill into
// the other rows.
func spread[T any](out []T, page int, levels []uint32, fill T) []T {
	from := len(out)
	for len(out) < page+len(levels) {
		out = append(out, fill)
	}
	for i := len(levels) - 1; i >= 0; i-- {
		if levels[i] == 0 {
			out[page+i] = fill
			continue
		}
		from--
		out[page+i] = out[from]
	}
	return out
}

// intPages decodes an integer column into 64-bit words.
type intPages struct {
	width  int  // bytes of a plain value, 4 or 8
	signed bool // 4-byte values are widened with their sign
	out    []int64
	page   int // index in out of the last page's first value
	dict   []int64
	index  []uint32 // scratch
}

func (c *intPages) dictionary(data []byte, n int) error {
	c.dict = make([]int64, 0, min(n, len(data)/c.width))
	var err error
	c.dict, err = c.plain(c.dict, data, n)
	return err
}

func (c *intPages) plain(out []int64, data []byte, n int) ([]int64, error) {
	if len(data)/c.width < n {
		return out, shortPage(n, len(data)/c.width)
	}
	for i := range n {
		switch {
		case c.width == 8:
			out = append(out, int64(binary.LittleEndian.Uint64(data[8*i:])))
		case c.signed:
			out = append(out, int64(int32(binary.LittleEndian.Uint32(data[4*i:]))))
		default:
			out = append(out, int64(binary.LittleEndian.Uint32(data[4*i:])))
		}
	}
	return out, nil
}

func (c *intPages) values(enc int64, data []byte, n int) error {
	c.page = len(c.out)
	var err error
	switch enc {
	case encPlain:
		c.out, err = c.plain(c.out, data, n)
	case encDeltaBinary:
		c.out, _, err = decodeDelta(c.out, data, n)
		if c.width == 4 {
			c.narrow()
		}
	case encPlainDictionary, encDictionary:
		if c.index, err = decodeIndices(c.index[:0], data, n, len(c.dict)); err != nil {
			return err
		}
		for _, i := range c.index {
			c.out = append(c.out, c.dict[i])
		}
	default:
		err = badEncoding(enc, "integers")
	}
	return err
}

// narrow reduces the last page's sums to 32 bits, at which they wrap.
func (c *intPages) narrow() {
	for i, v := range c.out[c.page:] {
		if c.signed {
			c.out[c.page+i] = int64(int32(v))
		} else {
			c.out[c.page+i] = int64(uint32(v))
		}
	}
}

func (c *intPages) spread(levels []uint32) {
	c.out = spread(c.out, c.page, levels, 0)
}

// textTable numbers the distinct texts of one column of one row group.
type textTable struct {
	byText map[string]int32
	texts  []string // by first appearance
	bytes  int      // in texts
}

func (t *textTable) add(text []byte) (int32, error) {
	if i, ok := t.byText[string(text)]; ok {
		return i, nil
	}
	if t.bytes += len(text); t.bytes > maxColumnText {
		return None, fmt.Errorf("more than %d B of distinct text in one row group", maxColumnText)
	}
	i := int32(len(t.texts))
	s := string(text)
	t.byText[s] = i
	t.texts = append(t.texts, s)
	return i, nil
}

// textPages decodes a text column into indices of a table.
type textPages struct {
	table textTable
	out   []int32 // None for a row without a value
	page  int     // index in out of the last page's first row
	dict  []dictText
	index []uint32 // scratch
	raw   [][]byte // scratch
}

// dictText is an entry of a dictionary.
type dictText struct {
	text []byte
	id   int32 // its number in the table, None before its first use
}

func (c *textPages) dictionary(data []byte, n int) error {
	raw, err := decodePlainTexts(nil, data, n)
	if err != nil {
		return err
	}
	c.dict = make([]dictText, len(raw))
	for i, text := range raw {
		// The page's buffer will be used again.
		c.dict[i] = dictText{append([]byte(nil), text...), None}
	}
	return nil
}

func (c *textPages) values(enc int64, data []byte, n int) error {
	c.page = len(c.out)
	var err error
	switch enc {
	case encPlain:
		c.raw, err = decodePlainTexts(c.raw[:0], data, n)
	case encDeltaLength:
		c.raw, err = decodeDeltaTexts(c.raw[:0], data, n)
	case encPlainDictionary, encDictionary:
		return c.fromDictionary(data, n)
	default:
		err = badEncoding(enc, "text")
	}
	if err != nil {
		return err
	}
	for _, text := range c.raw {
		id, err := c.table.add(text)
		if err != nil {
			return err
		}
		c.out = append(c.out, id)
	}
	return nil
}

func (c *textPages) fromDictionary(data []byte, n int) error {
	var err error
	if c.index, err = decodeIndices(c.index[:0], data, n, len(c.dict)); err != nil {
		return err
	}
	for _, k := range c.index {
		d := &c.dict[k]
		if d.id == None {
			if d.id, err = c.table.add(d.text); err != nil {
				return err
			}
		}
		c.out = append(c.out, d.id)
	}
	return nil
}

func (c *textPages) spread(levels []uint32) {
	c.out = spread(c.out, c.page, levels, None)
}

// decodePlainTexts reads n texts, each after its length in 4 bytes.
func decodePlainTexts(out [][]byte, data []byte, n int) ([][]byte, error) {
	for i := range n {
		if len(data) < 4 {
			return out, shortPage(n, i)
		}
		size := binary.LittleEndian.Uint32(data)
		if data = data[4:]; uint64(size) > uint64(len(data)) {
			return out, shortPage(n, i)
		}
		out = append(out, data[:size])
		data = data[size:]
	}
	return out, nil
}

// decodeDeltaTexts reads n texts whose lengths come first, delta-coded.
func decodeDeltaTexts(out [][]byte, data []byte, n int) ([][]byte, error) {
	lengths, data, err := decodeDelta(nil, data, n)
	if err != nil {
		return out, err
	}
	for i, size := range lengths {
		if size < 0 || size > int64(len(data)) {
			return out, shortPage(n, i)
		}
		out = append(out, data[:size])
		data = data[size:]
	}
	return out, nil
}
