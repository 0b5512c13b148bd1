package trace

import (
	"fmt"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// newRowBatch decides which optional columns the trace needs.
func newRowBatch(t *Trace, stacks *stackRenderer) *rowBatch {
	b := &rowBatch{devices: t.Devices, most: min(t.rows(), rowGroupRows)}
	has := columnsOf(t)
	zero := func(int, *Annotation) int64 { return 0 }
	b.add(&outColumn{name: colDevice, kind: kindDevice,
		event:      func(d int, _ *Event) int64 { return int64(t.Devices[d].Ordinal) },
		annotation: func(d int, _ *Annotation) int64 { return int64(t.Devices[d].Ordinal) }})
	b.add(&outColumn{name: colAction, kind: kindText, text: b.actionColumn()})
	b.add(&outColumn{name: colAddr, kind: kindUnsigned, annotation: zero,
		event: func(_ int, e *Event) int64 { return int64(e.Addr) }})
	b.add(&outColumn{name: colSize, kind: kindSigned, annotation: zero,
		event: func(_ int, e *Event) int64 { return int64(e.Size) }})
	b.add(&outColumn{name: colStream, kind: kindUnsigned, annotation: zero,
		event: func(_ int, e *Event) int64 { return int64(e.Stream) }})
	if has[colTime] {
		b.add(&outColumn{name: colTime, kind: kindSigned,
			event:      func(_ int, e *Event) int64 { return e.TimeUS },
			annotation: func(_ int, a *Annotation) int64 { return a.TimeUS }})
	}
	optional := func(name string, c *textColumn) {
		if has[name] {
			b.add(&outColumn{name: name, kind: kindText, optional: true, text: c})
		}
	}
	text := func(i int32) string { return t.Strings[i] }
	optional(colName, nameColumn(t))
	optional(colStack, eventColumn(t.Stacks.Len(), stacks.text, func(_ int, e *Event) int32 { return e.Stack }))
	optional(colUserMetadata, eventColumn(len(t.Strings), text, func(_ int, e *Event) int32 { return e.UserMetadata }))
	optional(colCompileContext, eventColumn(len(t.Strings), text, func(_ int, e *Event) int32 { return e.CompileContext }))
	optional(colPool, poolColumn(t))
	return b
}

func (b *rowBatch) actionColumn() *textColumn {
	c := newTextColumn(len(actionTexts), func(i int32) string { return actionTexts[i] })
	c.event = func(_ int, e *Event) int32 { return int32(e.Action) }
	c.annotation = func(d, i int) int32 {
		if b.devices[d].Annotations[i].End {
			return int32(rowAnnotationEnd)
		}
		return int32(rowAnnotationStart)
	}
	return c
}

// nameColumn has a text in annotations alone.
func nameColumn(t *Trace) *textColumn {
	names := newTextNumbers()
	of := make([][]int32, len(t.Devices)) // by device, by annotation
	for d := range t.Devices {
		for i := range t.Devices[d].Annotations {
			of[d] = append(of[d], names.number(t.Devices[d].Annotations[i].Name))
		}
	}
	c := newTextColumn(len(names.texts), func(i int32) string { return names.texts[i] })
	c.event = func(int, *Event) int32 { return None }
	c.annotation = func(d, i int) int32 { return of[d][i] }
	return c
}

// eventColumn has a text in events alone.
func eventColumn(size int, text func(int32) string, event func(device int, e *Event) int32) *textColumn {
	c := newTextColumn(size, text)
	c.event = event
	c.annotation = func(int, int) int32 { return None }
	return c
}

func poolColumn(t *Trace) *textColumn {
	texts, index := poolTexts(t)
	return eventColumn(len(texts), func(i int32) string { return texts[i] }, func(d int, e *Event) int32 {
		if e.Pool < 0 {
			return None
		}
		return index[d][e.Pool]
	})
}

// actionTexts are the values of the action column: the actions by number, then
// the annotations' two.
var actionTexts = append(actionNames[:], annotationStart, annotationEnd)

const (
	rowAnnotationStart = Action(len(actionNames))
	rowAnnotationEnd   = rowAnnotationStart + 1
)

// columnsOf says which optional columns have a value anywhere.
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

// poolTexts lists the distinct pools of all devices as text, and for each
// device which of them its Pools are.
func poolTexts(t *Trace) (texts []string, index [][]int32) {
	known := map[PoolID]int32{}
	for i := range t.Devices {
		of := make([]int32, len(t.Devices[i].Pools))
		for k, p := range t.Devices[i].Pools {
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

func (b *rowBatch) schema() (*schema.GroupNode, error) {
	var fields schema.FieldList
	for _, c := range b.columns {
		r := parquet.Repetitions.Required
		if c.optional {
			r = parquet.Repetitions.Optional
		}
		n, err := c.kind.node(c.name, r)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.name, err)
		}
		fields = append(fields, n)
	}
	return schema.NewGroupNode("trace", parquet.Repetitions.Required, fields, -1)
}
