package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/stplan/stplan/internal/trace/parquet"
)

// planMagic is the beginning of a plan, a file that users easily give for a trace.
const planMagic = "\x89STPLAN"

// maxSpool is the largest Parquet file that is accepted as a stream, in bytes. It is
// thousands of times a long recording, and keeps an endless stream from filling the
// disk.
const maxSpool = 8 << 30

// ReadFile reads a recording in either form: a file that begins as Parquet does is a
// Parquet trace, any other is read as a memory snapshot. If the path is not a regular
// file, such as a pipe, it is read as by Read.
func ReadFile(path string, opt Options) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, cannotRead(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, cannotRead(path, err)
	}
	if !info.Mode().IsRegular() {
		return Read(f, path, opt)
	}
	head := make([]byte, len(planMagic))
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, cannotRead(path, err)
	}
	isParquet, err := form(head[:n], path)
	switch {
	case err != nil:
		return nil, err
	case isParquet:
		return ReadParquet(f, info.Size(), path, opt)
	}
	return ReadSnapshot(f, path, opt)
}

// Read reads a recording in either form from a stream such as standard input; the
// name is for messages. A snapshot is read as it comes. A Parquet file has its footer
// at the end, so it is first copied to a temporary file; more than 8 GiB are refused.
// After an error one read of r may still be under way.
func Read(r io.Reader, name string, opt Options) (*Trace, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	head, err := b.Peek(len(parquet.Magic))
	if err == nil && strings.HasPrefix(planMagic, string(head)) {
		head, err = b.Peek(len(planMagic))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, cannotRead(name, err)
	}
	isParquet, err := form(head, name)
	switch {
	case err != nil:
		return nil, err
	case isParquet:
		return readSpooled(b, name, maxSpool, opt)
	}
	return ReadSnapshot(b, name, opt)
}

// form tells the form of a file by its first bytes.
func form(head []byte, name string) (isParquet bool, err error) {
	if strings.HasPrefix(string(head), planMagic) {
		return false, &InputError{Name: name, Problem: "this is a plan; expected a trace: a memory snapshot or a Parquet file"}
	}
	if strings.HasPrefix(string(head), parquet.EncryptedMagic) {
		return false, &InputError{Name: name, Problem: fmt.Sprintf("this is an encrypted Parquet file (it begins with %q); expected one that is not encrypted", parquet.EncryptedMagic)}
	}
	return strings.HasPrefix(string(head), parquet.Magic), nil
}

// cannotRead makes the error for a file that could not be read. It has the file's name
// once, even if err has it too.
func cannotRead(name string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("%s: cannot read: %w", name, err)
}

// readSpooled reads a Parquet file of at most limit bytes from a stream.
func readSpooled(r io.Reader, name string, limit int64, opt Options) (*Trace, error) {
	f, err := os.CreateTemp("", "stplan-*.parquet")
	if err != nil {
		return nil, fmt.Errorf("%s: keep a copy: %w", name, err)
	}
	// If the system can remove a file that is open, nothing is left behind even if
	// the process is killed. Otherwise the file is removed at the end.
	if os.Remove(f.Name()) != nil {
		defer os.Remove(f.Name())
	}
	defer f.Close()
	in := &counter{r: io.LimitReader(r, limit+1)}
	size, err := io.Copy(f, in)
	switch {
	case in.err != nil:
		return nil, cannotRead(name, in.err)
	case err != nil:
		return nil, fmt.Errorf("%s: keep a copy: %w", name, err)
	case size > limit:
		return nil, &InputError{Name: name, Problem: fmt.Sprintf("a Parquet trace of more than %d B, the most that is copied from a stream; give the name of a file instead", limit)}
	}
	return ReadParquet(f, size, name, opt)
}
