package report

import (
	"bufio"
	"io"
	"strings"
	"unicode/utf8"
)

// Table is text in columns, the first aligned left and the others right.
type Table struct {
	rows [][]string
}

// Row adds a row. Rows may be of different lengths.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = Printable(cell)
	}
	t.rows = append(t.rows, row)
}

// widestTitle is how many columns a title may take before Head breaks it: a size in bytes,
// such as 100.00 GiB, takes as many.
const widestTitle = 10

// Head adds the titles of the columns. Long ones are broken at spaces, and all end at the same
// line.
func (t *Table) Head(titles ...string) {
	broken, height := make([][]string, len(titles)), 0
	for i, title := range titles {
		for _, word := range strings.Fields(title) {
			last := len(broken[i]) - 1
			if last >= 0 && utf8.RuneCountInString(broken[i][last])+1+utf8.RuneCountInString(word) <= widestTitle {
				broken[i][last] += " " + word
			} else {
				broken[i] = append(broken[i], word)
			}
		}
		height = max(height, len(broken[i]))
	}
	for k := range height {
		cells := make([]string, len(titles))
		for i, lines := range broken {
			if at := k - (height - len(lines)); at >= 0 {
				cells[i] = lines[at]
			}
		}
		t.Row(cells...)
	}
}

// widestName is how many columns names may take in a table that is wider than a terminal:
// above it, names have lines of their own, as figures would be broken into too many parts.
const widestName = 36

// Write prints the table with two spaces between columns. If it is wider than a terminal, some
// columns follow below the others, with the names again.
func (t *Table) Write(w io.Writer) error {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	if len(widths) == 0 {
		return nil
	}
	out := bufio.NewWriter(w)
	t.writeParts(out, widths)
	return out.Flush()
}

func (t *Table) writeParts(out *bufio.Writer, widths []int) {
	total := widths[0]
	for _, n := range widths[1:] {
		total += len("  ") + n
	}
	name := widths[0]
	if total > lineWidth && name > widestName {
		name = 0
	}
	for from := 1; from < len(widths) || from == 1; {
		to, width := from, name
		for to < len(widths) && (to == from || width+len("  ")+widths[to] <= lineWidth) {
			width += len("  ") + widths[to]
			to++
		}
		if from > 1 {
			out.WriteByte('\n')
		}
		for _, row := range t.rows {
			writeRow(out, row, widths[:to], from, name)
		}
		from = max(to, 2)
	}
}

// writeRow prints a row's name and its cells from one on. A name that is wider than its column
// comes before them. A row that has nothing there, such as a part of a title, is left out.
func writeRow(out *bufio.Writer, row []string, widths []int, from, name int) {
	line := ""
	for i := from; i < len(widths) && i < len(row); i++ {
		line += "  " + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(row[i])) + row[i]
	}
	line = strings.TrimRight(line, " ")
	switch {
	case row[0] == "" && line == "":
		return
	case utf8.RuneCountInString(row[0]) <= name:
		line = strings.TrimRight(row[0]+strings.Repeat(" ", name-utf8.RuneCountInString(row[0]))+line, " ")
	default:
		for _, part := range wrapLabel(row[0], lineWidth) {
			out.WriteString(part + "\n")
		}
		if line == "" {
			return
		}
	}
	out.WriteString(line + "\n")
}
