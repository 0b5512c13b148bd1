package parquet

// pageHeader is the part of Parquet's PageHeader that reading needs.
type pageHeader struct {
	kind                     int64 // pageData, …; -1 without one
	uncompressed, compressed int64 // bytes
	values                   int64
	encoding                 int64
	levelEncoding            int64   // of definition levels; pageData only
	defBytes, repBytes       int64   // lengths of the levels; pageDataV2 only
	stored                   bool    // the values are not compressed; pageDataV2 only
	crc                      *uint32 // CRC-32 of the page as it is in the file; nil without one
}

// Page kinds, numbered as in Parquet's PageType.
const (
	pageData       = 0
	pageIndex      = 1
	pageDictionary = 2
	pageDataV2     = 3
)

// readPageHeader reads the header at the beginning of data. length is its size in
// bytes.
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

// pageFields reads the struct inside a page header that its kind of page has: ints
// says where the integer fields go, by field number.
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
