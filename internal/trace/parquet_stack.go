package trace

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The text form of a stack has one line per frame, innermost first, each
// FILE:LINE:NAME. In FILE and NAME a backslash is written \\ and a newline \n. In FILE
// a colon is written \:, so the first two colons without a backslash before them are the
// separators. The stack without frames is the empty text.

var (
	escapeFile = strings.NewReplacer(`\`, `\\`, "\n", `\n`, ":", `\:`)
	escapeName = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

// line is a frame's line in a stack's text.
func (f *Frame) line() string {
	return escapeFile.Replace(f.File) + ":" + strconv.FormatInt(int64(f.Line), 10) + ":" + escapeName.Replace(f.Name)
}

// parseFrame is the inverse of Frame.line. It refuses text that line never writes, so
// every frame has one form.
func parseFrame(line string) (Frame, error) {
	if strings.IndexByte(line, '\n') >= 0 {
		return Frame{}, fmt.Errorf(`%s is more than one line; a newline in a frame is written \n`, quoteShort(line))
	}
	file, rest, ok := cutPlain(line)
	number, name, okLine := strings.Cut(rest, ":")
	if !ok || !okLine {
		return Frame{}, fmt.Errorf("%s is not FILE:LINE:NAME", quoteShort(line))
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || strconv.FormatInt(n, 10) != number {
		return Frame{}, fmt.Errorf("line %s in %s is not a number from %d to %d", quoteShort(number), quoteShort(line), math.MinInt32, math.MaxInt32)
	}
	f := Frame{Line: int32(n)}
	if f.File, ok = unescape(file, true); ok {
		f.Name, ok = unescape(name, false)
	}
	if !ok {
		return Frame{}, fmt.Errorf(`%s has a backslash before something other than \, n or, in the file, a colon`, quoteShort(line))
	}
	return f, nil
}

// cutPlain cuts s at the first colon that is not escaped by a backslash.
func cutPlain(s string) (head, tail string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ':':
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// unescape is the inverse of escapeFile if colon is true, else of escapeName.
func unescape(s string, colon bool) (string, bool) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' {
			i++
			switch {
			case i == len(s):
				return "", false
			case s[i] == '\\':
			case s[i] == 'n':
				c = '\n'
			case s[i] == ':' && colon:
				c = ':'
			default:
				return "", false
			}
		}
		b.WriteByte(c)
	}
	return b.String(), true
}

// quoteShort quotes a text for a message, or its beginning if it is long.
func quoteShort(s string) string {
	const most = 60 // bytes; keeps a message readable
	if len(s) > most {
		return strconv.Quote(s[:most]) + "…"
	}
	return strconv.Quote(s)
}

// Text is the text of stack i.
func (s *Stacks) Text(i int32) string {
	var b strings.Builder
	for k, f := range s.At(i) {
		if k > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(s.Frames[f].line())
	}
	return b.String()
}

// stackRenderer renders the stacks of a table.
type stackRenderer struct {
	stacks *Stacks
	lines  []string // of each frame
}

func newStackRenderer(s *Stacks) *stackRenderer {
	lines := make([]string, len(s.Frames))
	for i := range s.Frames {
		lines[i] = s.Frames[i].line()
	}
	return &stackRenderer{stacks: s, lines: lines}
}

// size is the length of stack i's text in bytes.
func (t *stackRenderer) size(i int32) int64 {
	frames := t.stacks.At(i)
	size := max(0, int64(len(frames))-1)
	for _, f := range frames {
		size += int64(len(t.lines[f]))
	}
	return size
}

// text is stack i's text.
func (t *stackRenderer) text(i int32) string {
	var b strings.Builder
	for k, f := range t.stacks.At(i) {
		if k > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(t.lines[f])
	}
	return b.String()
}

// stackParser makes a table of stacks from texts. Equal texts share an entry.
type stackParser struct {
	stacks Stacks
	byText map[string]int32
	byLine map[string]int32 // frames by their lines: every frame has one form
}

func newStackParser() *stackParser {
	return &stackParser{byText: map[string]int32{}, byLine: map[string]int32{}}
}

// add returns the index of the stack with this text.
func (p *stackParser) add(text string) (int32, error) {
	if i, ok := p.byText[text]; ok {
		return i, nil
	}
	if p.stacks.Bounds == nil {
		p.stacks.Bounds = []int32{0}
	}
	for rest, more := text, text != ""; more; {
		var line string
		line, rest, more = strings.Cut(rest, "\n")
		f, err := p.frame(line)
		if err != nil {
			return None, err
		}
		p.stacks.Index = append(p.stacks.Index, f)
	}
	if len(p.stacks.Index) > math.MaxInt32 {
		return None, fmt.Errorf("more than %d frames in distinct stacks", math.MaxInt32)
	}
	i := int32(p.stacks.Len())
	p.stacks.Bounds = append(p.stacks.Bounds, int32(len(p.stacks.Index)))
	p.byText[text] = i
	return i, nil
}

func (p *stackParser) frame(line string) (int32, error) {
	if f, ok := p.byLine[line]; ok {
		return f, nil
	}
	f, err := parseFrame(line)
	if err != nil {
		return None, err
	}
	i := int32(len(p.stacks.Frames))
	p.stacks.Frames = append(p.stacks.Frames, f)
	p.byLine[line] = i
	return i, nil
}
