package trace

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// ReadParquet reads a Parquet trace of size bytes, or any Parquet file with the
// columns that docs/trace.md requires; the name is for messages. What is wrong
// with the file is an *InputError, with rows counted from 0 in the file; an
// error of r itself is wrapped.
//
// Memory is bounded by the file's size: its rows are counted against it before
// any is read, and a page is refused that claims more than its kind can need.
// Row groups are decoded on all cores; the result does not depend on how many.
// Progress is called from one goroutine at a time.
func ReadParquet(r io.ReaderAt, size int64, name string, opt Options) (*Trace, error) {
	p := &parquetReader{r: r, size: size, name: name, opt: opt}
	t, err := p.read()
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Rows beyond freeRows have to be paid for in bytes of the file. Recorded
// traces take 2 to 4 bytes a row; only a made-up one takes less than a sixteenth.
const (
	freeRows    = 1 << 22
	rowsPerByte = 16
)

type parquetReader struct {
	r    io.ReaderAt
	size int64
	name string
	opt  Options

	pages   int64 // the footer begins here, behind the pages
	meta    *metadata.FileMetaData
	columns []inColumn
	groups  []rowGroup
	rows    []Event // all rows, annotations among them
	stacks  *stackParser
}

// inColumn is a column of ours in the file that is read.
type inColumn struct {
	name     string
	leaf     int // its place among the file's columns
	kind     columnKind
	width    int // bytes of an integer
	signed   bool
	optional bool // the file declares it nullable
	required bool // a trace needs a value in every row
}

// rowGroup is one row group while it is decoded.
type rowGroup struct {
	first, count int // rows of the file
	chunks       []columnChunk

	devices []deviceRun
	names   []int32 // name of each annotation, in row order; None without one
	text    map[string]groupTexts
}

// groupTexts are the distinct texts of a column of a row group, by first
// appearance, and the row of each one's, from the row group's first.
type groupTexts struct {
	texts []string
	rows  []int
}

// deviceRun says that rows from first on, up to the next run, are a device's.
type deviceRun struct {
	first   int // row of the file
	ordinal int64
}

func (p *parquetReader) read() (*Trace, error) {
	if p.opt.Base != nil {
		return nil, p.fail("", "", "a Parquet trace records the state it begins in; a base goes with a memory snapshot")
	}
	if err := p.open(); err != nil {
		return nil, err
	}
	meta, bad := decodeMeta(p.meta.KeyValueMetadata().FindValue)
	if bad == nil {
		bad = p.plan()
	}
	if bad != nil {
		return nil, p.named(bad)
	}
	if err := p.decode(); err != nil {
		return nil, err
	}
	t, bad := p.build(&meta)
	if bad != nil {
		return nil, p.named(bad)
	}
	return t, nil
}

func (p *parquetReader) named(err *InputError) *InputError {
	err.Name = p.name
	return err
}

// fail blames the file.
func (p *parquetReader) fail(where, column, format string, args ...any) *InputError {
	return &InputError{Name: p.name, Where: where, Column: column, Problem: fmt.Sprintf(format, args...)}
}

// readAt reads n bytes, which the caller has checked to lie inside the file.
func (p *parquetReader) readAt(offset, n int64) ([]byte, error) {
	buf := make([]byte, n)
	if got, err := p.r.ReadAt(buf, offset); int64(got) < n {
		if err == io.EOF {
			return nil, p.fail(fmt.Sprintf("byte %d", offset+int64(got)), "", "no data here, expected a file of %d B", p.size)
		}
		return nil, cannotRead(p.name, err)
	}
	return buf, nil
}

// open reads the footer.
func (p *parquetReader) open() error {
	const frame = int64(2*len(parquetMagic) + 4)
	if p.size < frame {
		return p.fail("", "", "%d B, expected a Parquet file (at least %d B)", p.size, frame)
	}
	tail, err := p.readAt(p.size-8, 8)
	if err != nil {
		return err
	}
	if string(tail[4:]) != parquetMagic {
		return p.fail(fmt.Sprintf("byte %d", p.size-4), "", "expected %q, found %q; the file is truncated or not Parquet", parquetMagic, tail[4:])
	}
	length := int64(binary.LittleEndian.Uint32(tail))
	if most := min(p.size-frame, maxFooter); length > most {
		return p.fail(fmt.Sprintf("byte %d", p.size-8), "", "footer of %d B, expected at most %d B", length, most)
	}
	at := p.size - 8 - length
	footer, err := p.readAt(at, length)
	if err != nil {
		return err
	}
	if p.meta, err = parseFooter(footer); err != nil {
		return p.fail(fmt.Sprintf("byte %d", at), "", "%v", err)
	}
	p.pages = at
	return nil
}

// parseFooter hands the footer to arrow once its counts are known to be
// honest. Arrow panics on a schema that makes no sense.
func parseFooter(footer []byte) (m *metadata.FileMetaData, err error) {
	defer func() {
		if r := recover(); r != nil {
			m, err = nil, fmt.Errorf("malformed footer")
		}
	}()
	if !wellFormed(footer) {
		return nil, fmt.Errorf("malformed footer")
	}
	if m, err = metadata.NewFileMetaData(footer, nil); err != nil {
		return nil, fmt.Errorf("malformed footer")
	}
	if m.IsSetEncryptionAlgorithm() {
		return nil, fmt.Errorf("the file is encrypted")
	}
	return m, nil
}

// plan finds the columns and checks every claim of the footer against the
// file before anything is read by it.
func (p *parquetReader) plan() (bad *InputError) {
	defer func() {
		if recover() != nil { // arrow's getters, on a column without metadata
			bad = p.fail("", "", "malformed footer")
		}
	}()
	if bad = p.findColumns(); bad == nil {
		bad = p.findGroups()
	}
	return bad
}

// findColumns looks for our columns among the file's top-level ones; others
// are ignored.
func (p *parquetReader) findColumns() *InputError {
	found := map[string]int{}
	s := p.meta.Schema
	for i := range s.NumColumns() {
		c := s.Column(i)
		path := c.ColumnPath()
		kind, ours := columnKinds[path[0]]
		if !ours || untyped(c) && !isRequired(path[0]) {
			continue
		}
		in := inColumn{name: path[0], leaf: i, kind: kind, optional: c.MaxDefinitionLevel() > 0, required: isRequired(path[0])}
		if before, twice := found[in.name]; twice && len(path) == 1 {
			return p.fail("", in.name, "two columns of this name (%d and %d)", before, i)
		}
		if len(path) > 1 || c.MaxRepetitionLevel() > 0 || !in.accepts(c) {
			return p.fail("", in.name, "expected %s, found %s", kindNames[kind], describe(c))
		}
		found[in.name] = i
		if in.name == colAction { // decoded first: it says which rows are annotations
			p.columns = slices.Insert(p.columns, 0, in)
		} else {
			p.columns = append(p.columns, in)
		}
	}
	for _, name := range requiredColumns {
		if _, ok := found[name]; !ok {
			return p.fail("", name, "column missing; a trace needs %s", strings.Join(requiredColumns, ", "))
		}
	}
	return nil
}

func isRequired(name string) bool { return slices.Contains(requiredColumns, name) }

var columnKinds = map[string]columnKind{
	colDevice: kindDevice, colAction: kindText, colAddr: kindUnsigned, colSize: kindSigned, colStream: kindUnsigned,
	colTime: kindSigned, colName: kindText, colStack: kindText, colUserMetadata: kindText, colCompileContext: kindText,
	colPool: kindText,
}

var kindNames = [...]string{
	kindDevice: "an integer column", kindSigned: "an integer column", kindUnsigned: "an integer column",
	kindText: "a string column",
}

// accepts notes how to read the column and says whether it can be.
func (in *inColumn) accepts(c *schema.Column) bool {
	logical := c.LogicalType()
	if in.kind == kindText {
		_, isString := logical.(schema.StringLogicalType)
		_, isEnum := logical.(schema.EnumLogicalType)
		return c.PhysicalType() == parquet.Types.ByteArray && (isString || isEnum || unannotated(c))
	}
	switch c.PhysicalType() {
	case parquet.Types.Int32:
		in.width = 4
	case parquet.Types.Int64:
		in.width = 8
	default:
		return false
	}
	in.signed = true
	if i, ok := logical.(interface{ IsSigned() bool }); ok {
		in.signed = i.IsSigned()
		return true
	}
	return unannotated(c)
}

// unannotated says that a column has its physical type and no other.
func unannotated(c *schema.Column) bool {
	return c.LogicalType() == nil || !c.LogicalType().IsValid() || c.LogicalType().IsNone()
}

// untyped says that a column holds nothing but nulls and has no type, which is
// how pandas writes a column of None.
func untyped(c *schema.Column) bool {
	_, null := c.LogicalType().(schema.NullLogicalType)
	return null
}

// describe names a column's type for a message.
func describe(c *schema.Column) string {
	path := c.ColumnPath()
	switch {
	case len(path) > 1 || c.MaxRepetitionLevel() > 0:
		return "a nested column"
	case unannotated(c):
		return c.PhysicalType().String()
	}
	logical, _, _ := strings.Cut(c.LogicalType().String(), "(") // without its parameters
	return fmt.Sprintf("%s (%s)", c.PhysicalType(), logical)
}

// findGroups checks the row groups: rows that the file's size can pay for, and
// column chunks inside the file that do not overlap in sum.
func (p *parquetReader) findGroups() *InputError {
	most := freeRows + min(p.size, math.MaxInt32)*rowsPerByte
	rows, used := int64(0), int64(0)
	for i := range p.meta.RowGroups {
		g := p.meta.RowGroup(i)
		n := g.NumRows()
		if n < 0 || n > most-rows {
			return p.fail("", "", "row group %d has %d rows after %d; a file of %d B can have %d", i, n, rows, p.size, most)
		}
		if n == 0 {
			continue // writers disagree on what its columns look like
		}
		group := rowGroup{first: int(rows), count: int(n)}
		for k := range p.columns {
			chunk, bad := p.chunk(g, i, &p.columns[k])
			if bad != nil {
				return bad
			}
			if used += chunk.length; used > p.pages {
				return p.fail("", chunk.column, "row group %d: columns of more than the file's %d B", i, p.pages)
			}
			group.chunks = append(group.chunks, chunk)
		}
		rows += n
		p.groups = append(p.groups, group)
	}
	p.rows = make([]Event, rows)
	return nil
}

func (p *parquetReader) chunk(g *metadata.RowGroupMetaData, i int, in *inColumn) (columnChunk, *InputError) {
	c, err := g.ColumnChunk(in.leaf)
	where := fmt.Sprintf("row group %d", i)
	if err != nil {
		return columnChunk{}, p.fail(where, in.name, "%v", err)
	}
	chunk := columnChunk{column: in.name, codec: c.Compression(), offset: c.DataPageOffset(), length: c.TotalCompressedSize(),
		rows: int(g.NumRows()), optional: in.optional, required: in.required, text: in.kind == kindText}
	if c.HasDictionaryPage() && c.DictionaryPageOffset() > 0 {
		chunk.offset = min(chunk.offset, c.DictionaryPageOffset())
	}
	switch {
	case c.CryptoMetadata() != nil:
		return chunk, p.fail(where, in.name, "the column is encrypted")
	case c.FilePath() != "":
		return chunk, p.fail(where, in.name, "the column is in another file, %s", quoteShort(c.FilePath()))
	case !readableCodec(chunk.codec):
		return chunk, p.fail(where, in.name, "compressed with %s, expected none, SNAPPY, GZIP or ZSTD", chunk.codec)
	case c.NumValues() != g.NumRows():
		return chunk, p.fail(where, in.name, "%d values for %d rows", c.NumValues(), g.NumRows())
	case chunk.offset < int64(len(parquetMagic)) || chunk.length < 0 || chunk.length > p.pages || chunk.offset > p.pages-chunk.length:
		return chunk, p.fail(where, in.name, "%d B at byte %d are outside the file's %d B of pages", chunk.length, chunk.offset, p.pages)
	}
	return chunk, nil
}
