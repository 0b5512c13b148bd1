package parquet

import "encoding/binary"

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
	kept   *meter   // counts them
}

func (t *textTable) add(text []byte) (int32, error) {
	if i, ok := t.byText[string(text)]; ok {
		return i, nil
	}
	if err := t.kept.add(int64(len(text)) + textCost); err != nil {
		return None, err
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
	dict  textDictionary
	index []uint32 // scratch
}

// textDictionary is a dictionary of texts as its page has it.
type textDictionary struct {
	page []byte
	ends []uint32 // of each text: where it ends in page
	ids  []int32  // of each text: its number in the table, None before its first use
}

// text is the dictionary's text i. Each is after its length in 4 bytes.
func (d *textDictionary) text(i uint32) []byte {
	start := uint32(4)
	if i > 0 {
		start += d.ends[i-1]
	}
	return d.page[start:d.ends[i]]
}

func (c *textPages) dictionary(data []byte, n int) error {
	if n > len(data)/4 {
		return shortPage(n, len(data)/4)
	}
	c.dict = textDictionary{make([]byte, 0, len(data)), make([]uint32, 0, n), make([]int32, 0, n)}
	end := uint32(0)
	err := plainTexts(data, n, func(text []byte) error {
		end += 4 + uint32(len(text))
		c.dict.ends, c.dict.ids = append(c.dict.ends, end), append(c.dict.ids, None)
		return nil
	})
	// The page's buffer will be used again.
	c.dict.page = append(c.dict.page, data...)
	return err
}

func (c *textPages) values(enc int64, data []byte, n int) error {
	c.page = len(c.out)
	switch enc {
	case encPlain:
		return plainTexts(data, n, c.add)
	case encDeltaLength:
		return deltaTexts(data, n, c.add)
	case encPlainDictionary, encDictionary:
		return c.fromDictionary(data, n)
	}
	return badEncoding(enc, "text")
}

// add appends the next row's text.
func (c *textPages) add(text []byte) error {
	id, err := c.table.add(text)
	c.out = append(c.out, id)
	return err
}

func (c *textPages) fromDictionary(data []byte, n int) error {
	var err error
	d := &c.dict
	if c.index, err = decodeIndices(c.index[:0], data, n, len(d.ids)); err != nil {
		return err
	}
	for _, k := range c.index {
		if d.ids[k] == None {
			if d.ids[k], err = c.table.add(d.text(k)); err != nil {
				return err
			}
		}
		c.out = append(c.out, d.ids[k])
	}
	return nil
}

func (c *textPages) spread(levels []uint32) {
	c.out = spread(c.out, c.page, levels, None)
}

// plainTexts calls use for n texts, each after its length in 4 bytes.
func plainTexts(data []byte, n int, use func(text []byte) error) error {
	for i := range n {
		if len(data) < 4 {
			return shortPage(n, i)
		}
		size := binary.LittleEndian.Uint32(data)
		if data = data[4:]; uint64(size) > uint64(len(data)) {
			return shortPage(n, i)
		}
		if err := use(data[:size]); err != nil {
			return err
		}
		data = data[size:]
	}
	return nil
}

// deltaTexts calls use for n texts whose lengths come first, delta-coded.
func deltaTexts(data []byte, n int, use func(text []byte) error) error {
	lengths, data, err := decodeDelta(nil, data, n)
	if err != nil {
		return err
	}
	for i, size := range lengths {
		if size < 0 || size > int64(len(data)) {
			return shortPage(n, i)
		}
		if err := use(data[:size]); err != nil {
			return err
		}
		data = data[size:]
	}
	return nil
}
