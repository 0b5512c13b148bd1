package main

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/stplan/stplan/internal/peak"
)

// lineNumber is the number in a label such as "model.py:24 forward".
var lineNumber = regexp.MustCompile(`:([0-9]+)( |$)`)

// moved gives the lines of an earlier recording the numbers that they have in a later one: an
// edit above a line moves it. Lines of one function are taken for the same, in their order, if
// it has as many in both recordings; otherwise their numbers stay.
func moved(before, after map[peak.Line]int64) map[peak.Line]int64 {
	earlier, later := byFunction(before), byFunction(after)
	out := map[peak.Line]int64{}
	for function, lines := range earlier {
		now := later[function]
		for i, l := range lines {
			to := l
			if len(now) == len(lines) {
				to = now[i]
			}
			out[to] += before[l]
		}
	}
	return out
}

// byFunction sorts the lines of each function by their numbers. A function is known by its
// file and name, and by those of the user's line that called it.
func byFunction(lines map[peak.Line]int64) map[peak.Line][]peak.Line {
	out := map[peak.Line][]peak.Line{}
	for l := range maps.Keys(lines) {
		function := peak.Line{Label: lineNumber.ReplaceAllString(l.Label, "$2"), From: lineNumber.ReplaceAllString(l.From, "$2")}
		out[function] = append(out[function], l)
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b peak.Line) int {
			return cmp.Or(cmp.Compare(numberOf(a.Label), numberOf(b.Label)), cmp.Compare(numberOf(a.From), numberOf(b.From)), cmp.Compare(a.Label, b.Label))
		})
	}
	return out
}

// numberOf is a label's line number, 0 if it has none.
func numberOf(label string) int {
	m := lineNumber.FindStringSubmatch(label)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // fails for more digits than a file has lines
	return n
}
