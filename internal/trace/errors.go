package trace

import "strings"

// InputError says what is wrong with a recording, and where.
type InputError struct {
	Name    string // the file, as the user named it
	Where   string // "byte 123", "row 7", "device 0: entry 7", each counted from 0
	Column  string // Parquet column or snapshot key, if one is to blame
	Problem string // what was expected and what was found
}

func (e *InputError) Error() string {
	var parts []string
	for _, p := range []string{e.Name, e.Where, e.Column, e.Problem} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}
