package trace

import (
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/stplan/stplan/internal/trace/parquet"
)

// WriteParquet writes t as a Parquet trace of the current version. ReadParquet returns
// all of t except its Name, with the tables ordered by first appearance. Equal traces
// give equal bytes, even if their tables are ordered differently. Of the options, only
// Progress is used; its unit is rows. One row group at a time is held in memory.
func WriteParquet(w io.Writer, t *Trace, opt Options) error {
	if err := t.writable(); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	if err := writeParquet(w, t, opt.Progress); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

// writable refuses what the form cannot hold and ReadParquet would refuse: an index out
// of range, blocks that do not tile their segment, text that is not UTF-8. What is too large
// for a file is found while it is written.
func (t *Trace) writable() error {
	c := newChecker(t, entryOf)
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

func writeParquet(w io.Writer, t *Trace, progress func(done, total int64)) error {
	if err := t.smallFrames(); err != nil {
		return err
	}
	stacks := newStackRenderer(&t.Stacks)
	longest, err := t.longestText(stacks)
	if err != nil {
		return err
	}
	meta, err := encodeMeta(t, stacks)
	if err != nil {
		return err
	}
	b := newRowBatch(t, stacks)
	if longest > longText {
		b.step = 1
	}
	out, err := parquet.NewWriter(w, "trace", b.fields(), append(meta, columnMeta(b.fields())))
	if err != nil {
		return err
	}
	scratches := make(chan *columnScratch, runtime.GOMAXPROCS(0))
	for range cap(scratches) {
		scratches <- &columnScratch{distinct: newNumbering(0)}
	}
	done, total := 0, t.rows()
	for rows := (rowCursor{t: t}); rows.fill(b); {
		err := out.Group(func(i int, w *parquet.ColumnWriter) error {
			s := <-scratches
			defer func() { scratches <- s }()
			return b.encode(b.columns[i], w, s)
		})
		if err != nil {
			return err
		}
		done += b.rows
		if progress != nil {
			progress(int64(done), int64(total))
		}
	}
	return out.Close()
}

// columnScratch is what one goroutine needs to encode columns of integers.
type columnScratch struct {
	numbers  []int64 // per row
	distinct *numbering
	indices  []int32 // per row, into distinct
}

// encode writes a column of the batch.
func (b *rowBatch) encode(c *outColumn, w *parquet.ColumnWriter, s *columnScratch) error {
	if c.text != nil {
		return w.Texts(c.text)
	}
	s.numbers = b.gather(c, slices.Grow(s.numbers[:0], b.rows))
	if c.Encoding != parquet.ByDictionary {
		return w.Ints(s.numbers)
	}
	s.count()
	return w.Indexed(s.distinct.values, s.indices)
}

// gather appends the integers of a column.
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

// count finds the distinct numbers, and for each row the index of its number.
func (s *columnScratch) count() {
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
}
