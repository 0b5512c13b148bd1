package trace

import "encoding/binary"

// compact reads Thrift's compact protocol, the encoding of a Parquet file's
// footer and page headers, without trusting any count in it. After a reading
// beyond the data, or of something malformed, bad is set and every value is 0.
type compact struct {
	data []byte
	pos  int
	bad  bool
}

// The compact protocol's type codes that need a name here.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

// thriftDepth bounds nesting; Parquet's own structures stay below 10.
const thriftDepth = 32

func (c *compact) fail() { c.bad, c.pos = true, len(c.data) }

func (c *compact) byte() byte {
	if c.pos >= len(c.data) {
		c.fail()
		return 0
	}
	c.pos++
	return c.data[c.pos-1]
}

func (c *compact) uvarint() uint64 {
	v, n := binary.Uvarint(c.data[c.pos:])
	if n <= 0 {
		c.fail()
		return 0
	}
	c.pos += n
	return v
}

// int is a zigzag-coded integer.
func (c *compact) int() int64 {
	v := c.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// discard skips n bytes.
func (c *compact) discard(n uint64) {
	if n > uint64(len(c.data)-c.pos) {
		c.fail()
		return
	}
	c.pos += int(n)
}

// fields calls field for each field of a struct; it must read the value.
func (c *compact) fields(field func(id int64, kind byte)) {
	var id int64
	for !c.bad {
		head := c.byte()
		kind := head & 15
		if kind == 0 {
			return
		}
		if delta := head >> 4; delta > 0 {
			id += int64(delta)
		} else {
			id = c.int()
		}
		field(id, kind)
	}
}

// skip reads over a value. A collection that claims more elements than bytes
// are left is malformed, since every element takes at least one.
func (c *compact) skip(kind byte, depth int) {
	if depth > thriftDepth {
		c.fail()
		return
	}
	switch kind {
	case thriftTrue, thriftFalse: // a field's value is in its type
	case thriftByte:
		c.byte()
	case thriftByte + 1, thriftByte + 2, thriftI64:
		c.uvarint()
	case thriftDouble:
		c.discard(8)
	case thriftBinary:
		c.discard(c.uvarint())
	case thriftList, thriftSet:
		c.skipList(depth)
	case thriftMap:
		c.skipMap(depth)
	case thriftStruct:
		c.fields(func(_ int64, kind byte) { c.skip(kind, depth+1) })
	default:
		c.fail()
	}
}

func (c *compact) skipList(depth int) {
	head := c.byte()
	n := uint64(head >> 4)
	if n == 15 {
		n = c.uvarint()
	}
	c.skipElements(n, depth, head&15)
}

func (c *compact) skipMap(depth int) {
	if n := c.uvarint(); n > 0 {
		kinds := c.byte()
		c.skipElements(n, depth, kinds>>4, kinds&15)
	}
}

func (c *compact) skipElements(n uint64, depth int, kinds ...byte) {
	if n > uint64(len(c.data)-c.pos) {
		c.fail()
	}
	for ; n > 0 && !c.bad; n-- {
		for _, k := range kinds {
			if k == thriftTrue || k == thriftFalse {
				c.byte() // in a collection a boolean is a byte
				continue
			}
			c.skip(k, depth+1)
		}
	}
}

// wellFormed says whether data begins with a struct in the compact protocol
// whose every count and length stays inside data.
func wellFormed(data []byte) bool {
	c := compact{data: data}
	c.skip(thriftStruct, 0)
	return !c.bad
}

// pageHeader is the part of Parquet's PageHeader that reading needs.
type pageHeader struct {
	kind                     int64 // of pageData …
	uncompressed, compressed int64 // bytes
	values                   int64
	encoding                 int64
	levelEncoding            int64   // of definition levels, in pageData
	defBytes, repBytes       int64   // of levels, in pageDataV2
	stored                   bool    // pageDataV2: the values are not compressed
	crc                      *uint32 // CRC-32 of the page as it is in the file, nil without one
}

// Page kinds, as Parquet's PageType.
const (
	pageData       = 0
	pageIndex      = 1
	pageDictionary = 2
	pageDataV2     = 3
)

// readPageHeader reads the header at the beginning of data and its length.
func readPageHeader(data []byte) (h pageHeader, length int, ok bool) {
	c := compact{data: data}
	h.kind = -1
	c.fields(func(id int64, kind byte) {
		switch {
		case id == 1 && kind <= thriftI64:
			h.kind = c.int()
		case id == 2 && kind <= thriftI64:
			h.uncompressed = c.int()
		case id == 3 && kind <= thriftI64:
			h.compressed = c.int()
		case id == 4 && kind <= thriftI64:
			crc := uint32(c.int())
			h.crc = &crc
		case id == 5 && kind == thriftStruct:
			c.pageFields(map[int64]*int64{1: &h.values, 2: &h.encoding, 3: &h.levelEncoding}, &h)
		case id == 7 && kind == thriftStruct:
			c.pageFields(map[int64]*int64{1: &h.values, 2: &h.encoding}, &h)
		case id == 8 && kind == thriftStruct:
			c.pageFields(map[int64]*int64{1: &h.values, 4: &h.encoding, 5: &h.defBytes, 6: &h.repBytes}, &h)
		default:
			c.skip(kind, 1)
		}
	})
	return h, c.pos, !c.bad && h.uncompressed >= 0 && h.compressed >= 0 && h.values >= 0 && h.defBytes >= 0 && h.repBytes >= 0
}

// pageFields reads the integers that a page header's inner struct has.
func (c *compact) pageFields(ints map[int64]*int64, h *pageHeader) {
	c.fields(func(id int64, kind byte) {
		if into, ok := ints[id]; ok && kind > thriftByte && kind <= thriftI64 {
			*into = c.int()
			return
		}
		h.stored = h.stored || id == 7 && kind == thriftFalse
		c.skip(kind, 2)
	})
}
