package report

import (
	"io"
	"strings"
	"unicode/utf8"
)

// lineWidth is the widest line that a report prints, in columns, unless a word is
// wider by itself. 80 is what a terminal has unless somebody made it wider.
const lineWidth = 80

// writeWrapped prints text after a lead, in lines of at most lineWidth columns.
// Lines after the first are indented by as much as the lead is wide.
func writeWrapped(w io.Writer, lead, text string) error {
	var out strings.Builder
	out.WriteString(lead)
	indent := utf8.RuneCountInString(lead)
	at, first := indent, true
	for _, word := range strings.Fields(Printable(text)) {
		n := utf8.RuneCountInString(word)
		switch {
		case first:
		case at+1+n > lineWidth:
			out.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			out.WriteByte(' ')
			at++
		}
		out.WriteString(word)
		at, first = at+n, false
	}
	out.WriteByte('\n')
	_, err := io.WriteString(w, out.String())
	return err
}
