package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
)

// Changed is what diff says of two recordings or of two plans.
type Changed struct {
	Before  string          `json:"before"`
	After   string          `json:"after"`
	Devices []ChangedDevice `json:"devices"`
}

// ChangedDevice is one device of both.
type ChangedDevice struct {
	Device      int `json:"device"`
	DeviceAfter int `json:"device_after"` // of the other
	// Figures are in bytes, Counts are not. Of recordings, Lines, Categories and Phases are
	// of what was allocated at the peak; of plans, Phases are what each takes. They are
	// those that changed, the largest change first.
	Figures    []ChangedFigure `json:"figures"`
	Counts     []ChangedFigure `json:"counts"`
	Lines      []ChangedFigure `json:"lines"`
	Categories []ChangedFigure `json:"categories"`
	Phases     []ChangedFigure `json:"phases"`
	// HasStacks says that both recordings have Python stacks.
	HasStacks bool        `json:"has_stacks"`
	Failures  [2]*Failure `json:"-"`
}

// ChangedFigure is a number before and after, null if there is none: an allocator that ran
// out of memory, or something that only one has.
type ChangedFigure struct {
	Name string `json:"name"`
	// From is, of a line of code, the line of the user's own code that led there.
	From   string `json:"from,omitempty"`
	Before *int64 `json:"before"`
	After  *int64 `json:"after"`
}

// Change is the difference; what one does not have counts as 0.
func (f *ChangedFigure) Change() int64 { return valueOf(f.After) - valueOf(f.Before) }

func valueOf(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// Figure makes a ChangedFigure of two numbers that both have.
func Figure[T ~int | ~int64 | ~uint64](name string, before, after T) ChangedFigure {
	x, y := int64(before), int64(after)
	return ChangedFigure{Name: name, Before: &x, After: &y}
}

// SortChanges leaves out what did not change, and puts the largest changes first, then by
// name.
func SortChanges(all []ChangedFigure) []ChangedFigure {
	all = slices.DeleteFunc(all, func(f ChangedFigure) bool { return f.Change() == 0 })
	slices.SortStableFunc(all, func(a, b ChangedFigure) int {
		x, y := a.Change(), b.Change()
		return cmp.Or(cmp.Compare(max(y, -y), max(x, -x)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.From, b.From))
	})
	return all
}

// Write prints the changes as text, no line wider than 80 columns. top is the number of
// rows of each list.
func (c *Changed) Write(w io.Writer, top int) error {
	out := bufio.NewWriter(w)
	_ = writeWrapped(out, "before: ", c.Before) // out keeps its errors
	_ = writeWrapped(out, "after:  ", c.After)
	for i := range c.Devices {
		c.Devices[i].write(out, top)
	}
	return out.Flush()
}

func (d *ChangedDevice) write(out *bufio.Writer, top int) {
	name := fmt.Sprintf("device %d", d.Device)
	if d.DeviceAfter != d.Device {
		name += fmt.Sprintf(", device %d after", d.DeviceAfter)
	}
	fmt.Fprintf(out, "\n%s\n", name)
	lines := []tableLine{{figures: []string{"before", "after", "change", ""}}}
	for _, f := range d.Figures {
		lines = append(lines, f.line(Bytes[int64]))
	}
	for _, f := range d.Counts {
		lines = append(lines, f.line(Count[int64]))
	}
	writeLines(out, lines)
	d.writeList(out, "by category, at the peak", d.Categories, top)
	title := "by phase, at the peak"
	if len(d.Counts) > 0 {
		title = "by phase"
	}
	d.writeList(out, title, d.Phases, top)
	if d.HasStacks {
		d.writeList(out, "by line of code, at the peak", d.Lines, top)
	}
}

func (f *ChangedFigure) line(format func(int64) string) tableLine {
	value := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return format(*n)
	}
	l := tableLine{label: "  " + f.Name, figures: []string{value(f.Before), value(f.After), "", ""}}
	if change := f.Change(); change != 0 {
		sign := ""
		if change > 0 {
			sign = "+"
		}
		l.figures[2] = sign + format(change)
		if f.Before != nil && *f.Before > 0 && f.After != nil {
			l.figures[3] = signed(float64(change) / float64(*f.Before))
		}
	}
	return l
}

func (d *ChangedDevice) writeList(out *bufio.Writer, title string, all []ChangedFigure, top int) {
	if len(all) == 0 {
		return
	}
	if more := len(all) - top; more > 0 {
		title += fmt.Sprintf(" (%s more in --json)", Count(more))
	}
	fmt.Fprintf(out, "\n%s\n", title)
	var lines []tableLine
	for _, f := range all[:min(top, len(all))] {
		lines = append(lines, f.line(Bytes[int64]))
		if f.From != "" {
			lines = append(lines, tableLine{label: "    from " + f.From})
		}
	}
	writeLines(out, lines)
}
