package trace

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
)

// decode reads every row group into p.rows. Of several errors the one of the
// first row group counts, whichever was met first.
func (p *parquetReader) decode() error {
	dec, err := newPageDecoder()
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	defer dec.Close()
	errs := make([]error, len(p.groups))
	scratch := sync.Pool{New: func() any { return &groupScratch{pageScratch: pageScratch{zstd: dec}} }}
	progress := p.newProgress()
	var work errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	for i := range p.groups {
		work.Go(func() error {
			s := scratch.Get().(*groupScratch)
			defer scratch.Put(s)
			errs[i] = p.decodeGroup(&p.groups[i], s)
			progress(&p.groups[i])
			return errs[i]
		})
	}
	if work.Wait() == nil {
		return nil
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// newProgress returns what to call after each row group.
func (p *parquetReader) newProgress() func(*rowGroup) {
	var mu sync.Mutex
	done := int64(0)
	return func(g *rowGroup) {
		if p.opt.Progress == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range g.chunks {
			done += g.chunks[i].length
		}
		p.opt.Progress(done, p.size)
	}
}

// groupScratch is what one goroutine needs to decode row groups.
type groupScratch struct {
	pageScratch
	ints  []int64
	texts []int32
	index []uint32
}

func (p *parquetReader) decodeGroup(g *rowGroup, s *groupScratch) error {
	g.text = map[string]groupTexts{}
	rows := p.rows[g.first : g.first+g.count]
	for i := range rows {
		rows[i].Stack, rows[i].UserMetadata, rows[i].CompileContext, rows[i].Pool = None, None, None, int16(None)
	}
	for i := range p.columns {
		if err := p.decodeColumn(g, &p.columns[i], &g.chunks[i], rows, s); err != nil {
			return err
		}
	}
	return nil
}

func (p *parquetReader) decodeColumn(g *rowGroup, in *inColumn, c *columnChunk, rows []Event, s *groupScratch) error {
	data, err := p.readAt(c.offset, c.length)
	if err != nil {
		return err
	}
	c.data = data
	defer func() { c.data, c.ignored = nil, nil }()
	if in.ofEvents() {
		c.ignored = func(row int) bool { return rows[row].Action >= rowAnnotationStart }
	}
	var at int64
	var bad *rowProblem
	if in.kind == kindText {
		v := textPages{table: textTable{byText: map[string]int32{}}, out: slices.Grow(s.texts[:0], g.count), index: s.index}
		if at, err = c.decode(&v, &s.pageScratch); err == nil {
			bad = g.storeText(in.name, rows, &v)
		}
		s.texts, s.index = v.out, v.index
	} else {
		v := intColumn{width: in.width, signed: in.signed, out: slices.Grow(s.ints[:0], g.count), index: s.index}
		if at, err = c.decode(&v, &s.pageScratch); err == nil {
			bad = g.storeInts(in, rows, v.out)
		}
		s.ints, s.index = v.out, v.index
	}
	if err != nil && bad == nil {
		var ok bool
		if bad, ok = err.(*rowProblem); !ok {
			return p.fail(fmt.Sprintf("byte %d", at), c.column, "%v", err)
		}
	}
	if bad != nil {
		return p.fail(rowName(g.first+bad.row), c.column, "%s", bad.problem)
	}
	return nil
}

// ofEvents says that a column is ignored in the rows of annotations.
func (in *inColumn) ofEvents() bool {
	return in.name == colAddr || in.name == colSize || in.name == colStream
}

func rowName(row int) string { return fmt.Sprintf("row %d", row) }

// storeInts puts an integer column's values into the rows.
func (g *rowGroup) storeInts(in *inColumn, rows []Event, values []int64) *rowProblem {
	if in.ofEvents() {
		for i := range values {
			if rows[i].Action >= rowAnnotationStart {
				values[i] = 0
			}
		}
	}
	if in.kind == kindUnsigned {
		if bad := noNegative(in, values); bad != nil {
			return bad
		}
	} else if bad := fitsSigned(in, values); bad != nil {
		return bad
	}
	switch in.name {
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

// noNegative refuses negative numbers of a signed column that holds addresses.
func noNegative(in *inColumn, values []int64) *rowProblem {
	for i, v := range values {
		if v < 0 && in.signed {
			return &rowProblem{i, fmt.Sprintf("expected 0 or more, found %d", v)}
		}
	}
	return nil
}

// fitsSigned refuses numbers of an unsigned column beyond 63 bits.
func fitsSigned(in *inColumn, values []int64) *rowProblem {
	for i, v := range values {
		if v < 0 && !in.signed {
			return &rowProblem{i, fmt.Sprintf("expected at most %d, found %d", int64(math.MaxInt64), uint64(v))}
		}
	}
	return nil
}

func (g *rowGroup) storeDevices(values []int64) *rowProblem {
	for i, v := range values {
		if len(g.devices) > 0 && g.devices[len(g.devices)-1].ordinal == v {
			continue
		}
		if v < 0 || v > maxOrdinal {
			return &rowProblem{i, fmt.Sprintf("device %d, expected 0 to %d", v, maxOrdinal)}
		}
		g.devices = append(g.devices, deviceRun{g.first + i, v})
	}
	return nil
}

// storeText puts a text column's values, numbered within the row group, into
// the rows.
func (g *rowGroup) storeText(name string, rows []Event, v *textPages) *rowProblem {
	table := groupTexts{texts: v.table.texts}
	for i, n := range v.out {
		if int(n) < len(table.rows) {
			continue
		}
		// Numbers are given by first appearance, so this is n's first row.
		table.rows = append(table.rows, i)
		if text := table.texts[n]; !utf8.ValidString(text) {
			return &rowProblem{i, notUTF8(text)}
		}
	}
	g.text[name] = table
	switch name {
	case colAction:
		storeActions(rows, v)
	case colName:
		for i, n := range v.out {
			if rows[i].Action >= rowAnnotationStart {
				g.names = append(g.names, n)
			}
		}
	case colStack:
		for i, n := range v.out {
			rows[i].Stack = n
		}
	case colUserMetadata:
		for i, n := range v.out {
			rows[i].UserMetadata = n
		}
	case colCompileContext:
		for i, n := range v.out {
			rows[i].CompileContext = n
		}
	case colPool:
		return g.storePools(rows, v)
	}
	return nil
}

// storeActions turns names into actions; one that is unknown is ActionOther.
func storeActions(rows []Event, v *textPages) {
	actions := make([]Action, len(v.table.texts))
	for i, text := range v.table.texts {
		switch text {
		case annotationStart:
			actions[i] = rowAnnotationStart
		case annotationEnd:
			actions[i] = rowAnnotationEnd
		default:
			actions[i] = ParseAction(text)
		}
	}
	for i, n := range v.out {
		rows[i].Action = actions[n]
	}
}

func (g *rowGroup) storePools(rows []Event, v *textPages) *rowProblem {
	const most = math.MaxInt16 + 1
	if first := g.text[colPool].rows; len(first) > most {
		return &rowProblem{first[most], fmt.Sprintf("more than %d pools", most)}
	}
	for i, n := range v.out {
		rows[i].Pool = int16(n)
	}
	return nil
}
