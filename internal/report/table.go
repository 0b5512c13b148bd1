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

// Write prints the table with two spaces between columns.
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
	out := bufio.NewWriter(w)
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString(cell + pad)
			} else {
				line.WriteString("  " + pad + cell)
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " "))
		out.WriteByte('\n')
	}
	return out.Flush()
}
