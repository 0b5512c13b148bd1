package trace

import "github.com/stplan/stplan/internal/trace/parquet"

// maxGroupText ends a row group early: a group that has this much distinct text in all
// columns together, in bytes, gets no more rows. Nearly all of the text is stacks. It is
// held in memory while the group is written.
const maxGroupText = 32 << 20

// eventStep is the largest number of events between two checks of the batch's size, unless
// texts are long. The batch may exceed maxGroupText by the text of this many events.
const eventStep = 256

// rowBatch is the rows of one row group: their places in the trace, and the text of their
// columns, whose size may end the row group.
type rowBatch struct {
	devices []Device
	columns []*outColumn          // in the order of the file
	texts   []*parquet.Dictionary // those of columns
	runs    []rowRun
	rows    int
	most    int // the largest number of rows in a row group
	step    int // the largest number of events that are added at a time
}

// rowRun is consecutive rows of one kind: the events or the annotations
// [from, to) of a device.
type rowRun struct {
	device      int // index into the trace's devices
	annotations bool
	from, to    int
}

// rows counts the rows of the file.
func (t *Trace) rows() int {
	n := 0
	for i := range t.Devices {
		n += len(t.Devices[i].Events) + len(t.Devices[i].Annotations)
	}
	return n
}

func (b *rowBatch) full() bool {
	text := 0
	for _, c := range b.texts {
		text += c.Bytes()
	}
	return b.rows >= parquet.GroupRows || text >= maxGroupText
}

func (b *rowBatch) reset() {
	b.runs, b.rows = b.runs[:0], 0
	for _, c := range b.texts {
		c.Reset()
	}
}

// events adds the events [from, to) of a device.
func (b *rowBatch) events(device, from, to int) {
	b.extend(rowRun{device: device, from: from, to: to})
	events := b.devices[device].Events[from:to]
	for _, c := range b.columns {
		if c.text == nil {
			continue
		}
		for i := range events {
			c.text.Add(c.eventText(device, &events[i]))
		}
	}
}

func (b *rowBatch) annotation(device, i int) {
	b.extend(rowRun{device: device, annotations: true, from: i, to: i + 1})
	for _, c := range b.columns {
		if c.text != nil {
			c.text.Add(c.annotationText(device, i))
		}
	}
}

// extend adds a run of rows to the list, or to the list's last run.
func (b *rowBatch) extend(r rowRun) {
	b.rows += r.to - r.from
	if n := len(b.runs); n > 0 {
		if last := &b.runs[n-1]; last.device == r.device && last.annotations == r.annotations {
			last.to = r.to
			return
		}
	}
	b.runs = append(b.runs, r)
}

// rowCursor walks a trace in the order of the file.
type rowCursor struct {
	t                  *Trace
	device             int
	event, annotations int
}

// fill makes the batch the next row group. It returns false if there is none.
func (r *rowCursor) fill(b *rowBatch) bool {
	b.reset()
	for r.device < len(r.t.Devices) && !b.full() {
		if !r.advance(b, &r.t.Devices[r.device]) {
			r.device, r.event, r.annotations = r.device+1, 0, 0
		}
	}
	return b.rows > 0
}

// advance adds an annotation or some events of the current device. It returns
// false if the device has no more.
func (r *rowCursor) advance(b *rowBatch, d *Device) bool {
	to := min(len(d.Events), r.event+min(b.step, parquet.GroupRows-b.rows))
	if r.annotations < len(d.Annotations) {
		at := int(d.Annotations[r.annotations].At)
		if at <= r.event {
			b.annotation(r.device, r.annotations)
			r.annotations++
			return true
		}
		to = min(to, at)
	}
	if to == r.event {
		return false
	}
	b.events(r.device, r.event, to)
	r.event = to
	return true
}
