package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// File is a Parquet file whose footer has been read.
type File struct {
	r      io.ReaderAt
	size   int64 // bytes
	footer int64 // offset of the footer; all pages lie before it
	meta   *metadata.FileMetaData
	budget *budget
}

// Open reads the footer of a file of size bytes. If the file is to blame, the error is an
// *Error. An error of r is returned as it is.
func Open(r io.ReaderAt, size int64) (*File, error) {
	const frame = int64(2*len(Magic) + 4)
	f := &File{r: r, size: size, budget: newBudget(size)}
	if size < frame {
		return nil, &Error{Problem: fmt.Sprintf("%d B, expected a Parquet file (at least %d B)", size, frame)}
	}
	tail, err := f.readAt(size-8, 8)
	if err != nil {
		return nil, err
	}
	if string(tail[4:]) != Magic {
		return nil, &Error{Where: byteName(size - 4),
			Problem: fmt.Sprintf("expected %q, found %q; the file is truncated or not Parquet", Magic, tail[4:])}
	}
	length := int64(binary.LittleEndian.Uint32(tail))
	if most := min(size-frame, maxFooter); length > most {
		return nil, &Error{Where: byteName(size - 8), Problem: fmt.Sprintf("footer of %d B, expected at most %d B", length, most)}
	}
	f.footer = size - 8 - length
	footer, err := f.readAt(f.footer, length)
	if err != nil {
		return nil, err
	}
	if f.meta, err = parseFooter(footer); err != nil {
		return nil, &Error{Where: byteName(f.footer), Problem: err.Error()}
	}
	return f, nil
}

func byteName(offset int64) string { return fmt.Sprintf("byte %d", offset) }

// readAt reads n bytes. The caller has checked that they lie inside the file.
func (f *File) readAt(offset, n int64) ([]byte, error) {
	buf := make([]byte, n)
	if got, err := f.r.ReadAt(buf, offset); int64(got) < n {
		if err == io.EOF {
			return nil, &Error{Where: byteName(offset + int64(got)), Problem: fmt.Sprintf("no data here, expected a file of %d B", f.size)}
		}
		return nil, err
	}
	return buf, nil
}

var errFooter = errors.New("malformed footer")

// parseFooter checks all counts in the footer and then gives it to Arrow, which panics on
// a schema that makes no sense.
func parseFooter(footer []byte) (m *metadata.FileMetaData, err error) {
	defer func() {
		if recover() != nil {
			m, err = nil, errFooter
		}
	}()
	if !wellFormed(footer) {
		return nil, errFooter
	}
	if err := checkSchema(footer); err != nil {
		return nil, err
	}
	if m, err = metadata.NewFileMetaData(footer, nil); err != nil {
		return nil, errFooter
	}
	if m.IsSetEncryptionAlgorithm() {
		return nil, errors.New("the file is encrypted")
	}
	return m, nil
}

// refusePanics turns a panic of Arrow's getters into an error. They panic if a column has
// no metadata.
func refusePanics(err *error) {
	if recover() != nil {
		*err = &Error{Problem: errFooter.Error()}
	}
}

// Metadata returns the value of a key of the file's metadata, nil if there is
// none.
func (f *File) Metadata(key string) *string { return f.meta.KeyValueMetadata().FindValue(key) }

// Wanted is a column that a reader looks for.
type Wanted struct {
	Name string
	Kind Kind
	// Required refuses rows without a value. A column that is not required counts as
	// absent if it has no type, which is how pandas writes a column of None.
	Required bool
}

// Column is a wanted column as a file has it.
type Column struct {
	Wanted
	leaf     int  // its place among the file's columns
	width    int  // bytes of an integer, 4 or 8
	signed   bool // integers are signed
	nullable bool // rows may lack a value, and pages have definition levels
}

// Columns finds the wanted columns that the file has, in the order of the file. It is an
// *Error if one is nested, if two have one name, or if a type does not fit the kind.
func (f *File) Columns(wanted []Wanted) (columns []Column, err error) {
	defer refusePanics(&err)
	byName := map[string]*Wanted{}
	for i := range wanted {
		byName[wanted[i].Name] = &wanted[i]
	}
	found := map[string]int{}
	s := f.meta.Schema
	for i := range s.NumColumns() {
		c := s.Column(i)
		path := c.ColumnPath()
		w := byName[path[0]]
		if w == nil || untyped(c) && !w.Required {
			continue
		}
		in := Column{Wanted: *w, leaf: i, nullable: c.MaxDefinitionLevel() > 0}
		if before, twice := found[in.Name]; twice && len(path) == 1 {
			return nil, &Error{Column: in.Name, Problem: fmt.Sprintf("two columns of this name (%d and %d)", before, i)}
		}
		if len(path) > 1 || c.MaxRepetitionLevel() > 0 || !in.accepts(c) {
			return nil, &Error{Column: in.Name, Problem: fmt.Sprintf("expected %s, found %s", kindNames[in.Kind], describe(c))}
		}
		found[in.Name] = i
		columns = append(columns, in)
	}
	return columns, nil
}

var kindNames = [...]string{
	Signed: "an integer column", Unsigned: "an integer column", Signed32: "an integer column",
	Text: "a string column",
}

// accepts reports whether the column can be read, and notes how.
func (in *Column) accepts(c *schema.Column) bool {
	logical := c.LogicalType()
	if in.Kind == Text {
		_, isString := logical.(schema.StringLogicalType)
		_, isEnum := logical.(schema.EnumLogicalType)
		return c.PhysicalType() == pq.Types.ByteArray && (isString || isEnum || unannotated(c))
	}
	switch c.PhysicalType() {
	case pq.Types.Int32:
		in.width = 4
	case pq.Types.Int64:
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

// unannotated reports whether a column has a physical type only.
func unannotated(c *schema.Column) bool {
	return c.LogicalType() == nil || !c.LogicalType().IsValid() || c.LogicalType().IsNone()
}

// untyped reports whether a column has no type and holds only nulls.
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

// RowGroup is a row group that is not empty.
type RowGroup struct {
	First  int // its first row, counted from 0 in the file
	Rows   int
	chunks []chunk // of the columns that were given to RowGroups
}

// chunk is one column of one row group.
type chunk struct {
	*Column
	codec  codec
	offset int64 // of the data in the file, in bytes
	length int64 // of the data, in bytes
	rows   int
}

// Bytes is the size in the file, in bytes, of the columns that were given to RowGroups.
func (g *RowGroup) Bytes() int64 {
	sum := int64(0)
	for i := range g.chunks {
		sum += g.chunks[i].length
	}
	return sum
}

// RowGroups lists the row groups that have rows, for reading the given columns. It
// checks that the file is large enough for its number of rows, and that the columns'
// data lies inside the file and is together no larger than the file.
func (f *File) RowGroups(columns []Column) (groups []RowGroup, err error) {
	defer refusePanics(&err)
	most := min(allowance(f.size, freeRows, rowsPerByte), math.MaxInt32)
	rows, used := int64(0), int64(0)
	for i := range f.meta.RowGroups {
		g := f.meta.RowGroup(i)
		n := g.NumRows()
		if n < 0 || n > most-rows {
			return nil, &Error{Problem: fmt.Sprintf("row group %d has %d rows after %d; a file of %d B can have at most %d", i, n, rows, f.size, most)}
		}
		if n == 0 {
			continue // writers disagree on what its columns look like
		}
		group := RowGroup{First: int(rows), Rows: int(n)}
		for k := range columns {
			c, err := f.chunk(g, i, &columns[k])
			if err != nil {
				return nil, err
			}
			if used += c.length; used > f.footer {
				return nil, &Error{Column: c.Name, Problem: fmt.Sprintf("row group %d: the columns take more than the file's %d B of pages", i, f.footer)}
			}
			group.chunks = append(group.chunks, c)
		}
		rows += n
		groups = append(groups, group)
	}
	return groups, nil
}

// chunk finds a column's chunk in row group i.
func (f *File) chunk(g *metadata.RowGroupMetaData, i int, in *Column) (chunk, error) {
	fail := func(format string, args ...any) (chunk, error) {
		return chunk{}, &Error{Where: fmt.Sprintf("row group %d", i), Column: in.Name, Problem: fmt.Sprintf(format, args...)}
	}
	m, err := g.ColumnChunk(in.leaf)
	if err != nil {
		return fail("%v", err)
	}
	c := chunk{Column: in, codec: m.Compression(), offset: m.DataPageOffset(), length: m.TotalCompressedSize(), rows: int(g.NumRows())}
	if m.HasDictionaryPage() && m.DictionaryPageOffset() > 0 {
		c.offset = min(c.offset, m.DictionaryPageOffset())
	}
	switch {
	case m.CryptoMetadata() != nil:
		return fail("the column is encrypted")
	case m.FilePath() != "":
		return fail("the column is in another file, %.60q", m.FilePath())
	case !readable(c.codec):
		return fail("compressed with %s, expected none, SNAPPY, GZIP or ZSTD", c.codec)
	case m.NumValues() != g.NumRows():
		return fail("found %d values, expected one for each of %d rows", m.NumValues(), g.NumRows())
	case c.offset < int64(len(Magic)) || c.length < 0 || c.length > f.footer || c.offset > f.footer-c.length:
		return fail("%d B at byte %d are outside the file's %d B of pages", c.length, c.offset, f.footer)
	}
	return c, nil
}
