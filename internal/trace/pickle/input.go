package pickle

import (
	"bytes"
	"fmt"
	"io"
)

// Error says what is wrong with a pickle, and where.
type Error struct {
	Offset  int64 // in bytes, from 0, in the stream that Read reads
	Problem string
	Err     error // of the underlying reader, or nil
}

func (e *Error) Error() string { return fmt.Sprintf("byte %d: %s", e.Offset, e.Problem) }

// Unwrap returns the error of the underlying reader.
func (e *Error) Unwrap() error { return e.Err }

const (
	// inputSize is the size of the input buffer, in bytes. A larger one would make reads
	// rarer, a smaller one stays in the processor's cache.
	inputSize = 64 << 10

	// longestOp is the length of an opcode with the longest argument of fixed size, in
	// bytes.
	longestOp = 1 + 8

	// lineLimit is the longest line of text, in bytes. Lines hold numbers of memo entries
	// and names of modules and functions; the limit bounds what an error message quotes.
	lineLimit = 1 << 10
)

// input is a buffered reader that knows its offset. The machine's loop, which looks at
// every byte, uses its fields directly.
type input struct {
	src      io.Reader
	buf      []byte // inputSize bytes, and longestOp more, so that every opcode has 9 bytes after pos
	pos, end int    // buf[pos:end] is read and not consumed
	base     int64  // offset of buf[0]
	eof      bool
	held     int64        // bytes of memory that a long text under way takes
	filled   func() error // is called whenever buf was filled, and may end the reading
}

func newInput(r io.Reader) input {
	return input{src: r, buf: make([]byte, inputSize+longestOp)}
}

func (in *input) offset() int64 { return in.base + int64(in.pos) }

// need makes at least n bytes available at buf[pos:]. n is at most inputSize.
func (in *input) need(n int) error {
	if in.end-in.pos >= n {
		return nil
	}
	err := in.fill(n)
	if err == nil && in.end-in.pos < n {
		err = in.truncated()
	}
	return err
}

// fill reads until n bytes are available, or to the end of the file.
func (in *input) fill(n int) error {
	in.base += int64(in.pos)
	in.end = copy(in.buf, in.buf[in.pos:in.end])
	in.pos = 0
	for in.end < n && !in.eof {
		got, err := in.src.Read(in.buf[in.end:inputSize])
		in.end += got
		if err == io.EOF {
			in.eof = true
		} else if err != nil && in.end < n {
			return &Error{Offset: in.base + int64(in.end), Problem: err.Error(), Err: err}
		}
	}
	return in.filled()
}

// fillOp makes an opcode and its argument of fixed size available. It reads longestOp
// bytes unless the file ends before.
func (in *input) fillOp() error {
	err := in.fill(longestOp)
	if err == nil && in.end-in.pos < 1+int(argument[in.buf[in.pos]]) {
		err = in.truncated()
	}
	return err
}

func (in *input) truncated() error {
	return &Error{Offset: in.base + int64(in.end), Err: io.ErrUnexpectedEOF,
		Problem: "the file ends in the middle of the pickle: it was not written or copied completely"}
}

// take consumes n bytes, at most inputSize. They are valid until the next read.
func (in *input) take(n int) ([]byte, error) {
	if err := in.need(n); err != nil {
		return nil, err
	}
	b := in.buf[in.pos : in.pos+n]
	in.pos += n
	return b, nil
}

// bytes consumes n bytes. The memory it allocates depends on the bytes that are there,
// never on the length that the file claims.
func (in *input) bytes(n uint64) ([]byte, error) {
	if n <= inputSize {
		return in.take(int(n))
	}
	var all bytes.Buffer
	err := in.chunks(n, func(b []byte) {
		all.Write(b)
		in.held = int64(all.Cap())
	})
	in.held = 0
	return all.Bytes(), err
}

// skip consumes n bytes and keeps none.
func (in *input) skip(n uint64) error { return in.chunks(n, func([]byte) {}) }

// chunks consumes n bytes, piece by piece.
func (in *input) chunks(n uint64, use func([]byte)) error {
	for n > 0 {
		b, err := in.take(int(min(n, inputSize)))
		if err != nil {
			return err
		}
		use(b)
		n -= uint64(len(b))
	}
	return nil
}

// line consumes a line of text and returns it without the newline.
func (in *input) line() (string, error) {
	for n := 1; n <= lineLimit; n++ {
		if err := in.need(n); err != nil {
			return "", err
		}
		if in.buf[in.pos+n-1] == '\n' {
			b, err := in.take(n)
			return string(b[:n-1]), err
		}
	}
	return "", &Error{Offset: in.offset(), Problem: fmt.Sprintf("a line of text longer than %d bytes", lineLimit)}
}

// atEnd reports whether all bytes are consumed.
func (in *input) atEnd() (bool, error) {
	err := in.fill(1)
	return in.pos == in.end, err
}
