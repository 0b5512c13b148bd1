package trace

import (
	"fmt"
	"slices"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/file"
)

// outColumn is one column of the file that is written: of text, or of numbers
// that event and annotation take from a row of the device with an index.
type outColumn struct {
	name       string
	kind       columnKind
	optional   bool
	text       *textColumn
	event      func(device int, e *Event) int64
	annotation func(device int, a *Annotation) int64
}

// columnScratch is what one goroutine needs to encode columns of numbers.
type columnScratch struct {
	numbers  []int64 // per row
	distinct *numbering
	indices  []int32 // per row, into distinct
}

// encode turns the batch's rows into this column's page and compresses it.
func (c *outColumn) encode(w file.ColumnChunkWriter, b *rowBatch, s *columnScratch) error {
	if c.text == nil {
		s.numbers = b.gather(c, slices.Grow(s.numbers[:0], b.rows))
	}
	switch w := w.(type) {
	case *file.ByteArrayColumnChunkWriter:
		if err := c.text.encode(w, c.optional); err != nil {
			return err
		}
		return w.FlushCurrentPage()
	case *file.Int32ColumnChunkWriter:
		if err := putDictionary(w.CurrentEncoder(), s.count().int32s()); err != nil {
			return err
		}
		if err := w.WriteDictIndices(indexArray(s.indices, nil, 0), nil, nil); err != nil {
			return err
		}
		return w.FlushCurrentPage()
	case *file.Int64ColumnChunkWriter:
		if err := c.encodeInt64(w, s); err != nil {
			return err
		}
		return w.FlushCurrentPage()
	}
	return fmt.Errorf("column %s has no writer", c.name)
}

func (c *outColumn) encodeInt64(w *file.Int64ColumnChunkWriter, s *columnScratch) error {
	if c.name == colAddr || c.name == colTime {
		_, err := w.WriteBatch(s.numbers, nil, nil)
		return err
	}
	if err := putDictionary(w.CurrentEncoder(), s.count().int64s()); err != nil {
		return err
	}
	return w.WriteDictIndices(indexArray(s.indices, nil, 0), nil, nil)
}

// gather appends a column's numbers.
func (b *rowBatch) gather(c *outColumn, out []int64) []int64 {
	for _, r := range b.runs {
		d := &b.devices[r.device]
		if r.annotations {
			for i := range d.Annotations[r.from:r.to] {
				out = append(out, c.annotation(r.device, &d.Annotations[r.from+i]))
			}
			continue
		}
		for i := range d.Events[r.from:r.to] {
			out = append(out, c.event(r.device, &d.Events[r.from+i]))
		}
	}
	return out
}

// count numbers the distinct numbers of a column. arrow would do so too, but
// with an allocation for every row.
func (s *columnScratch) count() *numbering {
	s.distinct.reset()
	s.indices = slices.Grow(s.indices[:0], len(s.numbers))
	var last int64
	index := None
	for _, n := range s.numbers {
		if n != last || index == None {
			last = n
			index, _ = s.distinct.number(uint64(n))
		}
		s.indices = append(s.indices, index)
	}
	return s.distinct
}

// int64s are the numbers as an arrow array.
func (n *numbering) int64s() arrow.Array {
	return array.NewInt64Data(array.NewData(arrow.PrimitiveTypes.Int64, len(n.values), []*memory.Buffer{
		nil, memory.NewBufferBytes(arrow.Uint64Traits.CastToBytes(n.values))}, nil, 0, 0))
}

// int32s are the numbers, which fit 32 bits, as an arrow array.
func (n *numbering) int32s() arrow.Array {
	values := make([]int32, len(n.values))
	for i, v := range n.values {
		values[i] = int32(v)
	}
	return array.NewInt32Data(array.NewData(arrow.PrimitiveTypes.Int32, len(values), []*memory.Buffer{
		nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(values))}, nil, 0, 0))
}

// putDictionary hands a ready-made dictionary to a column's encoder.
func putDictionary(encoder any, dictionary arrow.Array) error {
	e, ok := encoder.(interface{ PutDictionary(arrow.Array) error })
	if !ok {
		return fmt.Errorf("the column's encoder takes no dictionary")
	}
	return e.PutDictionary(dictionary)
}

func (c *textColumn) encode(w *file.ByteArrayColumnChunkWriter, optional bool) error {
	if len(c.data) > maxPage {
		return fmt.Errorf("%d B of distinct text in one row group, more than a page can hold (%d B)", len(c.data), maxPage)
	}
	if err := putDictionary(w.CurrentEncoder(), c.dictionary()); err != nil {
		return err
	}
	var levels []int16
	if optional {
		levels = make([]int16, len(c.rows))
	}
	return w.WriteDictIndices(indexArray(c.rows, levels, c.nulls), levels, nil)
}

func (c *textColumn) dictionary() arrow.Array {
	return array.NewStringData(array.NewData(arrow.BinaryTypes.String, len(c.offsets)-1, []*memory.Buffer{
		nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(c.offsets)), memory.NewBufferBytes(c.data)}, nil, 0, 0))
}

// indexArray has rows as an arrow array; levels, unless nil, are filled with 1
// where a row is not None.
func indexArray(rows []int32, levels []int16, nulls int) arrow.Array {
	var valid *memory.Buffer
	if levels != nil {
		bits := make([]byte, bitutil.BytesForBits(int64(len(rows))))
		for i, r := range rows {
			if r != None {
				bitutil.SetBit(bits, i)
				levels[i] = 1
			}
		}
		valid = memory.NewBufferBytes(bits)
	}
	return array.NewInt32Data(array.NewData(arrow.PrimitiveTypes.Int32, len(rows), []*memory.Buffer{
		valid, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(rows))}, nil, nulls, 0))
}
