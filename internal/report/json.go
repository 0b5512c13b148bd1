package report

import (
	"encoding/json"
	"io"
)

// WriteJSON prints v as indented JSON and a newline. Numbers of bytes are
// integers; an absent value is null, never 0.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
