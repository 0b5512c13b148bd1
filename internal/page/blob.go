package page

import (
	"encoding/binary"
	"encoding/json"
	"io"

	"github.com/klauspost/compress/gzip"
)

// column is a list of numbers that the page holds as bytes.
type column struct {
	name   string
	form   form
	values []uint32
}

// form is how a column is written.
type form string

const (
	plain  form = "plain"
	rising form = "rising" // each number less the one before it, modulo 2^32
)

// columnHeader is what the page knows of a column before it reads it.
type columnHeader struct {
	Name  string `json:"name"`
	Form  form   `json:"form"`
	Count int    `json:"count"`
}

// writeBlob writes what a page holds of a device: the length of its JSON in 4 bytes, little
// endian, the JSON, and the columns. Of a column first the lowest bytes of all numbers come,
// then the next: the higher ones are mostly equal, and compress to nothing. All of it is one
// gzip stream, which browsers can read.
func (d *Device) writeBlob(w io.Writer) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	headers := make([]columnHeader, len(d.columns))
	for i, c := range d.columns {
		headers[i] = columnHeader{c.name, c.form, len(c.values)}
	}
	text, err := json.Marshal(struct {
		*Device
		Columns []columnHeader `json:"columns"`
	}{d, headers})
	if err != nil {
		return err
	}
	if _, err := z.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(text)))); err != nil {
		return err
	}
	if _, err := z.Write(text); err != nil {
		return err
	}
	for _, c := range d.columns {
		if _, err := z.Write(c.bytes()); err != nil {
			return err
		}
	}
	return z.Close()
}

// bytes are the four planes of a column.
func (c *column) bytes() []byte {
	n := len(c.values)
	out := make([]byte, 4*n)
	before := uint32(0)
	for i, v := range c.values {
		if c.form == rising {
			v, before = v-before, v
		}
		for k := range 4 {
			out[k*n+i] = byte(v >> (8 * k))
		}
	}
	return out
}
