package parquet

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"testing"

	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/klauspost/compress/zstd"
)

// The builders below write files byte by byte, since no writer makes hostile ones.

// record is a struct of Thrift's compact protocol under construction.
type record struct {
	data []byte
	last int // id of the last field
}

func (r *record) head(id int, kind byte) {
	r.data = append(r.data, byte(id-r.last)<<4|kind)
	r.last = id
}

// number adds an integer field of 64 bits, which a reader of 32 bits takes too.
func (r *record) number(id int, n int64) *record {
	r.head(id, thriftI64-1)
	r.data = binary.AppendVarint(r.data, n)
	return r
}

func (r *record) long(id int, n int64) *record {
	r.head(id, thriftI64)
	r.data = binary.AppendVarint(r.data, n)
	return r
}

func (r *record) text(id int, s string) *record {
	r.head(id, thriftBinary)
	r.data = append(binary.AppendUvarint(r.data, uint64(len(s))), s...)
	return r
}

func (r *record) record(id int, of *record) *record {
	r.head(id, thriftStruct)
	r.data = append(r.data, of.bytes()...)
	return r
}

func (r *record) list(id int, kind byte, elements [][]byte) *record {
	r.head(id, thriftList)
	r.data = append(binary.AppendUvarint(append(r.data, 0xf0|kind), uint64(len(elements))), bytes.Join(elements, nil)...)
	return r
}

func (r *record) bytes() []byte { return append(bytes.Clone(r.data), 0) }

// rawChunk is a column chunk: its pages as they are in the file.
type rawChunk struct {
	pages []byte
	rows  int64
}

// rawSchema is the entries of a schema with one column "a", of text or of INT64.
func rawSchema(text bool) [][]byte {
	kind := int64(2)
	if text {
		kind = 6
	}
	return [][]byte{
		new(record).text(4, "root").number(5, 1).bytes(),
		new(record).number(1, kind).number(3, 0).text(4, "a").bytes(),
	}
}

// rawFile makes a file of a schema whose one column "a" has a chunk in each row group.
func rawFile(schema [][]byte, text bool, codec codec, groups []rawChunk) []byte {
	data := []byte(Magic)
	var list [][]byte
	rows := int64(0)
	kind := int64(2)
	if text {
		kind = 6
	}
	for _, g := range groups {
		size := int64(len(g.pages))
		meta := new(record).number(1, kind).list(2, thriftI64-1, nil).list(3, thriftBinary, [][]byte{{1, 'a'}}).
			number(4, codecNumbers[codec]).long(5, g.rows).long(6, size).long(7, size).long(9, int64(len(data)))
		chunk := new(record).long(2, 0).record(3, meta)
		list = append(list, new(record).list(1, thriftStruct, [][]byte{chunk.bytes()}).long(2, size).long(3, g.rows).bytes())
		data = append(data, g.pages...)
		rows += g.rows
	}
	footer := new(record).number(1, 2).list(2, thriftStruct, schema).long(3, rows).list(4, thriftStruct, list).bytes()
	data = append(data, footer...)
	data = binary.LittleEndian.AppendUint32(data, uint32(len(footer)))
	return append(data, Magic...)
}

var codecNumbers = map[codec]int64{compress.Codecs.Gzip: 2, compress.Codecs.Zstd: 6}

func packed(t *testing.T, with codec, body []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	if with == compress.Codecs.Gzip {
		w, err = gzip.NewWriterLevel(&out, gzip.BestCompression)
	} else {
		w, err = zstd.NewWriter(&out)
	}
	if err == nil {
		_, err = w.Write(body)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// rawPage makes a page of n values that decompresses to body.
func rawPage(t *testing.T, kind, n, encoding int64, with codec, body []byte) []byte {
	t.Helper()
	packed := packed(t, with, body)
	header := new(record).number(1, kind).number(2, int64(len(body))).number(3, int64(len(packed)))
	of := new(record).number(1, n).number(2, encoding)
	if kind == pageData {
		of.number(3, encRLE).number(4, encRLE)
		header.record(5, of)
	} else {
		header.record(7, of)
	}
	return append(header.bytes(), packed...)
}

// plainText is a text as a PLAIN page has it.
func plainText(text []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
}
