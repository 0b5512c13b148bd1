package parquet

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Decoder reads columns of row groups. It is for one goroutine at a time, and uses its
// buffers again for every column.
type Decoder struct {
	file *File
	scratch
	ints  []int64
	texts []int32
	index []uint32
}

// Texts is a text column of one row group.
type Texts struct {
	Texts []string // the distinct texts, by first appearance
	First []int    // of each text: the row where it first appears, counted from the group's first
	Rows  []int32  // of each row: an index into Texts, or None
}

// Each calls decode for the row groups 0 to groups-1, on all cores. No two calls use one
// Decoder at a time. If several calls fail, Each returns the error of the lowest row
// group.
func (f *File) Each(groups int, decode func(group int, d *Decoder) error) error {
	dec, err := newZstdDecoder()
	if err != nil {
		return err
	}
	defer dec.Close()
	errs := make([]error, groups)
	decoders := sync.Pool{New: func() any { return &Decoder{file: f, scratch: scratch{zstd: dec, budget: f.budget}} }}
	var work errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	for i := range groups {
		work.Go(func() error {
			d := decoders.Get().(*Decoder)
			defer decoders.Put(d)
			errs[i] = decode(i, d)
			return errs[i]
		})
	}
	if work.Wait() == nil {
		return nil
	}
	return errs[slices.IndexFunc(errs, func(err error) bool { return err != nil })]
}

// Ints reads an integer column of a row group. column is an index into the columns that
// were given to RowGroups. The result has one value per row, 0 if the row has none; it is
// valid until the next call. Unsigned values are returned as the int64 with the same
// bits.
//
// ignored, unless nil, reports whether a row, counted from the group's first, has no
// meaning in this column. In such a row a null and a value out of range are no error,
// and the returned value may be anything.
func (d *Decoder) Ints(g *RowGroup, column int, ignored func(row int) bool) ([]int64, error) {
	c := &g.chunks[column]
	v := intPages{width: c.width, signed: c.signed, out: slices.Grow(d.ints[:0], g.Rows), index: d.index}
	err := d.read(g, c, &v, ignored)
	d.ints, d.index = v.out, v.index
	if err != nil {
		return nil, err
	}
	for row, n := range v.out {
		if n < 0 && c.signed == (c.Kind == Unsigned) && (ignored == nil || !ignored(row)) {
			if c.signed {
				return nil, g.fail(c, row, "expected 0 or more, found %d", n)
			}
			return nil, g.fail(c, row, "expected at most %d, found %d", int64(math.MaxInt64), uint64(n))
		}
	}
	return v.out, nil
}

// Texts reads a text column of a row group. column is an index into the columns that
// were given to RowGroups. The field Rows of the result is valid until the next call.
func (d *Decoder) Texts(g *RowGroup, column int) (Texts, error) {
	c := &g.chunks[column]
	v := textPages{table: textTable{byText: map[string]int32{}, kept: &d.budget.kept}, out: slices.Grow(d.texts[:0], g.Rows), index: d.index}
	err := d.read(g, c, &v, nil)
	d.texts, d.index = v.out, v.index
	if err != nil {
		return Texts{}, err
	}
	first := make([]int, 0, len(v.table.texts))
	for row, n := range v.out {
		if int(n) == len(first) { // numbers are given by first appearance
			first = append(first, row)
		}
	}
	return Texts{v.table.texts, first, v.out}, nil
}

func (g *RowGroup) fail(c *chunk, row int, format string, args ...any) error {
	return &Error{Where: fmt.Sprintf("row %d", g.First+row), Column: c.Name, Problem: fmt.Sprintf(format, args...)}
}

// read gives the pages of a chunk to v.
func (d *Decoder) read(g *RowGroup, c *chunk, v pageValues, ignored func(row int) bool) error {
	data, err := d.file.readAt(c.offset, c.length)
	if err != nil {
		return err
	}
	r := chunkReader{chunk: *c, data: data, ignored: ignored, scratch: &d.scratch}
	at, err := r.read(v)
	var bad *rowProblem
	var whole *Error // about the whole file
	switch {
	case errors.As(err, &whole):
		return whole
	case errors.As(err, &bad):
		return g.fail(c, bad.row, "%s", bad.problem)
	case err != nil:
		return &Error{Where: byteName(at), Column: c.Name, Problem: err.Error()}
	}
	return nil
}
