package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Write prints the same for people, no line wider than 80 columns.
func (p *Peaked) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	for i := range p.Devices {
		if i > 0 {
			fmt.Fprintln(out)
		}
		p.Devices[i].write(out, p.Trace)
	}
	return out.Flush()
}

// write prints one device. out keeps its error. What answers the question comes first:
// after an out-of-memory that is what blocked the request.
func (d *PeakedDevice) write(out *bufio.Writer, name string) {
	d.head(out, name)
	if d.Failed != nil {
		d.freeMemory(out)
	}
	d.tableOfCategories(out)
	d.tableOfLines(out)
	d.tableOfModules(out)
	d.tableOfPhases(out)
	if d.Failed == nil {
		d.freeMemory(out)
	}
	if !d.HasStacks {
		fmt.Fprintln(out)
		wrapped(out, "", "The recording has no Python stacks, so no line of code is known. docs/peak.md says how to record them.")
	}
}

func wrapped(out *bufio.Writer, lead, text string) { _ = writeWrapped(out, lead, text) }

func (d *PeakedDevice) head(out *bufio.Writer, name string) {
	if d.Failed != nil {
		wrapped(out, "", d.Failed.Failure.Line(name))
	} else {
		wrapped(out, "", Printable(name)+": "+d.moment())
	}
	wrapped(out, fmt.Sprintf("device %d: ", d.Device), Printable(d.Phase))
	fmt.Fprintln(out)
	var t Table
	size := func(label string, n int64, note string) { t.Row("  "+label, Count(n)+" B", Bytes(n), note) }
	if d.Failed != nil {
		size("asked for", d.Failed.Requested, "")
	}
	size("allocated", d.Allocated, "in "+plural(d.Buffers, "buffer"))
	if d.Pending > 0 {
		size("freed, in use elsewhere", d.Pending, "")
	}
	size("reserved", d.Reserved, "")
	if d.Failed != nil {
		size("free on the device", d.Failed.DriverFree, "")
	}
	_ = t.Write(out)
	if d.HasStacks || d.Failed != nil {
		fmt.Fprintln(out)
	}
	if d.HasStacks {
		wrapped(out, "  by    ", Printable(d.Line))
		if d.From != "" {
			wrapped(out, "        ", from(d.From).lead+from(d.From).line)
		}
	}
	if d.Failed != nil {
		wrapped(out, "  why   ", d.Failed.why(d.Memory.free()))
		d.stack(out, d.Failed.Stack)
	}
}

// stack prints a stack as Python does, the latest call last, if stacks are asked for.
func (d *PeakedDevice) stack(out *bufio.Writer, frames []string) {
	if !d.ShowStacks {
		return
	}
	for _, f := range frames {
		fmt.Fprintln(out, labelled{"      ", f}.fit(lineWidth))
	}
}

func (d *PeakedDevice) moment() string {
	if d.ChosenBy == "peak" {
		return fmt.Sprintf("no out-of-memory; most was allocated at event %s", Count(d.Event))
	}
	return "event " + Count(d.Event)
}

// plural is a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}

// why says why the request failed. free is the reserved memory that nobody held.
func (q *PeakedRequest) why(free int64) string {
	switch q.Cause {
	case "short":
		return fmt.Sprintf("too little memory: %s more would have been needed, even with all free memory in one piece", Bytes(q.Missing))
	case "fragmented":
		return fmt.Sprintf("fragmentation: %s was reserved and free, and %s free on the device. In one piece it would have been enough", Bytes(free), Bytes(q.DriverFree))
	case "fragmented by a limit":
		return fmt.Sprintf("fragmentation under a limit: %s was reserved and free. In one piece it would have been enough. "+
			"The device had memory, so a limit held the process back (set_per_process_memory_fraction)", Bytes(free))
	}
	return fmt.Sprintf("a limit: the device had memory, and something held the process back (set_per_process_memory_fraction). "+
		"%s was reserved and free, %s too little", Bytes(free), Bytes(q.Missing))
}

func (m *PeakedMemory) free() int64 {
	return m.Usable + m.OtherStream + m.OtherClass + m.Private + m.Slack
}

// shareOf is a share with one decimal, as tables print it.
func shareOf(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

func (d *PeakedDevice) tableOfLines(out *bufio.Writer) {
	if !d.HasStacks {
		return
	}
	heading(out, "by line of code", d.LinesTotal-len(d.Lines))
	var rows []peakRow
	for _, l := range d.Lines {
		text := []labelled{{"", l.Line}}
		if l.From != "" {
			text = append(text, from(l.From))
		}
		rows = append(rows, peakRow{l.PeakedShare, l.Category, text})
	}
	writeRows(out, rows)
	for i := range d.Lines {
		if l := &d.Lines[i]; d.ShowStacks && len(l.Stack) > 0 {
			fmt.Fprintf(out, "\n  stack of the largest buffer, %s, of\n  %s\n", Bytes(l.Largest), labelled{"", l.Line}.fit(lineWidth-2))
			d.stack(out, l.Stack)
		}
	}
}

func (d *PeakedDevice) tableOfModules(out *bufio.Writer) {
	if d.ModulesTotal == 0 {
		return
	}
	heading(out, "by module: the line of each forward that was running", d.ModulesTotal-len(d.Modules))
	var rows []peakRow
	for _, m := range d.Modules {
		rows = append(rows, peakRow{m.PeakedShare, m.Category, lastCalls(m.Calls)})
	}
	writeRows(out, rows)
}

// labelled is a line of code with what leads it in.
type labelled struct{ lead, line string }

// fit makes it fit a width: without the folder of its file, or if that is not enough,
// cut at the front, since the end tells more.
func (l labelled) fit(width int) string {
	width -= utf8.RuneCountInString(l.lead)
	line := Printable(l.line)
	if utf8.RuneCountInString(line) > width {
		line = line[strings.LastIndexByte(line, '/')+1:]
	}
	if runes := []rune(line); len(runes) > width {
		line = "…" + string(runes[len(runes)-max(width-1, 1):])
	}
	return l.lead + line
}

// from leads in a second line of code. One that was found by size says so itself.
func from(line string) labelled {
	if rest, ok := strings.CutPrefix(line, sizeOf); ok {
		return labelled{sizeOf, rest}
	}
	return labelled{"from ", line}
}

const sizeOf = "the size of "

// lastCalls are the innermost forward calls of a chain, innermost first: as many as
// tell where in the model it is.
func lastCalls(calls []string) []labelled {
	const most = 3
	if len(calls) == 0 {
		return []labelled{{"", "(in no module's forward)"}}
	}
	out := []labelled{{"", calls[len(calls)-1]}}
	for i := len(calls) - 2; i >= max(0, len(calls)-most); i-- {
		out = append(out, labelled{"in ", calls[i]})
	}
	return out
}

func heading(out *bufio.Writer, title string, more int) {
	if more > 0 {
		title += fmt.Sprintf(" (%s more with --top)", Count(more))
	}
	fmt.Fprintf(out, "\n%s\n", title)
}

// peakRow is one row of a table of shares: figures, a category, and lines of text.
type peakRow struct {
	share    PeakedShare
	category string
	text     []labelled
}

// writeRows prints rows in columns.
func writeRows(out *bufio.Writer, rows []peakRow) {
	var widths [4]int
	cells := make([][4]string, len(rows))
	for i, r := range rows {
		cells[i] = [4]string{Bytes(r.share.Bytes), shareOf(r.share.Fraction), Count(r.share.Buffers), r.category}
		for k, c := range cells[i] {
			widths[k] = max(widths[k], utf8.RuneCountInString(c))
		}
	}
	for i, r := range rows {
		c := cells[i]
		lead := fmt.Sprintf("  %*s  %*s  %*s  %-*s  ", widths[0], c[0], widths[1], c[1], widths[2], c[2], widths[3], c[3])
		indent := strings.Repeat(" ", utf8.RuneCountInString(lead)+2)
		for _, text := range r.text {
			out.WriteString(lead + text.fit(lineWidth-utf8.RuneCountInString(lead)) + "\n")
			lead = indent
		}
	}
}

func (d *PeakedDevice) tableOfCategories(out *bufio.Writer) {
	heading(out, "by category; sure: the share that the recording shows, the rest is inferred", 0)
	var t Table
	for _, c := range d.Categories {
		t.Row("  "+c.Category, Bytes(c.Bytes), shareOf(c.Fraction), Count(c.Buffers), "sure "+shareOf(c.Sure))
	}
	_ = t.Write(out)
	for _, c := range d.Categories {
		if c.Sure < 1 {
			for _, r := range c.Rules {
				if !r.Sure {
					wrapped(out, "    "+c.Category+": ", fmt.Sprintf("%s %s", Bytes(r.Bytes), r.Rule))
				}
			}
		}
	}
}

func (d *PeakedDevice) tableOfPhases(out *bufio.Writer) {
	heading(out, "by phase: when it was allocated", d.PhasesTotal-len(d.Phases))
	var t Table
	for _, p := range d.Phases {
		t.Row("  "+p.Phase, Bytes(p.Bytes), shareOf(p.Fraction), Count(p.Buffers))
	}
	_ = t.Write(out)
}

func (d *PeakedDevice) freeMemory(out *bufio.Writer) {
	m := &d.Memory
	if m.Segments == 0 {
		return
	}
	heading(out, fmt.Sprintf("reserved and free: %s of %s in %s", Bytes(m.free()), Bytes(d.Reserved), plural(m.Segments, "segment")), 0)
	var t Table
	size := func(label string, n int64, note string) {
		if n > 0 {
			t.Row("  "+label, Bytes(n), note)
		}
	}
	size("in empty segments", m.Empty, "")
	size("beside blocks", m.Usable-m.Empty, "")
	size("in segments of other streams", m.OtherStream, "")
	size("in segments for other sizes", m.OtherClass, "")
	size("in private pools", m.Private, "")
	size("in blocks that are not split", m.Slack, "")
	_ = t.Write(out)
	if m.Pieces > 0 {
		fmt.Fprintf(out, "  a request could use %s, the largest %s\n", plural(m.Pieces, "piece"), Bytes(m.Largest))
	}
	if m.MostlyFree == 0 {
		return
	}
	fmt.Fprintln(out)
	wrapped(out, "", fmt.Sprintf("in the way: %s in %s that a few blocks keep, less than half of each segment:",
		Bytes(m.MostlyFreeHold), plural(m.MostlyFree, "segment")))
	for _, h := range m.Holders {
		age := "from before the recording"
		if h.Oldest >= 0 {
			age = fmt.Sprintf("of event %s, %s old", Count(h.Oldest), plural(h.Age, "iteration"))
		}
		wrapped(out, "  ", Printable(h.Line))
		if h.From != "" {
			wrapped(out, "    ", from(h.From).lead+h.From)
		}
		wrapped(out, "    ", fmt.Sprintf("%s of %s in %s with %s free; the oldest is %s",
			Bytes(h.Bytes), h.Category, plural(h.Segments, "segment"), Bytes(h.Free), age))
	}
	if left := m.HoldersTotal - len(m.Holders); left > 0 {
		fmt.Fprintf(out, "  (%s more with --top)\n", Count(left))
	}
}
