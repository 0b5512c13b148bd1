package report

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Printable is a text on one line, in which whatever does not print is escaped as in a Go
// string: "\n", "\x1b", "\u202e". Names of files, annotations and processes may hold anything,
// also what moves a terminal's cursor, or looks like a line of stplan's own.
func Printable(text string) string {
	if strings.IndexFunc(text, unprintable) < 0 && utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if unprintable(r) || r == utf8.RuneError && size == 1 {
			quoted := strconv.Quote(text[:size])
			out.WriteString(quoted[1 : len(quoted)-1])
		} else {
			out.WriteString(text[:size])
		}
		text = text[size:]
	}
	return out.String()
}

func unprintable(r rune) bool { return !strconv.IsPrint(r) }

// PrintableLines is Printable for a text of several lines.
func PrintableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		// A stack trace is indented by tabs.
		tabs := len(line) - len(strings.TrimLeft(line, "\t"))
		lines[i] = line[:tabs] + Printable(line[tabs:])
	}
	return strings.Join(lines, "\n")
}
