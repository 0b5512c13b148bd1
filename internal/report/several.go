package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
)

// The commands that answer a question about one recording answer it about several in one
// table, a row for each device, what reserves the most first. --json has under one key what
// each recording's own answer is.

// PeakedAll is what `peak --json` prints of several recordings.
type PeakedAll struct {
	Recordings []Peaked      `json:"recordings"`
	Failed     []FailedTrace `json:"failed"`
}

// Write prints one table.
func (all *PeakedAll) Write(w io.Writer) error {
	type row struct {
		name string
		d    *PeakedDevice
	}
	var rows []row
	var died ended
	for i := range all.Recordings {
		r := &all.Recordings[i]
		var failures []*Failure
		for k := range r.Devices {
			rows = append(rows, row{deviceName(r.Trace, r.Devices[k].Device), &r.Devices[k]})
			if q := r.Devices[k].Failed; q != nil {
				failures = append(failures, &q.Failure)
			}
		}
		died.count(r.Trace, failures...)
	}
	if err := died.write(w); err != nil {
		return err
	}
	slices.SortStableFunc(rows, func(x, y row) int { return cmp.Compare(y.d.Allocated, x.d.Allocated) })
	var t Table
	t.Head("recording", "at event", "allocated", "reserved", "most of it")
	failed := false
	for _, r := range rows {
		most, event := "", Count(r.d.Event)
		if r.d.Failed != nil {
			event, failed = event+" *", true
		}
		if len(r.d.Categories) > 0 {
			c := slices.MaxFunc(r.d.Categories, func(x, y PeakedCategory) int { return cmp.Compare(x.Bytes, y.Bytes) })
			most = fmt.Sprintf("%s %s", c.Category, Percent(c.Fraction))
		}
		t.Row(r.name, event, Bytes(r.d.Allocated), Bytes(r.d.Reserved), most)
	}
	if err := writeSeveral(w, &t, len(rows), nil); err != nil {
		return err
	}
	if failed {
		fmt.Fprintln(w, "* where it last ran out of memory; the others at their peaks")
	}
	return writeSeveral(w, &Table{}, 0, all.Failed)
}

// ImportedAll is what `import --json` prints of several snapshots.
type ImportedAll struct {
	Recordings []Imported    `json:"recordings"`
	Failed     []FailedTrace `json:"failed"`
}

// Write prints one table.
func (all *ImportedAll) Write(w io.Writer) error {
	var t Table
	var died ended
	t.Head("trace", "events", "allocations", "size")
	for i := range all.Recordings {
		r := &all.Recordings[i]
		events, allocations := 0, 0
		var failures []*Failure
		for _, d := range r.DeviceList {
			events, allocations = events+d.Events, allocations+d.Allocations
			failures = append(failures, d.Failure)
		}
		died.count(r.Trace, failures...)
		t.Row(r.Trace, Count(events), Count(allocations), Bytes(r.Bytes))
	}
	if err := died.write(w); err != nil {
		return err
	}
	return writeSeveral(w, &t, len(all.Recordings), all.Failed)
}

// ComparedAll is what `diff --json` prints of several plans.
type ComparedAll struct {
	Plans  []Compared    `json:"plans"`
	Failed []FailedTrace `json:"failed"`
}

// Write prints one table. A simulated allocator that runs out of memory has no figure.
func (all *ComparedAll) Write(w io.Writer) error {
	var died ended
	for i := range all.Plans {
		died.count(all.Plans[i].Trace, all.Plans[i].Failure)
	}
	if err := died.write(w); err != nil {
		return err
	}
	rows := slices.Clone(all.Plans)
	slices.SortStableFunc(rows, func(x, y Compared) int { return cmp.Compare(y.Plan.PeakReserved, x.Plan.PeakReserved) })
	var t Table
	if len(rows) > 0 {
		titles := []string{"recording", "recorded"}
		for _, s := range rows[0].Simulated {
			titles = append(titles, s.Title)
		}
		t.Head(append(titles, "plan", "allocated", "avoids of native's waste")...)
	}
	for i := range rows {
		r := &rows[i]
		cells := []string{deviceName(r.Trace, r.Device), reservedOf(&r.Recorded)}
		for k := range r.Simulated {
			cells = append(cells, reservedOf(&r.Simulated[k]))
		}
		avoids := ""
		if native := r.Simulated.Row("native"); native != nil && native.PlanReduction != nil {
			avoids = Percent(*native.PlanReduction)
		}
		plan := Bytes(r.Plan.PeakReserved)
		if r.Plan.Instead != nil {
			plan += " *"
		}
		t.Row(append(cells, plan, Bytes(r.Recorded.PeakAllocated), avoids)...)
	}
	if err := writeSeveral(w, &t, len(rows), nil); err != nil {
		return err
	}
	if slices.ContainsFunc(rows, func(r Compared) bool { return r.Plan.Instead != nil }) {
		fmt.Fprintln(w, "* does not pay: runs are served without it")
	}
	return writeSeveral(w, &Table{}, 0, all.Failed)
}

// reservedOf is a cell: what an allocator reserved, if it served the program.
func reservedOf(r *ComparedRow) string {
	switch {
	case r.Unfit != "":
		return "cannot serve"
	case r.OutOfMemory != nil:
		return "out of memory"
	case r.PeakReserved == 0:
		return ""
	}
	return Bytes(r.PeakReserved)
}

// ReplayedAll is what `replay --json` prints of several recordings.
type ReplayedAll struct {
	Recordings []Replayed    `json:"recordings"`
	Failed     []FailedTrace `json:"failed"`
}

// Write prints one table. Shares on plan are of bytes.
func (all *ReplayedAll) Write(w io.Writer) error {
	var died ended
	for i := range all.Recordings {
		died.count(all.Recordings[i].Trace, all.Recordings[i].Failure)
	}
	if err := died.write(w); err != nil {
		return err
	}
	rows := slices.Clone(all.Recordings)
	slices.SortStableFunc(rows, func(x, y Replayed) int { return cmp.Compare(y.PeakReserved, x.PeakReserved) })
	var t Table
	titles := []string{"recording", "allocated", "reserved", "efficiency", "on plan", "moved", "waits"}
	if len(rows) > 0 && rows[0].Repeated != nil {
		titles = append(titles, "native", "expandable segments")
	}
	t.Head(titles...)
	for i := range rows {
		r := &rows[i]
		planned := "no plan"
		if r.Plan != nil {
			planned = Percent(r.PlannedBytes)
		}
		cells := []string{deviceName(r.Trace, r.Device), Bytes(r.PeakAllocated), Bytes(r.PeakReserved), Percent(r.Efficiency), planned, Bytes(r.Moved), Count(r.Waits)}
		if m := r.Repeated; m != nil {
			cells = append(cells, Bytes(m.Native), Bytes(m.Expandable))
		}
		t.Row(cells...)
	}
	return writeSeveral(w, &t, len(rows), all.Failed)
}

// ReportedAll is what `report --json` prints of several plans.
type ReportedAll struct {
	Plans  []Reported    `json:"plans"`
	Failed []FailedTrace `json:"failed"`
}

// Write prints the files that were written.
func (all *ReportedAll) Write(w io.Writer) error {
	var t Table
	t.Head("plan", "file", "size")
	rows := 0
	for i := range all.Plans {
		for _, f := range all.Plans[i].Files {
			t.Row(filepath.Base(all.Plans[i].Plan), f.Path, Bytes(f.Bytes))
			rows++
		}
	}
	return writeSeveral(w, &t, rows, all.Failed)
}

// ExportedAll is what export prints of several recordings.
type ExportedAll struct {
	Files  []ExportedFile
	Failed []FailedTrace
}

// ExportedFile is a file that a recording was exported to.
type ExportedFile struct {
	Trace string
	Path  string
	Bytes int64
}

// Write prints one table.
func (all *ExportedAll) Write(w io.Writer) error {
	var t Table
	t.Head("recording", "file", "size")
	for _, f := range all.Files {
		t.Row(filepath.Base(f.Trace), f.Path, Bytes(f.Bytes))
	}
	return writeSeveral(w, &t, len(all.Files), all.Failed)
}

// VerifiedAll is what `verify --json` prints of several plans.
type VerifiedAll struct {
	Plans  []Verified    `json:"plans"`
	Failed []FailedTrace `json:"failed"`
}

// Write prints how many plans are right, and which are not.
func (all *VerifiedAll) Write(w io.Writer) error {
	verified, matched := 0, 0
	for i := range all.Plans {
		if p := &all.Plans[i]; p.Verified {
			verified++
			if p.TraceMatch != nil {
				matched++
			}
		}
	}
	fmt.Fprintf(w, "%s verified, %s of them against their recordings\n", count(verified, "plan"), Count(matched))
	return writeSeveral(w, &Table{}, 0, all.Failed)
}

// writeSeveral prints a table, unless it has no rows, and what failed.
func writeSeveral(w io.Writer, t *Table, rows int, failed []FailedTrace) error {
	out := bufio.NewWriter(w)
	if rows > 0 {
		_ = t.Write(out) // out keeps its errors
	}
	writeFailed(out, failed)
	return out.Flush()
}

// deviceName names a device of a recording in a table.
func deviceName(trace string, device int) string {
	return fmt.Sprintf("%s device %d", filepath.Base(trace), device)
}
