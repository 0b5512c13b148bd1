package trace

import "github.com/stplan/stplan/internal/trace/parquet"

// outColumn is a column that is written: of integers, or, if text is not nil, of
// text. Its functions take the values from the events and annotations of the
// device with an index.
type outColumn struct {
	parquet.Field
	event      func(device int, e *Event) int64
	annotation func(device int, a *Annotation) int64

	text           *parquet.Dictionary
	eventText      func(device int, e *Event) int32 // an id of text's, or None
	annotationText func(device, i int) int32        // the same for annotation i
}

// newRowBatch decides which columns the trace needs. Their encodings are those
// measured best on recorded traces: text and sizes repeat, times grow by little,
// and addresses compress better plain than as scattered indices into a dictionary.
func newRowBatch(t *Trace, stacks *stackRenderer) *rowBatch {
	b := &rowBatch{devices: t.Devices, most: min(t.rows(), parquet.GroupRows), step: eventStep}
	has := columnsOf(t)
	zero := func(int, *Annotation) int64 { return 0 }
	b.add(&outColumn{Field: parquet.Field{Name: colDevice, Kind: parquet.Signed32},
		event:      func(d int, _ *Event) int64 { return int64(t.Devices[d].Ordinal) },
		annotation: func(d int, _ *Annotation) int64 { return int64(t.Devices[d].Ordinal) }})
	b.add(b.actionColumn())
	b.add(&outColumn{Field: parquet.Field{Name: colAddr, Kind: parquet.Unsigned, Encoding: parquet.Plain},
		event: func(_ int, e *Event) int64 { return int64(e.Addr) }, annotation: zero})
	b.add(&outColumn{Field: parquet.Field{Name: colSize, Kind: parquet.Signed},
		event: func(_ int, e *Event) int64 { return int64(e.Size) }, annotation: zero})
	b.add(&outColumn{Field: parquet.Field{Name: colStream, Kind: parquet.Unsigned},
		event: func(_ int, e *Event) int64 { return int64(e.Stream) }, annotation: zero})
	if has[colTime] {
		b.add(&outColumn{Field: parquet.Field{Name: colTime, Kind: parquet.Signed, Encoding: parquet.Delta},
			event:      func(_ int, e *Event) int64 { return e.TimeUS },
			annotation: func(_ int, a *Annotation) int64 { return a.TimeUS }})
	}
	str := func(i int32) string { return t.Strings[i] }
	if has[colName] {
		b.addNullable(colName, b.nameColumn())
	}
	if has[colStack] {
		b.addNullable(colStack, b.eventColumn(t.Stacks.Len(), stacks.text, func(_ int, e *Event) int32 { return e.Stack }))
	}
	if has[colUserMetadata] {
		b.addNullable(colUserMetadata, b.eventColumn(len(t.Strings), str, func(_ int, e *Event) int32 { return e.UserMetadata }))
	}
	if has[colCompileContext] {
		b.addNullable(colCompileContext, b.eventColumn(len(t.Strings), str, func(_ int, e *Event) int32 { return e.CompileContext }))
	}
	if has[colPool] {
		b.addNullable(colPool, b.poolColumn())
	}
	return b
}

func (b *rowBatch) addNullable(name string, c *outColumn) {
	c.Name, c.Nullable = name, true
	b.add(c)
}

func (b *rowBatch) add(c *outColumn) {
	b.columns = append(b.columns, c)
	if c.text != nil {
		b.texts = append(b.texts, c.text)
	}
}

// fields describes the columns of the file.
func (b *rowBatch) fields() []parquet.Field {
	fields := make([]parquet.Field, len(b.columns))
	for i, c := range b.columns {
		fields[i] = c.Field
	}
	return fields
}

// textColumn makes a column of texts with ids below ids.
func (b *rowBatch) textColumn(ids int, text func(id int32) string) *outColumn {
	return &outColumn{Field: parquet.Field{Kind: parquet.Text}, text: parquet.NewDictionary(b.most, ids, text)}
}

func (b *rowBatch) actionColumn() *outColumn {
	c := b.textColumn(len(actionTexts), func(i int32) string { return actionTexts[i] })
	c.Name = colAction
	c.eventText = func(_ int, e *Event) int32 { return int32(e.Action) }
	c.annotationText = func(d, i int) int32 {
		if b.devices[d].Annotations[i].End {
			return int32(rowAnnotationEnd)
		}
		return int32(rowAnnotationStart)
	}
	return c
}

// nameColumn has texts in the rows of annotations only.
func (b *rowBatch) nameColumn() *outColumn {
	names := newTextNumbers()
	of := make([][]int32, len(b.devices)) // by device, by annotation
	for d := range b.devices {
		for i := range b.devices[d].Annotations {
			of[d] = append(of[d], names.number(b.devices[d].Annotations[i].Name))
		}
	}
	c := b.textColumn(len(names.texts), func(i int32) string { return names.texts[i] })
	c.eventText = func(int, *Event) int32 { return None }
	c.annotationText = func(d, i int) int32 { return of[d][i] }
	return c
}

// eventColumn has texts in the rows of events only.
func (b *rowBatch) eventColumn(ids int, text func(id int32) string, of func(device int, e *Event) int32) *outColumn {
	c := b.textColumn(ids, text)
	c.eventText = of
	c.annotationText = func(int, int) int32 { return None }
	return c
}

func (b *rowBatch) poolColumn() *outColumn {
	texts, index := poolTexts(b.devices)
	return b.eventColumn(len(texts), func(i int32) string { return texts[i] }, func(d int, e *Event) int32 {
		if e.Pool < 0 {
			return None
		}
		return index[d][e.Pool]
	})
}

// poolTexts lists the distinct pools of all devices as texts, and for each device
// the index of each of its Pools in that list.
func poolTexts(devices []Device) (texts []string, index [][]int32) {
	known := map[PoolID]int32{}
	for i := range devices {
		of := make([]int32, len(devices[i].Pools))
		for k, p := range devices[i].Pools {
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

// columnsOf reports which of the columns that may be absent have a value in any row.
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
