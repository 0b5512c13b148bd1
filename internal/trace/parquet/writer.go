package parquet

import (
	"fmt"
	"io"
	"runtime"
	"sync/atomic"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
	"github.com/apache/arrow/go/v17/arrow/memory"
	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/schema"
	"golang.org/x/sync/errgroup"
)

// Encoding says how a column that is written stores its values.
type Encoding uint8

// The encodings that Writer uses. Text is always ByDictionary.
const (
	ByDictionary Encoding = iota // an index per row into the distinct values
	Plain                        // the values, in 4 or 8 bytes each
	Delta                        // DELTA_BINARY_PACKED: differences of neighbours
)

// Field describes a column that is written.
type Field struct {
	Name     string
	Kind     Kind
	Nullable bool // rows may lack a value; only for Text
	Encoding Encoding
}

// Writer writes a Parquet file, row group by row group. Each column of a row group
// becomes one page. Equal calls write equal bytes, on any number of cores. It refuses to
// write what a reader would refuse, because the file is too small for what it holds.
type Writer struct {
	out     *sink
	file    *file.Writer
	fields  []Field
	workers int          // columns that are encoded at a time
	rows    int64        // so far
	kept    atomic.Int64 // bytes of dictionaries and distinct texts so far, as a reader counts them
}

// sink keeps the first error of the underlying writer. Arrow's writer panics on an error
// in its first write and loses one in its last. sink also hides a Close method, which
// Arrow's writer would call.
type sink struct {
	w    io.Writer
	err  error
	size int64 // bytes so far
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err == nil {
		_, s.err = s.w.Write(p)
	}
	s.size += int64(len(p))
	return len(p), nil
}

// NewWriter begins a file. The schema has the given name and fields. meta is the file's
// metadata: keys and values, in order. It is not compared with MaxMetadata.
func NewWriter(w io.Writer, name string, fields []Field, meta [][2]string) (*Writer, error) {
	root, err := schemaOf(name, fields)
	if err != nil {
		return nil, err
	}
	kv := metadata.NewKeyValueMetadata()
	for _, m := range meta {
		if err := kv.Append(m[0], m[1]); err != nil {
			return nil, err
		}
	}
	out := &sink{w: w}
	f := file.NewParquetWriter(out, root, file.WithWriterProps(properties(fields)), file.WithWriteMetadata(kv))
	return &Writer{out: out, file: f, fields: fields, workers: runtime.GOMAXPROCS(0)}, out.err
}

func schemaOf(name string, fields []Field) (*schema.GroupNode, error) {
	var nodes schema.FieldList
	for i := range fields {
		n, err := fields[i].node()
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", fields[i].Name, err)
		}
		nodes = append(nodes, n)
	}
	return schema.NewGroupNode(name, pq.Repetitions.Required, nodes, -1)
}

// node is the field's entry in the schema.
func (f *Field) node() (schema.Node, error) {
	r := pq.Repetitions.Required
	if f.Nullable {
		r = pq.Repetitions.Optional
	}
	integer := func(bits int8, signed bool, t pq.Type) (schema.Node, error) {
		return schema.NewPrimitiveNodeLogical(f.Name, r, schema.NewIntLogicalType(bits, signed), t, -1, -1)
	}
	switch f.Kind {
	case Signed32:
		return integer(32, true, pq.Types.Int32)
	case Signed:
		return integer(64, true, pq.Types.Int64)
	case Unsigned:
		return integer(64, false, pq.Types.Int64)
	default:
		return schema.NewPrimitiveNodeLogical(f.Name, r, schema.StringLogicalType{}, pq.Types.ByteArray, -1, -1)
	}
}

// properties sets the fields' encodings.
func properties(fields []Field) *pq.WriterProperties {
	// never, in bytes, is larger than any page: the limits that would split a page are
	// never reached.
	const never = 1 << 30
	props := []pq.WriterProperty{
		pq.WithCompression(compress.Codecs.Zstd),
		pq.WithStats(false),
		pq.WithBatchSize(GroupRows),
		pq.WithDataPageSize(never),
		pq.WithDictionaryPageSizeLimit(never),
	}
	for _, f := range fields {
		if f.Encoding != ByDictionary {
			props = append(props, pq.WithDictionaryFor(f.Name, false))
		}
		if f.Encoding == Delta {
			props = append(props, pq.WithEncodingFor(f.Name, pq.Encodings.DeltaBinaryPacked))
		}
	}
	return pq.NewWriterProperties(props...)
}

// Group writes one row group. It calls encode once for the index of every field, several
// at a time. encode must call one method of c, once. The encoded columns are held in
// memory until all are complete. After an error the Writer must not be used.
func (w *Writer) Group(encode func(field int, c *ColumnWriter) error) error {
	group := w.file.AppendBufferedRowGroup()
	var work errgroup.Group
	work.SetLimit(w.workers)
	for i := range w.fields {
		out, err := group.Column(i)
		if err != nil {
			return err
		}
		work.Go(func() error { return encode(i, &ColumnWriter{field: &w.fields[i], out: out, kept: &w.kept}) })
	}
	if err := work.Wait(); err != nil {
		return err
	}
	rows, err := group.NumRows()
	if err != nil {
		return err
	}
	w.rows += int64(rows)
	if err := group.Close(); err != nil && w.out.err == nil {
		return err
	}
	if w.out.err != nil {
		return w.out.err
	}
	return w.readable()
}

// readable refuses what a reader would refuse, if it knew only what is written so far. Within
// these bounds pages do not decompress to more than inflatePerByte allows: a row has less than
// 100 B outside of its texts.
func (w *Writer) readable() error {
	if most := allowance(w.out.size, freeRows, rowsPerByte); w.rows > most {
		return fmt.Errorf("%d rows in %d B: a file of that size can have at most %d, so it could not be read", w.rows, w.out.size, most)
	}
	if most := allowance(w.out.size, keepFree, keepPerByte); w.kept.Load() > most {
		return fmt.Errorf("%d B of dictionaries and distinct texts in a file of %d B: it can have at most %d B, so it could not be read", w.kept.Load(), w.out.size, most)
	}
	return nil
}

// Close writes the footer. It does not close the underlying writer.
func (w *Writer) Close() error {
	if err := w.file.Close(); err != nil && w.out.err == nil {
		return err
	}
	return w.out.err
}

// ColumnWriter writes one column of one row group.
type ColumnWriter struct {
	field *Field
	out   file.ColumnChunkWriter
	kept  *atomic.Int64
}

// Ints writes an integer for each row. The column must have 64 bits and be Plain or
// Delta.
func (c *ColumnWriter) Ints(rows []int64) error {
	out, ok := c.out.(*file.Int64ColumnChunkWriter)
	if !ok {
		return c.unfit("integers of 64 bits")
	}
	if _, err := out.WriteBatch(rows, nil, nil); err != nil {
		return err
	}
	return out.FlushCurrentPage()
}

// Indexed writes integers for a column that is ByDictionary: row i holds
// values[rows[i]]. The values must be distinct, and fit 32 bits in a Signed32 column. A
// signed value is given as the uint64 with the same bits. Arrow could find the distinct
// values itself, but allocates memory for every row.
func (c *ColumnWriter) Indexed(values []uint64, rows []int32) error {
	switch c.field.Kind {
	case Signed32:
		c.kept.Add(4 * int64(len(values)))
		return c.indexed(int32Array(values), rows, nil, 0)
	case Signed, Unsigned:
		c.kept.Add(8 * int64(len(values)))
		return c.indexed(int64Array(values), rows, nil, 0)
	}
	return c.unfit("integers")
}

// Texts writes the rows that d gathered.
func (c *ColumnWriter) Texts(d *Dictionary) error {
	if c.field.Kind != Text {
		return c.unfit("text")
	}
	if len(d.data) > maxPage {
		return fmt.Errorf("%d B of distinct text in one row group, more than a page can hold (%d B)", len(d.data), maxPage)
	}
	// A reader counts the dictionary's page, with 4 B before each text, and the texts in use.
	c.kept.Add(2*int64(len(d.data)) + (4+entryCost+textCost)*int64(len(d.offsets)-1))
	var levels []int16
	if c.field.Nullable {
		levels = make([]int16, len(d.rows))
	}
	return c.indexed(textArray(d), d.rows, levels, d.nulls)
}

func (c *ColumnWriter) unfit(what string) error {
	return fmt.Errorf("column %s takes no %s", c.field.Name, what)
}

// indexed writes a dictionary and an index for each row. levels is nil, or has a 0 for
// each row, which becomes its definition level. nulls is the number of rows that are
// None.
func (c *ColumnWriter) indexed(dictionary arrow.Array, rows []int32, levels []int16, nulls int) error {
	e, ok := c.out.CurrentEncoder().(interface{ PutDictionary(arrow.Array) error })
	if !ok {
		return c.unfit("dictionary")
	}
	if err := e.PutDictionary(dictionary); err != nil {
		return err
	}
	if err := c.out.WriteDictIndices(indexArray(rows, levels, nulls), levels, nil); err != nil {
		return err
	}
	return c.out.(interface{ FlushCurrentPage() error }).FlushCurrentPage()
}

func int64Array(values []uint64) arrow.Array {
	return array.NewInt64Data(array.NewData(arrow.PrimitiveTypes.Int64, len(values), []*memory.Buffer{
		nil, memory.NewBufferBytes(arrow.Uint64Traits.CastToBytes(values))}, nil, 0, 0))
}

func int32Array(values []uint64) arrow.Array {
	narrow := make([]int32, len(values))
	for i, v := range values {
		narrow[i] = int32(v)
	}
	return array.NewInt32Data(array.NewData(arrow.PrimitiveTypes.Int32, len(narrow), []*memory.Buffer{
		nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(narrow))}, nil, 0, 0))
}

func textArray(d *Dictionary) arrow.Array {
	return array.NewStringData(array.NewData(arrow.BinaryTypes.String, len(d.offsets)-1, []*memory.Buffer{
		nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(d.offsets)), memory.NewBufferBytes(d.data)}, nil, 0, 0))
}

// indexArray makes an Arrow array of rows. If levels is not nil, it sets the level
// of each row that is not None to 1.
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
