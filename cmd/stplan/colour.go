package main

import (
	"io"
	"os"
)

// verdict colours an answer, green for yes and red for no, if w is a terminal that shows
// colours and the user has not asked for none (https://no-color.org).
func verdict(w io.Writer, yes bool, text string) string {
	if !isTerminal(w) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return text
	}
	const green, red, bold, reset = "\x1b[32m", "\x1b[31m", "\x1b[1m", "\x1b[0m"
	if yes {
		return bold + green + text + reset
	}
	return bold + red + text + reset
}
