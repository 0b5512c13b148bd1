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

// ReadFile reads a recording in any form: a file that begins as Parquet does is a Parquet
// trace, one that begins as a history does is a history, any other is read as a memory
// snapshot. If the path is not a regular file, such as a pipe, it is read as by Read.
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
	head := make([]byte, len(historyMagic))
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, cannotRead(path, err)
	}
	form, err := formOf(head[:n], path)
	switch {
	case err != nil:
		return nil, err
	case form == formParquet:
		return ReadParquet(f, info.Size(), path, opt)
	case form == formHistory:
		return ReadHistory(f, path, opt)
	}
	return ReadSnapshot(f, path, opt)
}

// inParts is a stream whose content can also be read in parts.
type inParts interface {
	io.ReaderAt
	Size() int64 // in bytes
}

// Read reads a recording in any form from a stream such as standard input; the
// name is for messages. A snapshot is read as it comes. A Parquet file has its footer
// at the end. If r has ReadAt and Size, only the parts that are needed are read; otherwise
// the file is first copied to a temporary one, and more than 8 GiB are refused.
// After an error one read of r may still be under way.
func Read(r io.Reader, name string, opt Options) (*Trace, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	head, err := b.Peek(len(parquet.Magic))
	if err == nil && strings.HasPrefix(historyMagic, string(head)) {
		head, err = b.Peek(len(historyMagic))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, cannotRead(name, err)
	}
	form, err := formOf(head, name)
	switch {
	case err != nil:
		return nil, err
	case form == formParquet:
		if parts, ok := r.(inParts); ok {
			return ReadParquet(parts, parts.Size(), name, opt)
		}
		return readSpooled(b, name, maxSpool, opt)
	case form == formHistory:
		return ReadHistory(b, name, opt)
	}
	return ReadSnapshot(b, name, opt)
}

// form is one of the forms of a recording.
type form int

const (
	formSnapshot form = iota
	formParquet
	formHistory
)

// formOf tells the form of a file by its first bytes.
func formOf(head []byte, name string) (form, error) {
	switch text := string(head); {
	case strings.HasPrefix(text, planMagic):
		return 0, &InputError{Name: name, Problem: "this is a plan; expected a trace: a memory snapshot, a history or a Parquet file"}
	case strings.HasPrefix(text, historyMagic):
		return formHistory, nil
	case strings.HasPrefix(text, parquet.Magic):
		return formParquet, nil
	}
	if strings.HasPrefix(string(head), parquet.EncryptedMagic) {
		return 0, &InputError{Name: name, Problem: fmt.Sprintf("this is an encrypted Parquet file (it begins with %q); expected one that is not encrypted", parquet.EncryptedMagic)}
	}
	return formSnapshot, nil
}

// LooksLike says whether a file that begins with head may be a recording: compressed, a
// Parquet file, a history or a pickle. It is for messages.
func LooksLike(head []byte) bool {
	for _, magic := range []string{string(gzipMagic), string(zstdMagic), parquet.Magic, historyMagic} {
		if strings.HasPrefix(string(head), magic) {
			return true
		}
	}
	return len(head) > 1 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5
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
