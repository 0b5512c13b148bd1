package trace

import (
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/schema"
	"golang.org/x/sync/errgroup"
)

// WriteParquet writes t as a Parquet trace of the current version. Everything
// in t but its Name comes back from ReadParquet, indices into its tables
// renumbered by first appearance. Traces that are equal, however their tables
// are numbered, give equal bytes. Of the options only Progress counts, with
// rows for units. One row group at a time is held in memory.
func WriteParquet(w io.Writer, t *Trace, opt Options) error {
	if err := t.writable(); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	out := &sink{w: w}
	pw, err := newParquetWriter(out, t)
	if err == nil {
		err = pw.write(opt.Progress)
	}
	if out.err != nil {
		err = out.err
	}
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

// writable checks what the form cannot hold and ReadParquet would refuse: an
// index out of range, blocks that do not tile, text that is not UTF-8.
func (t *Trace) writable() error {
	c := checker{t: t, where: entryOf}
	if err := c.tables(); err != nil {
		return err
	}
	for i := range t.Devices {
		if _, err := c.shape(&t.Devices[i]); err != nil {
			return err
		}
	}
	return nil
}

// sink keeps the first error of the underlying writer: the Parquet writer
// panics on one in its first write and drops one in its last. It also hides a
// Close method, which that writer would call.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err == nil {
		_, s.err = s.w.Write(p)
	}
	return len(p), nil
}

// parquetWriter writes one trace, row group by row group.
type parquetWriter struct {
	t     *Trace
	out   *sink
	file  *file.Writer
	batch *rowBatch
}

func newParquetWriter(out *sink, t *Trace) (*parquetWriter, error) {
	stacks := newStackRenderer(&t.Stacks)
	meta, err := encodeMeta(t, stacks)
	if err != nil {
		return nil, err
	}
	batch := newRowBatch(t, stacks)
	root, err := batch.schema()
	if err != nil {
		return nil, err
	}
	kv := metadata.NewKeyValueMetadata()
	size := 0
	for _, m := range meta {
		if err := kv.Append(m[0], m[1]); err != nil {
			return nil, err
		}
		size += len(m[1])
	}
	if size > maxFooter/2 {
		return nil, fmt.Errorf("segments and notes take %d B of metadata, more than a trace can hold (%d B)", size, maxFooter/2)
	}
	return &parquetWriter{t: t, out: out, batch: batch,
		file: file.NewParquetWriter(out, root, file.WithWriterProps(writerProperties()), file.WithWriteMetadata(kv))}, nil
}

// writerProperties are the encodings measured best on recorded traces: text and
// sizes repeat, times grow by little, and addresses compress better plain than
// as scattered dictionary indices. Every column of a row group is one page, so
// limits that would split it are out of reach.
func writerProperties() *parquet.WriterProperties {
	const never = 1 << 30
	return parquet.NewWriterProperties(
		parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithStats(false),
		parquet.WithBatchSize(rowGroupRows),
		parquet.WithDataPageSize(never),
		parquet.WithDictionaryPageSizeLimit(never),
		parquet.WithDictionaryFor(colAddr, false),
		parquet.WithDictionaryFor(colTime, false),
		parquet.WithEncodingFor(colTime, parquet.Encodings.DeltaBinaryPacked),
	)
}

func (pw *parquetWriter) write(progress func(done, total int64)) error {
	var done, total int64
	for i := range pw.t.Devices {
		d := &pw.t.Devices[i]
		total += int64(len(d.Events) + len(d.Annotations))
	}
	rows := rowCursor{t: pw.t}
	for rows.fill(pw.batch) {
		if err := pw.group(); err != nil {
			return err
		}
		done += int64(pw.batch.rows())
		if progress != nil {
			progress(done, total)
		}
		if pw.out.err != nil {
			return pw.out.err
		}
	}
	return pw.file.Close()
}

// group writes the batch as one row group, its columns encoded side by side.
// Each goes to a buffer of its own; Close then writes them in order.
func (pw *parquetWriter) group() error {
	group := pw.file.AppendBufferedRowGroup()
	var work errgroup.Group
	for i, c := range pw.batch.columns {
		w, err := group.Column(i)
		if err != nil {
			return err
		}
		work.Go(func() error { return c.encode(w, pw.batch) })
	}
	if err := work.Wait(); err != nil {
		return err
	}
	return group.Close()
}

// outColumn is one column of the file that is written.
type outColumn struct {
	name     string
	kind     columnKind
	optional bool
	ints     func(*rowBatch) []int64
	text     *textColumn
}

// encode turns the batch's rows into this column's page and compresses it.
func (c *outColumn) encode(w file.ColumnChunkWriter, b *rowBatch) error {
	switch w := w.(type) {
	case *file.Int32ColumnChunkWriter:
		if _, err := w.WriteBatch(b.device, nil, nil); err != nil {
			return err
		}
		return w.FlushCurrentPage()
	case *file.Int64ColumnChunkWriter:
		if _, err := w.WriteBatch(c.ints(b), nil, nil); err != nil {
			return err
		}
		return w.FlushCurrentPage()
	case *file.ByteArrayColumnChunkWriter:
		if err := c.text.encode(w, c.optional); err != nil {
			return err
		}
		return w.FlushCurrentPage()
	}
	return fmt.Errorf("column %s has no writer", c.name)
}

// rowBatch holds the rows of one row group, column by column.
type rowBatch struct {
	columns                  []*outColumn // in the order of the file
	texts                    []*textColumn
	device                   []int32
	addr, size, stream, time []int64

	action, name, stack, userMetadata, compileContext, pool *textColumn

	pools [][]int32 // by device, by index into its Pools: index into poolTexts
}

// newRowBatch decides which optional columns the trace needs.
func newRowBatch(t *Trace, stacks *stackRenderer) *rowBatch {
	b := &rowBatch{}
	has := columnsOf(t)
	add := func(name string, kind columnKind, ints func(*rowBatch) []int64) {
		b.columns = append(b.columns, &outColumn{name: name, kind: kind, ints: ints})
	}
	addText := func(name string, size int, text func(int32) string) *textColumn {
		c := newTextColumn(size, text)
		if name == colAction || has[name] {
			b.columns = append(b.columns, &outColumn{name: name, kind: kindText, optional: name != colAction, text: c})
		}
		b.texts = append(b.texts, c)
		return c
	}
	str := func(i int32) string { return t.Strings[i] }
	add(colDevice, kindDevice, nil)
	b.action = addText(colAction, len(actionTexts), func(i int32) string { return actionTexts[i] })
	add(colAddr, kindUnsigned, func(b *rowBatch) []int64 { return b.addr })
	add(colSize, kindSigned, func(b *rowBatch) []int64 { return b.size })
	add(colStream, kindUnsigned, func(b *rowBatch) []int64 { return b.stream })
	if has[colTime] {
		add(colTime, kindSigned, func(b *rowBatch) []int64 { return b.time })
	}
	b.name = addText(colName, 0, nil)
	b.stack = addText(colStack, t.Stacks.Len(), stacks.text)
	b.userMetadata = addText(colUserMetadata, len(t.Strings), str)
	b.compileContext = addText(colCompileContext, len(t.Strings), str)
	texts, index := poolTexts(t)
	b.pools = index
	b.pool = addText(colPool, len(texts), func(i int32) string { return texts[i] })
	return b
}

// actionTexts are the values of the action column: the actions by number, then
// the annotations' two.
var actionTexts = append(actionNames[:], annotationStart, annotationEnd)

const (
	rowAnnotationStart = Action(len(actionNames))
	rowAnnotationEnd   = rowAnnotationStart + 1
)

// columnsOf says which optional columns have a value anywhere.
func columnsOf(t *Trace) map[string]bool {
	has := map[string]bool{}
	for i := range t.Devices {
		d := &t.Devices[i]
		var times int64
		stack, user, compile, pool := None, None, None, int16(None)
		for k := range d.Events {
			e := &d.Events[k]
			times |= e.TimeUS
			stack = max(stack, e.Stack)
			user = max(user, e.UserMetadata)
			compile = max(compile, e.CompileContext)
			pool = max(pool, e.Pool)
		}
		for k := range d.Annotations {
			times |= d.Annotations[k].TimeUS
		}
		has[colTime] = has[colTime] || times != 0
		has[colName] = has[colName] || len(d.Annotations) > 0
		has[colStack] = has[colStack] || stack != None
		has[colUserMetadata] = has[colUserMetadata] || user != None
		has[colCompileContext] = has[colCompileContext] || compile != None
		has[colPool] = has[colPool] || pool != int16(None)
	}
	return has
}

// poolTexts lists the distinct pools of all devices as text, and for each
// device which of them its Pools are.
func poolTexts(t *Trace) (texts []string, index [][]int32) {
	known := map[PoolID]int32{}
	for i := range t.Devices {
		of := make([]int32, len(t.Devices[i].Pools))
		for k, p := range t.Devices[i].Pools {
			n, ok := known[p]
			if !ok {
				n = int32(len(texts))
				known[p] = n
				texts = append(texts, p.text())
			}
			of[k] = n
		}
		index = append(index, of)
	}
	return texts, index
}

func (b *rowBatch) schema() (*schema.GroupNode, error) {
	var fields schema.FieldList
	for _, c := range b.columns {
		r := parquet.Repetitions.Required
		if c.optional {
			r = parquet.Repetitions.Optional
		}
		n, err := c.kind.node(c.name, r)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.name, err)
		}
		fields = append(fields, n)
	}
	return schema.NewGroupNode("trace", parquet.Repetitions.Required, fields, -1)
}

func (b *rowBatch) rows() int { return len(b.device) }

func (b *rowBatch) full() bool {
	text := 0
	for _, c := range b.texts {
		text += len(c.data)
	}
	return b.rows() >= rowGroupRows || text >= maxGroupText
}

func (b *rowBatch) reset() {
	b.device, b.addr, b.size, b.stream, b.time = b.device[:0], b.addr[:0], b.size[:0], b.stream[:0], b.time[:0]
	for _, c := range b.texts {
		c.reset()
	}
}

func (b *rowBatch) event(device int, ordinal int32, e *Event) {
	b.device = append(b.device, ordinal)
	b.action.add(int32(e.Action))
	b.addr = append(b.addr, int64(e.Addr))
	b.size = append(b.size, int64(e.Size))
	b.stream = append(b.stream, int64(e.Stream))
	b.time = append(b.time, e.TimeUS)
	b.name.add(None)
	b.stack.add(e.Stack)
	b.userMetadata.add(e.UserMetadata)
	b.compileContext.add(e.CompileContext)
	pool := None
	if e.Pool >= 0 {
		pool = b.pools[device][e.Pool]
	}
	b.pool.add(pool)
}

func (b *rowBatch) annotation(ordinal int32, a *Annotation) {
	b.device = append(b.device, ordinal)
	action := rowAnnotationStart
	if a.End {
		action = rowAnnotationEnd
	}
	b.action.add(int32(action))
	b.addr = append(b.addr, 0)
	b.size = append(b.size, 0)
	b.stream = append(b.stream, 0)
	b.time = append(b.time, a.TimeUS)
	b.name.addText(a.Name)
	for _, c := range []*textColumn{b.stack, b.userMetadata, b.compileContext, b.pool} {
		c.add(None)
	}
}

// rowCursor walks a trace in the order of the file.
type rowCursor struct {
	t                  *Trace
	device             int
	event, annotations int
}

// fill makes the next row group of the batch; false when there is none.
func (r *rowCursor) fill(b *rowBatch) bool {
	b.reset()
	for r.device < len(r.t.Devices) && !b.full() {
		if !r.fillDevice(b, &r.t.Devices[r.device]) {
			r.device, r.event, r.annotations = r.device+1, 0, 0
		}
	}
	return b.rows() > 0
}

// fillDevice adds rows of the current device; false when it has no more.
func (r *rowCursor) fillDevice(b *rowBatch, d *Device) bool {
	ordinal := int32(d.Ordinal)
	for checked := 0; ; checked++ {
		if checked%256 == 0 && b.full() || b.rows() == rowGroupRows {
			return true
		}
		switch {
		case r.annotations < len(d.Annotations) && d.Annotations[r.annotations].At <= Time(r.event):
			b.annotation(ordinal, &d.Annotations[r.annotations])
			r.annotations++
		case r.event < len(d.Events):
			b.event(r.device, ordinal, &d.Events[r.event])
			r.event++
		default:
			return false
		}
	}
}

// textColumn is a text column of the current row group: per row an index into
// a dictionary that holds each distinct text once, by first appearance.
type textColumn struct {
	text    func(id int32) string
	local   []int32 // by id: its place in the dictionary, or None
	met     []int32 // the ids that local knows
	byText  map[string]int32
	data    []byte  // the dictionary's texts
	offsets []int32 // text i is data[offsets[i]:offsets[i+1]]
	rows    []int32 // per row: place in the dictionary, or None
	nulls   int
}

// newTextColumn makes a column of texts named by ids below size.
func newTextColumn(size int, text func(int32) string) *textColumn {
	c := &textColumn{text: text, local: make([]int32, size), byText: map[string]int32{}, offsets: []int32{0}}
	for i := range c.local {
		c.local[i] = None
	}
	return c
}

func (c *textColumn) reset() {
	for _, id := range c.met {
		c.local[id] = None
	}
	clear(c.byText)
	c.met, c.data, c.offsets, c.rows, c.nulls = c.met[:0], c.data[:0], c.offsets[:1], c.rows[:0], 0
}

// add appends a row with the text of id, or without one.
func (c *textColumn) add(id int32) {
	if id == None {
		c.rows = append(c.rows, None)
		c.nulls++
		return
	}
	if c.local[id] == None {
		c.local[id] = c.place(c.text(id))
		c.met = append(c.met, id)
	}
	c.rows = append(c.rows, c.local[id])
}

// addText appends a row with a text that has no id.
func (c *textColumn) addText(s string) { c.rows = append(c.rows, c.place(s)) }

func (c *textColumn) place(s string) int32 {
	i, ok := c.byText[s]
	if !ok {
		i = int32(len(c.offsets) - 1)
		c.byText[s] = i
		c.data = append(c.data, s...)
		c.offsets = append(c.offsets, int32(len(c.data)))
	}
	return i
}

// dictionaryWriter is the part of arrow's dictionary encoder that takes a
// ready-made dictionary.
type dictionaryWriter interface {
	PutDictionary(arrow.Array) error
}

func (c *textColumn) encode(w *file.ByteArrayColumnChunkWriter, optional bool) error {
	if len(c.data) > maxPage {
		return fmt.Errorf("%d B of distinct text in one row group, more than a page can hold (%d B)", len(c.data), maxPage)
	}
	enc, ok := w.CurrentEncoder().(dictionaryWriter)
	if !ok {
		return fmt.Errorf("the column's encoder takes no dictionary")
	}
	if err := enc.PutDictionary(c.dictionary()); err != nil {
		return err
	}
	var levels []int16
	if optional {
		levels = make([]int16, len(c.rows))
	}
	return w.WriteDictIndices(c.indices(levels), levels, nil)
}

func (c *textColumn) dictionary() arrow.Array {
	return array.NewStringData(array.NewData(arrow.BinaryTypes.String, len(c.offsets)-1, []*memory.Buffer{
		nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(c.offsets)), memory.NewBufferBytes(c.data)}, nil, 0, 0))
}

// indices are the rows as an arrow array; levels, unless nil, are filled with 1
// where a row has a text.
func (c *textColumn) indices(levels []int16) arrow.Array {
	var valid *memory.Buffer
	if levels != nil {
		bits := make([]byte, bitutil.BytesForBits(int64(len(c.rows))))
		for i, r := range c.rows {
			if r != None {
				bitutil.SetBit(bits, i)
				levels[i] = 1
			}
		}
		valid = memory.NewBufferBytes(bits)
	}
	return array.NewInt32Data(array.NewData(arrow.PrimitiveTypes.Int32, len(c.rows), []*memory.Buffer{
		valid, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(c.rows))}, nil, c.nulls, 0))
}
