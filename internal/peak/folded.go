package peak

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteFolded writes what was allocated as folded stacks, one a line: the category,
// the frames outermost first, a blank and the bytes. flamegraph.pl and speedscope read
// that. Lines are in order of their text.
func (r *Recording) WriteFolded(w io.Writer, p *Peak) error {
	sums := map[string]int64{}
	texts := newCache(r.folded)
	for i := range p.Live {
		if l := &p.Live[i]; !l.Pending {
			sums[l.Category.String()+";"+texts.of(l.Stack)] += int64(l.Buffer.Size)
		}
	}
	lines := make([]string, 0, len(sums))
	for text, sum := range sums {
		lines = append(lines, fmt.Sprintf("%s %d\n", text, sum))
	}
	slices.Sort(lines)
	out := bufio.NewWriter(w)
	for _, l := range lines {
		out.WriteString(l) // Flush returns the error
	}
	return out.Flush()
}

// foldedFrames keeps what the form gives a meaning out of a frame.
var foldedFrames = strings.NewReplacer(";", ",", "\n", " ", "\r", " ")

// folded is a stack in one line.
func (r *Recording) folded(stack int32) string {
	frames := r.Stack(stack)
	if len(frames) == 0 {
		return r.Line(stack).Label
	}
	for i, f := range frames {
		frames[i] = foldedFrames.Replace(f)
	}
	return strings.Join(frames, ";")
}
