package trace

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Value encodings, as Parquet's Encoding. The others are never the default of
// a writer and are refused.
const (
	encPlain           = 0
	encPlainDictionary = 2
	encRLE             = 3
	encDeltaBinary     = 5
	encDeltaLength     = 6
	encDictionary      = 8
)

var encodingNames = map[int64]string{
	encPlain: "PLAIN", encPlainDictionary: "PLAIN_DICTIONARY", encRLE: "RLE", 4: "BIT_PACKED",
	encDeltaBinary: "DELTA_BINARY_PACKED", encDeltaLength: "DELTA_LENGTH_BYTE_ARRAY",
	7: "DELTA_BYTE_ARRAY", encDictionary: "RLE_DICTIONARY", 9: "BYTE_STREAM_SPLIT",
}

func badEncoding(enc int64, what string) error {
	name, ok := encodingNames[enc]
	if !ok {
		name = fmt.Sprintf("number %d", enc)
	}
	return fmt.Errorf("encoding %s of %s is not supported", name, what)
}

func shortPage(want, got int) error {
	return fmt.Errorf("a page of %d values holds %d", want, got)
}

// pageValues takes the pages of one column chunk.
type pageValues interface {
	// dictionary takes the chunk's dictionary of n plain values.
	dictionary(data []byte, n int) error
	// values takes the next n values. They follow those taken before.
	values(enc int64, data []byte, n int) error
	// spread says which rows the last page's values belong to: levels has one
	// entry per row, 0 for a row without a value.
	spread(levels []uint32)
}

// intColumn decodes an integer column into 64-bit words.
type intColumn struct {
	width  int  // bytes of a plain value, 4 or 8
	signed bool // how 4-byte values widen
	out    []int64
	page   int // where the last page's values begin in out
	dict   []int64
	index  []uint32 // scratch
}

func (c *intColumn) dictionary(data []byte, n int) error {
	c.dict = make([]int64, 0, min(n, len(data)/c.width))
	var err error
	c.dict, err = c.plain(c.dict, data, n)
	return err
}

func (c *intColumn) plain(out []int64, data []byte, n int) ([]int64, error) {
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

func (c *intColumn) values(enc int64, data []byte, n int) error {
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

// narrow brings the last page's sums, which wrap at 32 bits, back to them.
func (c *intColumn) narrow() {
	for i, v := range c.out[c.page:] {
		if c.signed {
			c.out[c.page+i] = int64(int32(v))
		} else {
			c.out[c.page+i] = int64(uint32(v))
		}
	}
}

func (c *intColumn) spread(levels []uint32) {
	c.out = spread(c.out, c.page, levels, 0)
}

// spread moves the values out[page:] apart to the rows with level 1 and fills
// the others.
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

// textTable numbers the distinct texts of one column of one row group.
type textTable struct {
	byText map[string]int32
	texts  []string // by first appearance
	bytes  int
}

func (t *textTable) add(text []byte) (int32, error) {
	if i, ok := t.byText[string(text)]; ok {
		return i, nil
	}
	if t.bytes += len(text); t.bytes > 4*maxPage {
		return None, fmt.Errorf("more than %d B of distinct text in one row group", 4*maxPage)
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
	page  int
	dict  []dictText
	index []uint32 // scratch
	raw   [][]byte // scratch
}

// dictText is a dictionary's entry, and its place in the table once known.
type dictText struct {
	text []byte
	id   int32
}

func (c *textPages) dictionary(data []byte, n int) error {
	raw, err := decodePlainTexts(nil, data, n)
	if err != nil {
		return err
	}
	c.dict = make([]dictText, len(raw))
	for i, text := range raw {
		// The page's buffer will be reused.
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

// decodeIndices reads n places in a dictionary of size entries: a byte with
// the bit width, then runs.
func decodeIndices(out []uint32, data []byte, n, size int) ([]uint32, error) {
	if n == 0 {
		return out, nil
	}
	if len(data) == 0 {
		return out, shortPage(n, 0)
	}
	first := len(out)
	out, err := decodeRuns(out, data[1:], int(data[0]), n)
	if err != nil {
		return out, err
	}
	for _, i := range out[first:] {
		if uint64(i) >= uint64(size) {
			return out, fmt.Errorf("index %d into a dictionary of %d", i, size)
		}
	}
	return out, nil
}

// decodeRuns reads n numbers of width bits in Parquet's hybrid encoding: runs
// of one repeated number, and groups of eight packed ones.
func decodeRuns(out []uint32, data []byte, width, n int) ([]uint32, error) {
	if width > 32 {
		return out, fmt.Errorf("numbers of %d bits, expected at most 32", width)
	}
	out = slices.Grow(out, n)
	end := len(out) + n
	for len(out) < end {
		head, used := binary.Uvarint(data)
		if used <= 0 || head>>1 == 0 {
			return out, shortPage(n, n-(end-len(out)))
		}
		data = data[used:]
		count := min(head>>1, uint64(end)) // within an int
		bytes := (width + 7) / 8
		if head&1 == 1 {
			bytes = int(min(count, uint64(len(data)))) * width
			count = min(8*count, uint64(end-len(out)))
			if need := (int(count)*width + 7) / 8; bytes < need || need > len(data) {
				return out, shortPage(n, n-(end-len(out)))
			}
			out = unpack(out, data, width, int(count))
			data = data[min(bytes, len(data)):]
			continue
		}
		if len(data) < bytes {
			return out, shortPage(n, n-(end-len(out)))
		}
		var v uint32
		for i := range bytes {
			v |= uint32(data[i]) << (8 * i)
		}
		data = data[bytes:]
		for range min(count, uint64(end-len(out))) {
			out = append(out, v)
		}
	}
	return out, nil
}

// unpack appends n numbers of width bits, at most 32, lowest bits first. data
// holds them all.
func unpack(out []uint32, data []byte, width, n int) []uint32 {
	mask := uint64(1)<<width - 1
	var word uint64
	bits := 0
	for range n {
		for bits < width {
			word |= uint64(data[0]) << bits
			data = data[1:]
			bits += 8
		}
		out = append(out, uint32(word&mask))
		word >>= width
		bits -= width
	}
	return out
}

// decodeDelta reads n integers in DELTA_BINARY_PACKED and returns what follows
// them. Sums wrap.
func decodeDelta(out []int64, data []byte, n int) ([]int64, []byte, error) {
	c := compact{data: data} // the same varints as Thrift's
	block, minis, total, value := c.uvarint(), c.uvarint(), c.uvarint(), c.int()
	const mostBlock = 1 << 16
	if c.bad || block == 0 || block > mostBlock || minis == 0 || block%minis != 0 || block/minis%8 != 0 {
		return out, nil, fmt.Errorf("delta-coded blocks of %d values in %d parts", block, minis)
	}
	if total < uint64(n) {
		return out, nil, shortPage(n, int(total))
	}
	if total > uint64(n) {
		return out, nil, fmt.Errorf("a page of %d values holds %d", n, total)
	}
	each := int(block / minis)
	if n > 0 {
		out = append(out, value)
	}
	for left := n - 1; left > 0; {
		least := c.int()
		widths := c.pos
		c.discard(minis)
		for m := 0; m < int(minis) && left > 0 && !c.bad; m++ {
			width := int(data[widths+m])
			bytes := each / 8 * width
			if width > 64 || bytes > len(data)-c.pos {
				return out, nil, shortPage(n, n-left)
			}
			count := min(each, left)
			out, value = addDeltas(out, data[c.pos:c.pos+bytes], width, count, value, least)
			c.pos += bytes
			left -= count
		}
		if c.bad {
			return out, nil, shortPage(n, n-left)
		}
	}
	return out, data[c.pos:], nil
}

// addDeltas appends n sums that begin at value: each packed number of width
// bits, plus least, is one step.
func addDeltas(out []int64, data []byte, width, n int, value, least int64) ([]int64, int64) {
	for i := range n {
		value += least + int64(bitsAt(data, i*width, width))
		out = append(out, value)
	}
	return out, value
}

// bitsAt is the number of width bits, at most 64, at a bit position of data.
func bitsAt(data []byte, bit, width int) uint64 {
	if width == 0 {
		return 0
	}
	first, shift := bit/8, bit%8
	if len(data)-first >= 8 && shift+width <= 64 {
		return binary.LittleEndian.Uint64(data[first:]) >> shift & (1<<width - 1)
	}
	var v uint64
	for got := 0; got < width; {
		take := min(8-shift, width-got)
		v |= uint64(data[first]) >> shift & (1<<take - 1) << got
		got += take
		first, shift = first+1, 0
	}
	return v
}
