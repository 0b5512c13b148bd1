package main

import (
	"io"
	"os"

	"github.com/stplan/stplan/internal/report"
)

// coloured says that w is a terminal that shows colours, and the user has not asked for none
// (https://no-color.org).
func coloured(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// painter colours the verdicts of a report that goes to w.
func painter(w io.Writer) report.Painter {
	if !coloured(w) {
		return nil
	}
	return func(yes bool, text string) string { return verdict(w, yes, text) }
}

// verdict colours an answer, green for yes and red for no, if w shows colours.
func verdict(w io.Writer, yes bool, text string) string {
	if !coloured(w) {
		return text
	}
	const green, red, bold, reset = "\x1b[32m", "\x1b[31m", "\x1b[1m", "\x1b[0m"
	if yes {
		return bold + green + text + reset
	}
	return bold + red + text + reset
}
