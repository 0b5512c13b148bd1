package parquet

import (
	"encoding/binary"
	"fmt"
)

// compact reads Thrift's compact protocol, in which Parquet writes the footer and
// the page headers. It trusts no count in the data. After an attempt to read beyond
// the data, or to read something malformed, bad is set and every value is 0.
type compact struct {
	data []byte
	pos  int
	bad  bool
}

// Type codes of the compact protocol. 4 and 5 are integers of 16 and 32 bits.
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

// thriftDepth is the deepest nesting of structures that skip follows. Parquet's own
// structures stay below 10; the limit keeps a made-up footer from exhausting the
// call stack.
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

// int reads a zigzag-coded integer.
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

// fields calls field for each field of a struct. field must read the value.
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

// skip reads over a value. A collection is malformed if it claims more elements
// than bytes are left, since every element takes at least one byte.
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
	n, kind := c.list()
	c.skipElements(n, depth, kind)
}

// list reads the head of a list: the number of its elements and their type.
func (c *compact) list() (n uint64, kind byte) {
	head := c.byte()
	n = uint64(head >> 4)
	if n == 15 {
		n = c.uvarint()
	}
	return n, head & 15
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

// wellFormed reports whether data begins with a struct of the compact protocol,
// with all counts and lengths inside data.
func wellFormed(data []byte) bool {
	c := compact{data: data}
	c.skip(thriftStruct, 0)
	return !c.bad
}

// checkSchema refuses a schema that is too large or too deeply nested. footer is well
// formed. The schema is field 2: a list of entries in depth-first order, each with the number
// of its children in field 5.
func checkSchema(footer []byte) error {
	var err error
	c := compact{data: footer}
	c.fields(func(id int64, kind byte) {
		if id != 2 || kind != thriftList || err != nil {
			c.skip(kind, 1)
			return
		}
		err = c.schema()
	})
	return err
}

func (c *compact) schema() error {
	n, kind := c.list()
	if n > maxSchema {
		c.fail()
		return fmt.Errorf("a schema of %d entries, expected at most %d", n, maxSchema)
	}
	var left []int64 // of each group that is open: its children that are still to come
	for ; n > 0 && !c.bad && kind == thriftStruct; n-- {
		for len(left) > 0 && left[len(left)-1] == 0 {
			left = left[:len(left)-1]
		}
		if len(left) > 0 {
			left[len(left)-1]--
		}
		if children := c.children(); children > 0 {
			left = append(left, children)
		}
		if len(left) > maxNesting {
			c.fail()
			return fmt.Errorf("columns are nested more than %d deep", maxNesting)
		}
	}
	return nil
}

// children reads an entry of a schema and returns the number of its children.
func (c *compact) children() (n int64) {
	c.fields(func(id int64, kind byte) {
		if id == 5 && kind > thriftByte && kind <= thriftI64 {
			n = c.int()
			return
		}
		c.skip(kind, 1)
	})
	return n
}
