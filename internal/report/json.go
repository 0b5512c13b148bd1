package report

import (
	"encoding/json"
	"io"
)

// WriteJSON prints v as indented JSON and a newline. What a command prints is a type
// of this package, in the file of the command's name; docs/json.md lists the fields.
// Numbers of bytes are integers; an absent value is null, never 0.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
