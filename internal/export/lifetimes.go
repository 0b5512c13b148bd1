package export

import (
	"encoding/json"
	"io"

	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/trace/parquet"
)

// column is a column of the table of lifetimes: of numbers, or of text.
type column struct {
	parquet.Field
	doc    string
	number func(d *Device, l *peak.Live) int64
	text   func(d *Device, l *peak.Live) (string, bool) // false is null
}

// columnsOf lists the columns. A plan's offsets are one only if there is a plan.
func columnsOf(planned bool) []column {
	signed := func(name, doc string, e parquet.Encoding, f func(d *Device, l *peak.Live) int64) column {
		return column{Field: parquet.Field{Name: name, Kind: parquet.Signed, Encoding: e}, doc: doc, number: f}
	}
	words := func(name, doc string, nullable bool, f func(d *Device, l *peak.Live) (string, bool)) column {
		return column{Field: parquet.Field{Name: name, Kind: parquet.Text, Nullable: nullable}, doc: doc, text: f}
	}
	out := []column{
		signed("device", "index of the device in the recorded process", parquet.Plain, func(d *Device, _ *peak.Live) int64 { return int64(d.Device.Ordinal) }),
		signed("start", "event at which it was allocated, -1 if before recording began", parquet.Plain, func(_ *Device, l *peak.Live) int64 {
			if l.Buffer.Initial {
				return -1
			}
			return int64(l.Buffer.Start)
		}),
		signed("end", "event at which the program freed it; the number of events if it did not", parquet.Plain,
			func(_ *Device, l *peak.Live) int64 { return int64(l.Buffer.RequestedEnd) }),
		signed("completed", "event at which the allocator could reuse it", parquet.Plain, func(_ *Device, l *peak.Live) int64 { return int64(l.Buffer.CompletedEnd) }),
		signed("bytes", "bytes, rounded up to 512", parquet.Plain, func(_ *Device, l *peak.Live) int64 { return int64(l.Buffer.Size) }),
		signed("requested", "bytes that the program asked for", parquet.Plain, func(_ *Device, l *peak.Live) int64 { return int64(l.Buffer.Requested) }),
		{Field: parquet.Field{Name: "stream", Kind: parquet.Unsigned, Encoding: parquet.Plain}, doc: "raw handle of the stream it was allocated on",
			number: func(_ *Device, l *peak.Live) int64 { return int64(l.Buffer.Stream) }},
		words("freed", "yes if the recording has its free, else no", false, func(_ *Device, l *peak.Live) (string, bool) { return yesNo(!l.Buffer.Resident), true }),
		words("category", "what it is for", false, func(_ *Device, l *peak.Live) (string, bool) { return categoryOf(l), true }),
		words("sure", "yes if the recording shows the category, no if it is inferred", false, func(_ *Device, l *peak.Live) (string, bool) { return yesNo(l.Sure), true }),
		signed("iteration", "in which it was allocated, from 1; 0 is the start-up, -1 before recording began", parquet.Plain,
			func(_ *Device, l *peak.Live) int64 { return int64(l.Phase.Iteration) }),
		words("part", "of the iteration: forward, backward, optimizer step, ...; empty if not known", false,
			func(_ *Device, l *peak.Live) (string, bool) { return l.Phase.Part.String(), true }),
		words("line", "the line of code, or why there is none", false, byStack(func(d *Device, stack int32) (string, bool) { return d.Line(stack).Label, true })),
		words("stack", "one line FILE:LINE:NAME per frame, innermost first; null if none was recorded", true, byStack(func(d *Device, stack int32) (string, bool) {
			if stack == trace.None {
				return "", false
			}
			return d.Trace.Stacks.Text(stack), true
		})),
	}
	if planned {
		out = append(out, signed("plan_offset", "its place in the plan, in bytes from the start of the arena; -1 if it has none", parquet.Plain,
			func(d *Device, l *peak.Live) int64 { return d.Offsets[l.Index] }))
	}
	return out
}

// byStack makes the text of each stack of a row group once. A column is encoded by one goroutine at a
// time, and all devices share their stacks.
func byStack(text func(d *Device, stack int32) (string, bool)) func(d *Device, l *peak.Live) (string, bool) {
	type known struct {
		text string
		ok   bool
	}
	found := map[int32]known{}
	return func(d *Device, l *peak.Live) (string, bool) {
		k, ok := found[l.Stack]
		if !ok {
			k.text, k.ok = text(d, l.Stack)
			found[l.Stack] = k
		}
		return k.text, k.ok
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// WriteLifetimes writes a row for each buffer, by device and start. progress, unless nil,
// is told how many rows of all are written.
func WriteLifetimes(w io.Writer, devices []Device, progress func(done, total int64)) error {
	planned := false
	var total int64
	for i := range devices {
		planned = planned || devices[i].Offsets != nil
		total += int64(len(devices[i].Timeline.Buffers))
	}
	t := table{planned: planned, columns: columnsOf(planned), seen: map[int32]bool{}}
	var err error
	if t.out, err = parquet.NewWriter(w, "lifetimes", t.fields(), [][2]string{{"stplan.columns", t.docs()}}); err != nil {
		return err
	}
	var done int64
	for i := range devices {
		d := &devices[i]
		for k := range d.Timeline.Buffers {
			t.add(row{d, d.Buffer(k)})
			if !t.full() {
				continue
			}
			done += int64(len(t.rows))
			if err := t.flush(); err != nil {
				return err
			}
			if progress != nil {
				progress(done, total)
			}
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	return t.out.Close()
}

// A row group has at most groupRows rows, and ends early at groupText of distinct stacks,
// in bytes: it is held in memory while it is written, and has to fit a page.
const (
	groupRows = 1 << 16
	groupText = 32 << 20
)

type row struct {
	device *Device
	live   peak.Live
}

type table struct {
	planned bool
	columns []column
	out     *parquet.Writer

	// Of the row group under way: its rows, their stacks, and about how long these are.
	rows []row
	seen map[int32]bool
	text int
}

func (t *table) add(r row) {
	t.rows = append(t.rows, r)
	stack := r.live.Stack
	if stack == trace.None || t.seen[stack] {
		return
	}
	t.seen[stack] = true
	stacks := &r.device.Trace.Stacks
	for _, f := range stacks.At(stack) {
		const numbers = 16 // bytes, of a line and the separators
		t.text += len(stacks.Frames[f].File) + len(stacks.Frames[f].Name) + numbers
	}
}

func (t *table) full() bool { return len(t.rows) >= groupRows || t.text >= groupText }

func (t *table) fields() []parquet.Field {
	out := make([]parquet.Field, len(t.columns))
	for i := range out {
		out[i] = t.columns[i].Field
	}
	return out
}

// docs is the JSON that describes the columns.
func (t *table) docs() string {
	docs := map[string]string{}
	for _, c := range t.columns {
		docs[c.Name] = c.doc
	}
	text, _ := json.Marshal(docs) // texts alone: it cannot fail
	return string(text)
}

func (t *table) flush() error {
	if len(t.rows) == 0 {
		return nil
	}
	err := t.out.Group(func(i int, w *parquet.ColumnWriter) error {
		c := &t.columns[i]
		if c.text != nil {
			return w.Texts(t.texts(c))
		}
		numbers := make([]int64, len(t.rows))
		for k := range t.rows {
			numbers[k] = c.number(t.rows[k].device, &t.rows[k].live)
		}
		return w.Ints(numbers)
	})
	t.rows, t.text = t.rows[:0], 0
	clear(t.seen)
	t.columns = columnsOf(t.planned) // without the texts that they remember
	return err
}

// texts gathers a column of text.
func (t *table) texts(c *column) *parquet.Dictionary {
	ids := map[string]int32{}
	var distinct []string
	rows := make([]int32, len(t.rows))
	for k := range t.rows {
		text, ok := c.text(t.rows[k].device, &t.rows[k].live)
		if !ok {
			rows[k] = parquet.None
			continue
		}
		id, known := ids[text]
		if !known {
			id = int32(len(distinct))
			ids[text] = id
			distinct = append(distinct, text)
		}
		rows[k] = id
	}
	d := parquet.NewDictionary(len(rows), len(distinct), func(id int32) string { return distinct[id] })
	for _, id := range rows {
		d.Add(id)
	}
	return d
}
