package packing

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// csvColumns are the columns of an instance file. WriteCSV adds the last one.
var csvColumns = []string{"id", "lower", "upper", "size", "offset"}

const (
	colID = iota
	colLower
	colUpper
	colSize
	colOffset
)

// maxLine is the longest line of an instance file, in bytes. It bounds the memory that
// a file without line breaks takes.
const maxLine = 64 << 10

// ReadCSV reads an instance in minimalloc's form: a header that names the columns id,
// lower, upper and size in any order, then one buffer a row, live in [lower, upper),
// its size in exact bytes. An offset column, as WriteCSV writes it, has to hold
// integers and is not used. Any other column is refused, and so is an empty line
// anywhere. ids is the id column, in which an id may repeat. The alignment of the
// problem is 1.
//
// name is the file's name in messages. Errors are *InputError, with line and column
// (the byte in the line), both from 1.
func ReadCSV(r io.Reader, name string) (ids []string, p *Problem, err error) {
	c := &csvReader{name: name, scan: bufio.NewScanner(r)}
	c.scan.Buffer(nil, maxLine)
	if err := c.header(); err != nil {
		return nil, nil, err
	}
	p = &Problem{Alignment: 1}
	for {
		more, err := c.next()
		if err != nil {
			return nil, nil, err
		}
		if !more {
			return ids, p, nil
		}
		id, b, err := c.row()
		if err != nil {
			return nil, nil, err
		}
		if len(ids) == maxBuffers {
			return nil, nil, c.fault(1, fmt.Sprintf("expected at most %d buffers, found more", maxBuffers))
		}
		ids, p.Buffers = append(ids, id), append(p.Buffers, b)
	}
}

type csvReader struct {
	name   string
	scan   *bufio.Scanner
	line   int
	fields []string // of the current line, trimmed
	at     []int    // of each field: the byte in the line where it begins, from 1
	place  [5]int   // of each of csvColumns: its index in fields, -1 if absent
}

func (c *csvReader) fault(column int, problem string) error {
	return &InputError{Name: c.name, Where: fmt.Sprintf("line %d, column %d", c.line, column), Problem: problem}
}

// next moves to the next line and splits it.
func (c *csvReader) next() (bool, error) {
	c.line++
	if !c.scan.Scan() {
		err := c.scan.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			return false, c.fault(1, fmt.Sprintf("expected a line of at most %d bytes, found a longer one", maxLine))
		}
		if err != nil {
			return false, fmt.Errorf("%s: line %d: cannot read: %w", c.name, c.line, err)
		}
		return false, nil
	}
	text := c.scan.Text()
	if strings.TrimSpace(text) == "" {
		return false, c.fault(1, "expected a row, found an empty line")
	}
	c.fields, c.at = c.fields[:0], c.at[:0]
	from := 0
	for {
		end := strings.IndexByte(text[from:], ',')
		field := text[from:]
		if end >= 0 {
			field = text[from : from+end]
		}
		left := strings.TrimLeft(field, " \t\r")
		c.at = append(c.at, from+len(field)-len(left)+1)
		c.fields = append(c.fields, strings.TrimRight(left, " \t\r"))
		if end < 0 {
			return true, nil
		}
		from += end + 1
	}
}

func (c *csvReader) header() error {
	more, err := c.next()
	if err != nil {
		return err
	}
	if !more {
		return c.fault(1, "expected the header id,lower,upper,size, found the end of the file")
	}
	c.place = [5]int{-1, -1, -1, -1, -1}
	for i, f := range c.fields {
		k := columnNamed(f)
		switch {
		case k < 0:
			return c.fault(c.at[i], fmt.Sprintf("expected a column of id, lower, upper, size, offset, found %q", clipped(f)))
		case c.place[k] >= 0:
			return c.fault(c.at[i], fmt.Sprintf("expected column %s once, found it again", f))
		}
		c.place[k] = i
	}
	for k, at := range c.place[:colOffset] {
		if at < 0 {
			return c.fault(1, fmt.Sprintf("expected a column %s in the header, found none", csvColumns[k]))
		}
	}
	return nil
}

func columnNamed(name string) int {
	for k, n := range csvColumns {
		if n == name {
			return k
		}
	}
	return -1
}

func (c *csvReader) row() (id string, b Buffer, err error) {
	want := 4
	if c.place[colOffset] >= 0 {
		want = 5
	}
	if len(c.fields) != want {
		return "", b, c.fault(1, fmt.Sprintf("expected %d fields, found %d", want, len(c.fields)))
	}
	var v [5]int64
	for k := colLower; k <= colOffset; k++ {
		if c.place[k] < 0 {
			continue
		}
		if v[k], err = c.integer(k); err != nil {
			return "", b, err
		}
	}
	switch {
	case v[colLower] < 0:
		return "", b, c.fault(c.at[c.place[colLower]], fmt.Sprintf("lower: expected 0 or later, found %d", v[colLower]))
	case v[colUpper] <= v[colLower]:
		return "", b, c.fault(c.at[c.place[colUpper]], fmt.Sprintf("upper: expected more than lower %d, found %d", v[colLower], v[colUpper]))
	case v[colSize] <= 0:
		return "", b, c.fault(c.at[c.place[colSize]], fmt.Sprintf("size: expected more than 0 bytes, found %d", v[colSize]))
	}
	return c.fields[c.place[colID]], Buffer{Start: Time(v[colLower]), End: Time(v[colUpper]), Size: Bytes(v[colSize])}, nil
}

func (c *csvReader) integer(k int) (int64, error) {
	f := c.fields[c.place[k]]
	v, err := strconv.ParseInt(f, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, c.fault(c.at[c.place[k]], fmt.Sprintf("%s: expected an integer of 64 bits, found %q", csvColumns[k], f))
	}
	if err != nil {
		return 0, c.fault(c.at[c.place[k]], fmt.Sprintf("%s: expected an integer, found %q", csvColumns[k], f))
	}
	return v, nil
}

// WriteCSV writes the buffers of p with their ids and, in a last column, their offsets.
// ids has one entry per buffer. An id may not hold a comma, a line break, or space at
// either end, since the form has no quoting.
func WriteCSV(w io.Writer, ids []string, p *Problem, pl Placement) error {
	if len(ids) != len(p.Buffers) || len(pl.Offsets) != len(p.Buffers) {
		return fmt.Errorf("expected %d ids and offsets, one per buffer, found %d and %d", len(p.Buffers), len(ids), len(pl.Offsets))
	}
	out := bufio.NewWriter(w)
	out.WriteString(strings.Join(csvColumns, ",") + "\n")
	var line []byte
	for i, b := range p.Buffers {
		if strings.ContainsAny(ids[i], ",\n") || strings.Trim(ids[i], " \t\r") != ids[i] {
			return fmt.Errorf("buffer %d: expected an id without comma, line break or outer space, found %q", i, ids[i])
		}
		line = append(append(line[:0], ids[i]...), ',')
		line = append(strconv.AppendInt(line, int64(b.Start), 10), ',')
		line = append(strconv.AppendInt(line, int64(b.End), 10), ',')
		line = append(strconv.AppendInt(line, int64(b.Size), 10), ',')
		line = append(strconv.AppendInt(line, int64(pl.Offsets[i]), 10), '\n')
		out.Write(line)
	}
	return out.Flush()
}

// clipped is a field for a message: the first line of a file of another kind may be long.
func clipped(field string) string {
	const longest = 40 // bytes
	if len(field) <= longest {
		return field
	}
	return field[:longest] + "…"
}
