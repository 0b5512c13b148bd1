package parquet

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Value encodings, numbered as in Parquet's Encoding. Other encodings are refused:
// no writer uses them by default.
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

// decodeIndices reads n indices into a dictionary of size entries: a byte with
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
			return out, fmt.Errorf("index %d into a dictionary of %d values", i, size)
		}
	}
	return out, nil
}

// decodeRuns reads n numbers of width bits in Parquet's hybrid of run lengths and
// bit packing: runs of one repeated number, and groups of eight packed numbers.
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
		count := min(head>>1, uint64(end)) // now it fits an int
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

// unpack appends n numbers of width bits, at most 32, lowest bits first. data must
// hold all of them.
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

// decodeDelta reads n integers in DELTA_BINARY_PACKED and returns the data after
// them. Sums wrap at 64 bits.
func decodeDelta(out []int64, data []byte, n int) ([]int64, []byte, error) {
	c := compact{data: data} // the same varints as Thrift's
	block, minis, total, value := c.uvarint(), c.uvarint(), c.uvarint(), c.int()
	// mostBlock is the most values in a block. Writers use 128; the limit keeps
	// the products below from overflowing.
	const mostBlock = 1 << 16
	if c.bad || block == 0 || block > mostBlock || minis == 0 || block%minis != 0 || block/minis%8 != 0 {
		return out, nil, fmt.Errorf("delta-coded blocks of %d values in %d parts, expected 1 to %d values in parts of a multiple of 8", block, minis, mostBlock)
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

// addDeltas appends n sums. Each is the one before it, at first value, plus least,
// plus a packed number of width bits. It returns the last sum.
func addDeltas(out []int64, data []byte, width, n int, value, least int64) ([]int64, int64) {
	for i := range n {
		value += least + int64(bitsAt(data, i*width, width))
		out = append(out, value)
	}
	return out, value
}

// bitsAt returns the number of width bits, at most 64, that begins at a bit of data.
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
