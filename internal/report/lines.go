package report

import (
	"bufio"
	"fmt"
	"strings"
	"unicode/utf8"
)

// tableLine is one line of a table that fits a terminal: a label with its figures,
// or with text in their place.
type tableLine struct {
	label   string
	figures []string
	text    string
}

// writeLines aligns labels left and figures right, two spaces between
// columns. A label that would push the figures beyond lineWidth has lines of
// its own, before its figures.
func writeLines(out *bufio.Writer, raw []tableLine) {
	lines := make([]tableLine, len(raw))
	for i, l := range raw {
		lines[i] = l.printable()
	}
	var widths []int
	room := lineWidth // for labels
	for _, l := range lines {
		for i, f := range l.figures {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(f))
		}
		if l.text != "" {
			room = min(room, lineWidth-len("  ")-utf8.RuneCountInString(l.text))
		}
	}
	figures := 0
	for _, w := range widths {
		figures += len("  ") + w
	}
	room = min(room, lineWidth-figures)
	labels := 0
	for _, l := range lines {
		if n := utf8.RuneCountInString(l.label); n <= room {
			labels = max(labels, n)
		}
	}
	for _, l := range lines {
		label := l.label
		if utf8.RuneCountInString(label) > room {
			for _, part := range wrapLabel(label, lineWidth) {
				out.WriteString(part + "\n")
			}
			label = ""
			if len(l.figures) == 0 && l.text == "" {
				continue
			}
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

// printable is the line with everything escaped that does not print.
func (l tableLine) printable() tableLine {
	out := tableLine{label: Printable(l.label), text: Printable(l.text)}
	for _, f := range l.figures {
		out.figures = append(out.figures, Printable(f))
	}
	return out
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
