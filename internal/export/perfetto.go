package export

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// event is one event of Chrome's trace format, which Perfetto reads. A microsecond of
// it is an event of the recording.
type event struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	TS    int64          `json:"ts"`
	Cat   string         `json:"cat,omitempty"`
	ID    int            `json:"id,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

const (
	// mostPoints is the number of stretches that counters are cut into, of which each
	// shows its largest value and its last: more than a screen has columns, and a file
	// of a few MB.
	mostPoints = 50_000
	// leastShare is the share of the peak, as a divisor, from which on a buffer has a
	// slice, and mostSlices how many have: more are no picture.
	leastShare = 2000
	mostSlices = 20_000
)

// WritePerfetto writes counters of allocated, freed-but-in-use and reserved memory over
// the whole recording, the annotations, and a slice for each large buffer.
func WritePerfetto(w io.Writer, devices []Device) error {
	out := &events{w: bufio.NewWriter(w)}
	out.raw(`{"displayTimeUnit":"ns","otherData":{"time":"1 us is 1 event of the recording"},"traceEvents":[` + "\n")
	for i := range devices {
		out.device(&devices[i])
	}
	out.raw("\n]}\n")
	if out.err != nil {
		return out.err
	}
	return out.w.Flush()
}

// events writes a list of events, and keeps the first error.
type events struct {
	w     *bufio.Writer
	begun bool
	err   error
}

func (e *events) raw(s string) {
	if e.err == nil {
		_, e.err = e.w.WriteString(s)
	}
}

func (e *events) put(v event) {
	if e.begun {
		e.raw(",\n")
	}
	e.begun = true
	text, err := json.Marshal(v)
	if err != nil && e.err == nil {
		e.err = err
	}
	e.raw(string(text))
}

func (e *events) device(d *Device) {
	pid := d.Device.Ordinal
	e.put(event{Name: "process_name", Phase: "M", PID: pid, Args: map[string]any{"name": fmt.Sprintf("device %d", pid)}})
	e.put(event{Name: "thread_name", Phase: "M", PID: pid, TID: 1, Args: map[string]any{"name": "annotations"}})
	e.counters(d)
	e.annotations(d)
	e.slices(d)
	failures := d.Device.Failures()
	for _, at := range failures.At {
		q := &d.Device.Events[at]
		e.put(event{Name: "out of memory", Phase: "i", PID: pid, TID: 1, TS: int64(at), Cat: "oom",
			Args: map[string]any{"requested_bytes": q.Size, "driver_free_bytes": q.Addr, "line": d.Line(q.Stack).Label}})
	}
}

// levels are the memory after each event, in bytes.
type levels struct{ allocated, pending, reserved int64 }

// counters shows the largest allocated memory of each stretch of events, and its end.
func (e *events) counters(d *Device) {
	n := len(d.Device.Events)
	stretch := max(1, n/mostPoints)
	all := levelsOf(d)
	for from := 0; from < n; from += stretch {
		to := min(n, from+stretch)
		most := from
		for t := from; t < to; t++ {
			if all[t].allocated > all[most].allocated {
				most = t
			}
		}
		e.level(d, most, &all[most])
		if to-1 > most {
			e.level(d, to-1, &all[to-1])
		}
	}
}

func (e *events) level(d *Device, at int, l *levels) {
	e.put(event{Name: "memory", Phase: "C", PID: d.Device.Ordinal, TS: int64(at), Args: map[string]any{
		"allocated": l.allocated, "freed, in use elsewhere": l.pending, "reserved and free": max(0, l.reserved-l.allocated-l.pending),
	}})
}

func levelsOf(d *Device) []levels {
	n := len(d.Device.Events)
	change := make([]levels, n+1)
	for i := range d.Timeline.Buffers {
		b := &d.Timeline.Buffers[i]
		if b.Failed {
			continue
		}
		size := int64(b.Size)
		change[b.Start].allocated += size
		change[b.RequestedEnd].allocated -= size
		change[b.RequestedEnd].pending += size
		change[b.CompletedEnd].pending -= size
	}
	for i := range d.Device.Initial {
		change[0].reserved += int64(d.Device.Initial[i].Size)
	}
	for i := range d.Device.Events {
		switch ev := &d.Device.Events[i]; ev.Action {
		case trace.ActionSegmentAlloc, trace.ActionSegmentMap:
			change[i].reserved += int64(ev.Size)
		case trace.ActionSegmentFree, trace.ActionSegmentUnmap:
			change[i].reserved -= int64(ev.Size)
		}
	}
	for t := 1; t <= n; t++ {
		change[t].allocated += change[t-1].allocated
		change[t].pending += change[t-1].pending
		change[t].reserved += change[t-1].reserved
	}
	return change[:n]
}

// annotations shows those whose begin and end are recorded.
func (e *events) annotations(d *Device) {
	var open []trace.Annotation
	for _, a := range d.Device.Annotations {
		if !a.End {
			open = append(open, a)
			continue
		}
		for i := len(open) - 1; i >= 0; i-- {
			if open[i].Name == a.Name {
				e.put(event{Name: a.Name, Phase: "b", PID: d.Device.Ordinal, TID: 1, TS: int64(open[i].At), Cat: "annotation", ID: i + 1})
				e.put(event{Name: a.Name, Phase: "e", PID: d.Device.Ordinal, TID: 1, TS: int64(a.At), Cat: "annotation", ID: i + 1})
				open = open[:i]
				break
			}
		}
	}
}

// slices shows the large buffers. They overlap in any way, so each is an asynchronous
// slice of its own.
func (e *events) slices(d *Device) {
	least := d.Timeline.PeakAllocated.Bytes / leastShare
	var large []int
	for i := range d.Timeline.Buffers {
		if b := &d.Timeline.Buffers[i]; b.Size >= least && !b.Failed {
			large = append(large, i)
		}
	}
	buffers := d.Timeline.Buffers
	slices.SortStableFunc(large, func(a, b int) int { return cmp.Compare(buffers[b].Size, buffers[a].Size) })
	large = large[:min(len(large), mostSlices)]
	slices.Sort(large)
	for _, i := range large {
		l := d.Buffer(i)
		line := d.Line(l.Stack)
		args := map[string]any{"bytes": l.Buffer.Size, "category": categoryOf(&l), "sure": l.Sure,
			"phase": l.Phase.Title(d.Iterations.Count), "stream": l.Buffer.Stream}
		if line.From != "" {
			args["from"] = line.From
		}
		if d.Offsets != nil && d.Offsets[i] >= 0 {
			args["plan_offset"] = d.Offsets[i]
		}
		v := event{Name: line.Label, Phase: "b", PID: d.Device.Ordinal, TID: 2, TS: int64(l.Buffer.Start), Cat: categoryOf(&l), ID: i + 1, Args: args}
		e.put(v)
		v.Phase, v.TS, v.Args = "e", int64(l.Buffer.RequestedEnd), nil
		e.put(v)
	}
}
