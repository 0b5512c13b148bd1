package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Write prints the comparison as text, no line wider than 80 columns. Exact bytes
// and the fragmentation ratio, 1 - efficiency, are only in the JSON.
func (c *Compared) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "device %d: peak allocated %s", c.Device, Bytes(c.Recorded.PeakAllocated))
	check := fmt.Sprintf("self-check %s / %s", Count(c.SelfCheck.Matched), Count(c.SelfCheck.Total))
	switch {
	case c.SelfCheck.Nothing():
		fmt.Fprint(out, "\nno self-check: the trace has no addresses and no segments; simulated figures are\nestimates\n\n")
	case c.SelfCheck.Exact():
		fmt.Fprintf(out, "; %s\n\n", check)
	default:
		fmt.Fprintf(out, "\n%s: NOT exact, simulated figures are estimates\n\n", check)
	}
	writeLines(out, c.lines())
	c.writePeaks(out)
	p := &c.Plan
	fmt.Fprintln(out)
	_ = writeWrapped(out, "plan: ", fmt.Sprintf("gap to the lower bound %s; %s", Gap(p.PlanBytes, p.LowerBound),
		CountWaits(p.Waits, p.CrossWaits))) // out keeps its error
	if p.Instead != nil {
		fmt.Fprintf(out, "the plan does not pay, so a run is served from the %s alone (compile says why)\n", p.Instead.By)
	}
	if c.WouldFit != nil {
		_ = c.WouldFit.write(out) // Flush returns the error
	}
	if c.Memory != nil {
		fmt.Fprintln(out)
		_ = writeWrapped(out, "", c.Memory.Line())
		writeFitted(out, c.Fits, c.Paint)
	}
	if c.Advice != nil {
		c.Advice.write(out, c.Plan.Served())
	}
	return out.Flush()
}

// writePeaks prints when each allocator reserved most and how often it had to give back what
// it had cached, if more than PyTorch's were asked for, and why one cannot serve the job.
func (c *Compared) writePeaks(out *bufio.Writer) {
	if !c.peaks() {
		return
	}
	lines := []tableLine{{figures: []string{"peaks at event", "retries"}}}
	add := func(r *ComparedRow, title string) {
		if r.PeakEvent != nil && r.Efficiency != nil {
			lines = append(lines, tableLine{label: label(title), figures: []string{Count(*r.PeakEvent), Count(int64(r.Retries))}})
		}
	}
	add(&c.Recorded, c.recordedTitle())
	for i := range c.Simulated {
		add(&c.Simulated[i], c.Simulated[i].Title+", simulated")
	}
	fmt.Fprintln(out)
	writeLines(out, lines)
	for i := range c.Simulated {
		if r := &c.Simulated[i]; r.Unfit != "" {
			fmt.Fprintln(out)
			_ = writeWrapped(out, r.Title+": ", r.Unfit) // out keeps its error
		}
	}
}

func (c *Compared) recordedTitle() string { return "recorded (" + c.Recorded.Title + ")" }

// peaks says that there are other allocators than PyTorch's.
func (c *Compared) peaks() bool {
	return slices.ContainsFunc(c.Simulated, func(r ComparedRow) bool {
		return !slices.Contains([]string{"native", "expandable", KeyConfigured}, r.Key)
	})
}

// label is a title on one line: the settings of --config may hold any white space.
func label(title string) string { return strings.Join(strings.Fields(title), " ") }

// lines are the table's, the heading's first and the plan's last.
func (c *Compared) lines() []tableLine {
	lines := []tableLine{
		{figures: []string{"peak", "", "", "waste the"}},
		{figures: []string{"reserved", "efficiency", "waste", "plan avoids"}},
		c.Recorded.line(c.recordedTitle()),
	}
	for i := range c.Simulated {
		lines = append(lines, c.Simulated[i].line(c.Simulated[i].Title+", simulated"))
	}
	p := &c.Plan
	lines = append(lines, tableLine{
		label:   "plan (" + p.Mode + ")",
		figures: []string{Bytes(p.PeakReserved), Percent(p.Efficiency), Bytes(p.Waste), ""},
	})
	if i := p.Instead; i != nil {
		lines = append(lines, tableLine{
			label:   "served: " + i.By + ", no plan",
			figures: []string{Bytes(i.PeakReserved), Percent(i.Efficiency), Bytes(i.Waste), ""},
		})
	}
	return lines
}

func (r *ComparedRow) line(title string) tableLine {
	l := tableLine{label: label(title)}
	if r.Unfit != "" {
		l.text = "cannot serve this job"
		return l
	}
	if r.OutOfMemory != nil {
		l.text = "out of memory before the first event"
		if r.OutOfMemory.Event >= 0 {
			l.text = "out of memory at event " + Count(r.OutOfMemory.Event)
		}
		return l
	}
	if r.Efficiency == nil {
		l.text = "not recorded"
		return l
	}
	avoided := "-"
	if r.PlanReduction != nil {
		avoided = Percent(*r.PlanReduction)
	}
	l.figures = []string{Bytes(r.PeakReserved), Percent(*r.Efficiency), Bytes(*r.Waste), avoided}
	return l
}
