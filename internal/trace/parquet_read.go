package trace

import (
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/stplan/stplan/internal/trace/parquet"
)

// ReadParquet reads a Parquet trace of size bytes, or any Parquet file with the columns
// that docs/trace.md requires; the name is for messages. If the file is to blame, the
// error is an *InputError, with rows counted from 0 in the file. An error of r itself is
// wrapped.
//
// Memory is bounded by the file's size: the number of rows is compared with it before
// any row is read, and a page that claims more than its kind can need is refused. Row
// groups are decoded on all cores; the result does not depend on the number of cores.
func ReadParquet(r io.ReaderAt, size int64, name string, opt Options) (*Trace, error) {
	p := &parquetReader{name: name, size: size, opt: opt}
	t, err := p.read(r)
	if err != nil {
		return nil, p.named(err)
	}
	return t, nil
}

type parquetReader struct {
	name string
	size int64 // of the file, in bytes
	opt  Options

	file    *parquet.File
	columns []parquet.Column // action is the first: it says which rows are annotations
	groups  []rowGroup
	rows    []Event // all rows, annotations included
	stacks  *stackParser
}

func (p *parquetReader) read(r io.ReaderAt) (t *Trace, err error) {
	if p.opt.Base != nil {
		return nil, &InputError{Problem: "a Parquet trace has the state in which it begins; a base is only for a memory snapshot"}
	}
	if p.file, err = parquet.Open(r, p.size); err != nil {
		return nil, err
	}
	meta, bad := decodeMeta(p.file.Metadata)
	if bad != nil {
		return nil, bad
	}
	if err := p.plan(); err != nil {
		return nil, err
	}
	if err := p.decode(); err != nil {
		return nil, err
	}
	if t, bad = p.build(&meta); bad != nil {
		return nil, bad
	}
	return t, nil
}

// named puts the file's name into an error. The result is an *InputError if the file is
// to blame.
func (p *parquetReader) named(err error) error {
	var ours *InputError
	var theirs *parquet.Error
	switch {
	case errors.As(err, &ours):
		ours.Name = p.name
		return ours
	case errors.As(err, &theirs):
		return &InputError{Name: p.name, Where: theirs.Where, Column: theirs.Column, Problem: theirs.Problem}
	}
	return cannotRead(p.name, err)
}

// plan finds the columns and the row groups, and makes room for the rows.
func (p *parquetReader) plan() (err error) {
	if p.columns, err = p.file.Columns(columnsWanted); err != nil {
		return err
	}
	for _, w := range columnsWanted {
		if w.Required && p.column(w.Name) < 0 {
			return &InputError{Column: w.Name, Problem: "column missing; a trace needs " + strings.Join(requiredColumns(), ", ")}
		}
	}
	k := p.column(colAction)
	action := p.columns[k]
	p.columns = slices.Insert(slices.Delete(p.columns, k, k+1), 0, action)
	groups, err := p.file.RowGroups(p.columns)
	if err != nil {
		return err
	}
	rows := 0
	for _, g := range groups {
		p.groups = append(p.groups, rowGroup{RowGroup: g})
		rows += g.Rows
	}
	p.rows = make([]Event, rows)
	return nil
}

// column returns the index of a column, -1 if the file does not have it.
func (p *parquetReader) column(name string) int {
	return slices.IndexFunc(p.columns, func(c parquet.Column) bool { return c.Name == name })
}

func requiredColumns() (names []string) {
	for _, w := range columnsWanted {
		if w.Required {
			names = append(names, w.Name)
		}
	}
	return names
}
