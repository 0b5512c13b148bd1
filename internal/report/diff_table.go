package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// comparedWidth is the widest line of a comparison, in columns. 80 is what a
// terminal has unless somebody made it wider.
const comparedWidth = 80

// Write prints the comparison as text, no line wider than 80 columns. Exact bytes
// and the fragmentation ratio, 1 - efficiency, are only in the JSON.
func (c *Compared) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "device %d: peak allocated %s", c.Device, Bytes(c.Recorded.PeakAllocated))
	check := fmt.Sprintf("self-check %s / %s", Count(c.SelfCheck.Matched), Count(c.SelfCheck.Total))
	if c.SelfCheck.Exact() {
		fmt.Fprintf(out, "; %s\n\n", check)
	} else {
		fmt.Fprintf(out, "\n%s: NOT exact, simulated figures are estimates\n\n", check)
	}
	writeComparedLines(out, c.lines())
	p := &c.Plan
	fmt.Fprintf(out, "\nplan: gap to the lower bound %s; %s stream-ordered waits\n", Gap(p.PlanBytes, p.LowerBound), Count(p.Waits))
	if p.Instead != nil {
		fmt.Fprintf(out, "the plan does not pay, so a run is served from the %s alone (compile says why)\n", p.Instead.By)
	}
	return out.Flush()
}

// comparedLine is one line of the table: a label with its figures, or with text
// in their place.
type comparedLine struct {
	label   string
	figures []string
	text    string
}

// lines are the table's, the heading's first and the plan's last.
func (c *Compared) lines() []comparedLine {
	lines := []comparedLine{
		{figures: []string{"peak", "", "", "waste the"}},
		{figures: []string{"reserved", "efficiency", "waste", "plan avoids"}},
		c.Recorded.line("recorded (" + c.Recorded.Title + ")"),
	}
	for i := range c.Simulated {
		lines = append(lines, c.Simulated[i].line(c.Simulated[i].Title+", simulated"))
	}
	p := &c.Plan
	lines = append(lines, comparedLine{
		label:   "plan (" + p.Mode + ")",
		figures: []string{Bytes(p.PeakReserved), Percent(p.Efficiency), Bytes(p.Waste), ""},
	})
	if i := p.Instead; i != nil {
		lines = append(lines, comparedLine{
			label:   "served: " + i.By + ", no plan",
			figures: []string{Bytes(i.PeakReserved), Percent(i.Efficiency), Bytes(i.Waste), ""},
		})
	}
	return lines
}

func (r *ComparedRow) line(label string) comparedLine {
	// The settings of --config may hold any white space.
	l := comparedLine{label: strings.Join(strings.Fields(label), " ")}
	if r.OutOfMemory != nil {
		l.text = "out of memory before the first event"
		if r.OutOfMemory.Event >= 0 {
			l.text = "out of memory at event " + Count(r.OutOfMemory.Event)
		}
		return l
	}
	avoided := "-"
	if r.PlanReduction != nil {
		avoided = Percent(*r.PlanReduction)
	}
	l.figures = []string{Bytes(r.PeakReserved), Percent(*r.Efficiency), Bytes(*r.Waste), avoided}
	return l
}

// writeComparedLines aligns labels left and figures right, two spaces between
// columns. A label that would push the figures beyond comparedWidth has lines of
// its own, before its figures.
func writeComparedLines(out *bufio.Writer, lines []comparedLine) {
	var widths []int
	room := comparedWidth // for labels
	for _, l := range lines {
		for i, f := range l.figures {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(f))
		}
		if l.text != "" {
			room = min(room, comparedWidth-len("  ")-utf8.RuneCountInString(l.text))
		}
	}
	figures := 0
	for _, w := range widths {
		figures += len("  ") + w
	}
	room = min(room, comparedWidth-figures)
	labels := 0
	for _, l := range lines {
		if n := utf8.RuneCountInString(l.label); n <= room {
			labels = max(labels, n)
		}
	}
	for _, l := range lines {
		label := l.label
		if utf8.RuneCountInString(label) > room {
			for _, part := range wrapLabel(label, comparedWidth) {
				out.WriteString(part + "\n")
			}
			label = ""
		}
		line := fmt.Sprintf("%-*s", labels, label)
		if l.text != "" {
			line += "  " + l.text
		}
		for i, f := range l.figures {
			line += fmt.Sprintf("  %*s", widths[i], f)
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// wrapLabel cuts a label into lines of at most width columns, after a comma if it
// can. Lines after the first are indented.
func wrapLabel(label string, width int) []string {
	var lines []string
	indent := ""
	for {
		runes := []rune(indent + label)
		if len(runes) <= width {
			return append(lines, string(runes))
		}
		end := width
		for i := width; i > len(indent)+1; i-- {
			if runes[i-1] == ',' {
				end = i
				break
			}
		}
		lines = append(lines, string(runes[:end]))
		label = strings.TrimLeft(string(runes[end:]), " ")
		indent = "  "
	}
}
