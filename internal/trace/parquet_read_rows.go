package trace

import (
	"fmt"
	"math"
	"sync"
	"unicode/utf8"

	"github.com/stplan/stplan/internal/trace/parquet"
)

// rowGroup is a row group with what the rows do not hold after it is decoded.
type rowGroup struct {
	parquet.RowGroup
	devices []deviceRun
	names   []int32               // by annotation, in row order: its name, an index into text[colName], or None
	text    map[string]groupTexts // by column
}

// deviceRun is a run of rows of one device. It ends at the first row of the next run.
type deviceRun struct {
	first   int // row of the file
	ordinal int64
}

// groupTexts are the distinct texts of a column of a row group, by first appearance.
// Text i appears first in row first[i], counted from the group's first row.
type groupTexts struct {
	texts []string
	first []int
}

// decode reads every row group into p.rows.
func (p *parquetReader) decode() error {
	var mu sync.Mutex
	done := int64(0) // bytes of the file
	return p.file.Each(len(p.groups), func(i int, d *parquet.Decoder) error {
		g := &p.groups[i]
		err := p.decodeGroup(g, d)
		if p.opt.Progress != nil {
			mu.Lock()
			defer mu.Unlock()
			done += g.Bytes()
			p.opt.Progress(done, p.size)
		}
		return err
	})
}

func (p *parquetReader) decodeGroup(g *rowGroup, d *parquet.Decoder) error {
	g.text = map[string]groupTexts{}
	rows := p.rows[g.First : g.First+g.Rows]
	for i := range rows {
		rows[i].Stack, rows[i].UserMetadata, rows[i].CompileContext, rows[i].Pool = None, None, None, int16(None)
	}
	for i := range p.columns {
		if err := g.decodeColumn(i, &p.columns[i], rows, d); err != nil {
			return err
		}
	}
	return nil
}

// decodeColumn reads column i, which is c, into the rows.
func (g *rowGroup) decodeColumn(i int, c *parquet.Column, rows []Event, d *parquet.Decoder) error {
	if c.Kind == parquet.Text {
		texts, err := d.Texts(&g.RowGroup, i)
		if err != nil {
			return err
		}
		return g.storeText(c.Name, rows, &texts)
	}
	var ignored func(row int) bool
	if c.Name == colAddr || c.Name == colSize || c.Name == colStream {
		ignored = func(row int) bool { return rows[row].Action >= rowAnnotationStart }
	}
	values, err := d.Ints(&g.RowGroup, i, ignored)
	if err != nil {
		return err
	}
	return g.storeInts(c.Name, rows, values)
}

func rowName(row int) string { return fmt.Sprintf("row %d", row) }

// rowError blames a row of the file.
func rowError(row int, column, format string, args ...any) *InputError {
	return &InputError{Where: rowName(row), Column: column, Problem: fmt.Sprintf(format, args...)}
}

// storeInts puts an integer column's values into the rows. The rows of annotations may
// get any address, size and stream: only their action and time are used.
func (g *rowGroup) storeInts(name string, rows []Event, values []int64) error {
	switch name {
	case colDevice:
		return g.storeDevices(values)
	case colAddr:
		for i, v := range values {
			rows[i].Addr = uint64(v)
		}
	case colSize:
		for i, v := range values {
			rows[i].Size = Bytes(v)
		}
	case colStream:
		for i, v := range values {
			rows[i].Stream = uint64(v)
		}
	case colTime:
		for i, v := range values {
			rows[i].TimeUS = v
		}
	}
	return nil
}

func (g *rowGroup) storeDevices(values []int64) error {
	for i, v := range values {
		if len(g.devices) > 0 && g.devices[len(g.devices)-1].ordinal == v {
			continue
		}
		if v < 0 || v > maxOrdinal {
			return rowError(g.First+i, colDevice, "device %d, expected 0 to %d", v, maxOrdinal)
		}
		g.devices = append(g.devices, deviceRun{g.First + i, v})
	}
	return nil
}

// storeText puts a text column's values into the rows, as indices into the group's
// texts.
func (g *rowGroup) storeText(name string, rows []Event, t *parquet.Texts) error {
	for i, text := range t.Texts {
		if !utf8.ValidString(text) {
			return rowError(g.First+t.First[i], name, "%s", notUTF8(text))
		}
	}
	g.text[name] = groupTexts{t.Texts, t.First}
	switch name {
	case colAction:
		storeActions(rows, t)
	case colName:
		for i, n := range t.Rows {
			if rows[i].Action >= rowAnnotationStart {
				g.names = append(g.names, n)
			}
		}
	case colStack:
		for i, n := range t.Rows {
			rows[i].Stack = n
		}
	case colUserMetadata:
		for i, n := range t.Rows {
			rows[i].UserMetadata = n
		}
	case colCompileContext:
		for i, n := range t.Rows {
			rows[i].CompileContext = n
		}
	case colPool:
		return g.storePools(rows, t)
	}
	return nil
}

// storeActions turns names into actions. An unknown name is ActionOther.
func storeActions(rows []Event, t *parquet.Texts) {
	actions := make([]Action, len(t.Texts))
	for i, text := range t.Texts {
		switch text {
		case annotationStart:
			actions[i] = rowAnnotationStart
		case annotationEnd:
			actions[i] = rowAnnotationEnd
		default:
			actions[i] = ParseAction(text)
		}
	}
	for i, n := range t.Rows {
		rows[i].Action = actions[n]
	}
}

func (g *rowGroup) storePools(rows []Event, t *parquet.Texts) error {
	const most = math.MaxInt16 + 1
	if len(t.First) > most {
		return rowError(g.First+t.First[most], colPool, "more than %d pools", most)
	}
	for i, n := range t.Rows {
		rows[i].Pool = int16(n)
	}
	return nil
}
