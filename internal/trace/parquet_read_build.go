package trace

import (
	"fmt"
	"math"
)

// build makes a trace from the decoded rows.
func (p *parquetReader) build(meta *fileMeta) (*Trace, *InputError) {
	t := &Trace{Name: p.name}
	p.stacks = newStackParser()
	b := traceBuilder{p: p, t: t, strings: map[string]int32{}, pools: newPoolTable()}
	for i := range p.groups {
		if bad := b.group(&p.groups[i]); bad != nil {
			return nil, bad
		}
	}
	b.devices()
	var bad *InputError
	if t.Devices, bad = meta.mergeDevices(b.list, p.stacks); bad != nil {
		return nil, bad
	}
	t.Stacks = p.stacks.stacks
	meta.apply(t)
	if meta.devices == nil {
		t.inferStates()
	}
	if bad := t.validate(p.opt.AllowNoEvents, b.where); bad != nil {
		return nil, bad
	}
	return t, nil
}

// inferStates infers the state in which each device's recording begins, which files by
// other tools do not have.
func (t *Trace) inferStates() {
	for i := range t.Devices {
		d := &t.Devices[i]
		d.Initial, _ = inferInitial(d, pastOf(d.Events), &t.Settings)
		if len(d.Initial) > 0 {
			d.InitialInferred = true
			t.Notes = append(t.Notes, fmt.Sprintf("device %d: the file does not record the state it begins in; it is inferred from frees without an allocation", d.Ordinal))
		}
	}
}

// traceBuilder turns indices into a row group's texts into indices into the trace's
// tables, which are ordered by first appearance in the file, and rows into devices.
type traceBuilder struct {
	p       *parquetReader
	t       *Trace
	strings map[string]int32
	pools   poolTable
	runs    []deviceRun // over the whole file
	names   []string    // of annotations, in row order
	list    []Device
	first   map[int]int // by ordinal: the device's first row in the file
}

// group adds a row group: its runs of devices, and the indices of its rows.
func (b *traceBuilder) group(g *rowGroup) *InputError {
	rows := b.p.rows[g.First : g.First+g.Rows]
	for _, r := range g.devices {
		if n := len(b.runs); n > 0 && b.runs[n-1].ordinal == r.ordinal {
			continue
		} else if n > 0 && b.runs[n-1].ordinal > r.ordinal {
			return rowError(r.first, colDevice, "device %d after device %d; rows must be sorted by device, in recorded order within one", r.ordinal, b.runs[n-1].ordinal)
		}
		b.runs = append(b.runs, r)
	}
	stacks, bad := b.renumber(g, colStack, b.p.stacks.add)
	if bad != nil {
		return bad
	}
	user, bad := b.renumber(g, colUserMetadata, b.addString)
	if bad != nil {
		return bad
	}
	compile, bad := b.renumber(g, colCompileContext, b.addString)
	if bad != nil {
		return bad
	}
	pools, bad := b.renumber(g, colPool, b.addPool)
	if bad != nil {
		return bad
	}
	for i := range rows {
		e := &rows[i]
		e.Stack = lookUp(stacks, e.Stack)
		e.UserMetadata = lookUp(user, e.UserMetadata)
		e.CompileContext = lookUp(compile, e.CompileContext)
		e.Pool = int16(lookUp(pools, int32(e.Pool)))
	}
	return b.annotationNames(g, rows)
}

func lookUp(table []int32, i int32) int32 {
	if i == None {
		return None
	}
	return table[i]
}

// renumber returns the index in the trace of each text of a column of a row group.
func (b *traceBuilder) renumber(g *rowGroup, column string, add func(string) (int32, error)) ([]int32, *InputError) {
	table := g.text[column]
	out := make([]int32, len(table.texts))
	for i, text := range table.texts {
		var err error
		if out[i], err = add(text); err != nil {
			return nil, rowError(g.First+table.first[i], column, "%v", err)
		}
	}
	return out, nil
}

func (b *traceBuilder) addString(text string) (int32, error) {
	i, ok := b.strings[text]
	if !ok {
		i = int32(len(b.t.Strings))
		b.strings[text] = i
		b.t.Strings = append(b.t.Strings, text)
	}
	return i, nil
}

func (b *traceBuilder) addPool(text string) (int32, error) {
	id, ok := parsePool(text)
	if !ok {
		return None, fmt.Errorf(`expected two numbers as in "0,1", found %s`, quoteShort(text))
	}
	i, ok := b.pools.number(id)
	if !ok {
		return None, fmt.Errorf("more than %d pools", math.MaxInt16+1)
	}
	return int32(i), nil
}

// annotationNames gathers the names of a row group's annotations.
func (b *traceBuilder) annotationNames(g *rowGroup, rows []Event) *InputError {
	next := 0
	for i := range rows {
		if rows[i].Action < rowAnnotationStart {
			continue
		}
		if len(g.names) == 0 || g.names[next] == None {
			return rowError(g.First+i, colName, "an annotation without a name")
		}
		b.names = append(b.names, g.text[colName].texts[g.names[next]])
		next++
	}
	return nil
}

// devices cuts the rows into devices and moves annotations to lists of their own. Events
// move up in place to fill the gaps.
func (b *traceBuilder) devices() {
	rows := b.p.rows
	b.first = map[int]int{}
	free := 0 // the row that the next event goes to
	for i, run := range b.runs {
		end := len(rows)
		if i+1 < len(b.runs) {
			end = b.runs[i+1].first
		}
		d := Device{Ordinal: int(run.ordinal)}
		b.first[d.Ordinal] = run.first
		start := free
		for k := run.first; k < end; k++ {
			if rows[k].Action < rowAnnotationStart {
				rows[free] = rows[k]
				free++
				continue
			}
			d.Annotations = append(d.Annotations, Annotation{Name: b.names[0], End: rows[k].Action == rowAnnotationEnd,
				TimeUS: rows[k].TimeUS, At: Time(free - start)})
			b.names = b.names[1:]
		}
		d.Events = rows[start:free:free]
		d.ownPools(b.pools.list)
		b.list = append(b.list, d)
	}
}

// where names the row of a device's event. The annotations before it have rows too.
func (b *traceBuilder) where(d *Device, entry int) string {
	row := b.first[d.Ordinal] + entry
	for _, a := range d.Annotations {
		if a.At > Time(entry) {
			break
		}
		row++
	}
	return rowName(row)
}
