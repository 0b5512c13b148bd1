package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	// chunkSize is the size of each of the two buffers between the decompressor and the
	// parser, in bytes. It makes switches between the two goroutines rare and keeps
	// memory small.
	chunkSize = 256 << 10

	// maxExpansion is the largest ratio of uncompressed to compressed bytes. Entries
	// differ in address and time, so real snapshots shrink to about 1/16. A larger ratio
	// is a decompression bomb.
	maxExpansion = 256

	// expansionSlack is the number of uncompressed bytes to which maxExpansion does not
	// apply: a short file may begin with repetitions.
	expansionSlack = 16 << 20

	// maxZstdWindow is the largest zstd window, in bytes: that of zstd --long. The
	// decompressor holds a window in memory.
	maxZstdWindow = 128 << 20
)

// containerError says that the compression around a snapshot is damaged or not supported.
type containerError struct{ problem string }

func (e *containerError) Error() string { return e.problem }

// chunk is a piece of the uncompressed stream.
type chunk struct {
	data []byte
	read int64 // bytes of the file that were read up to here
	err  error
}

// container decompresses a file in a goroutine of its own, beside the parser. It has two
// buffers: one is filled while the other is parsed.
type container struct {
	ready    chan chunk
	empty    chan []byte
	stop     chan struct{}
	current  chunk
	rest     []byte // of current.data
	progress func(int64)
}

// openContainer starts to decompress r, which is gzip (with one or more members), zstd or
// plain, as its first bytes tell. Read calls progress. The caller must call Close.
func openContainer(r io.Reader, progress func(read int64)) *container {
	c := &container{
		ready:    make(chan chunk, 1),
		empty:    make(chan []byte, 2),
		stop:     make(chan struct{}),
		progress: progress,
	}
	c.empty <- make([]byte, chunkSize)
	c.empty <- make([]byte, chunkSize)
	go c.fill(r)
	return c
}

// Close ends the goroutine but does not wait for it. If the stream was not read to its
// end, one last read of r may be under way; a read of a pipe may take any time.
func (c *container) Close() { close(c.stop) }

// Read implements io.Reader.
func (c *container) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		if c.current.err != nil {
			return 0, c.current.err
		}
		if c.current.data != nil {
			c.empty <- c.current.data[:chunkSize]
		}
		c.current = <-c.ready
		c.rest = c.current.data
		c.progress(c.current.read)
		if len(c.rest) == 0 {
			return 0, c.current.err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// fill sends one chunk after the other. The last one has an error, io.EOF at the end.
func (c *container) fill(r io.Reader) {
	defer close(c.ready)
	source := &counter{r: r}
	in := bufio.NewReaderSize(source, 64<<10)
	plain, err := uncompress(in, source)
	if err == nil {
		defer plain.Close()
	}
	for first := true; ; first = false {
		var buf []byte
		select {
		case buf = <-c.empty:
		case <-c.stop:
			return
		}
		next := chunk{err: err}
		if err == nil {
			next = read(plain, buf, first)
		}
		next.read = source.read - int64(in.Buffered())
		select {
		case c.ready <- next:
		case <-c.stop:
			return
		}
		if next.err != nil {
			return
		}
	}
}

// read fills buf, up to the end of the stream. The first chunk has only the bytes of one
// read: a pipe may be slow, and its first bytes often tell that this is not a snapshot.
func read(r io.Reader, buf []byte, first bool) chunk {
	var n int
	var err error
	for n < len(buf) && err == nil && (n == 0 || !first) {
		var got int
		got, err = r.Read(buf[n:])
		n += got
	}
	return chunk{data: buf[:n], err: err}
}

// counter counts the bytes that are read of the file, and keeps the error of the file
// system, which tells a bad disk from bad data.
type counter struct {
	r    io.Reader
	read int64
	err  error
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.read += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
	zipMagic  = []byte{'P', 'K', 3, 4}
)

// uncompress returns the uncompressed bytes of in, which buffers source.
func uncompress(in *bufio.Reader, source *counter) (io.ReadCloser, error) {
	magic, _ := in.Peek(4) // a shorter file counts as plain
	switch {
	case bytes.HasPrefix(magic, gzipMagic):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, compressionError(source, "gzip", err)
		}
		z.Multistream(false)
		return newBounded(&members{z, in}, source, "gzip", z.Close), nil
	case bytes.HasPrefix(magic, zstdMagic):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, compressionError(source, "zstd", err)
		}
		return newBounded(z, source, "zstd", func() error { z.Close(); return nil }), nil
	case bytes.HasPrefix(magic, zipMagic):
		return nil, &containerError{"a zip archive, as torch.save writes; expected a pickle, as torch.cuda.memory._dump_snapshot writes"}
	}
	return io.NopCloser(in), nil
}

// members reads the members of a gzip file, one after the other. Zeros after the last are
// padding, as of a tape or a disk that is written in blocks; gzip(1) ignores them too.
type members struct {
	member *gzip.Reader
	in     *bufio.Reader // what member reads, and no more of it than its own bytes
}

func (m *members) Read(p []byte) (int, error) {
	n, err := m.member.Read(p)
	if err != io.EOF {
		return n, err
	}
	return n, m.next()
}

// next goes to the next member. At the end of the file it returns io.EOF.
func (m *members) next() error {
	for padding := false; ; padding = true {
		switch c, err := m.in.ReadByte(); {
		case err != nil:
			return err
		case c == 0:
			continue
		case padding:
			return errors.New("something follows the zeros that pad it")
		}
		if err := m.in.UnreadByte(); err != nil {
			return err
		}
		err := m.member.Reset(m.in)
		m.member.Multistream(false)
		return endsEarly(err)
	}
}

// endsEarly makes the end of a file in the middle of something an error.
func endsEarly(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// bounded refuses a stream that grows more than maxExpansion allows.
type bounded struct {
	io.Reader
	source *counter
	kind   string
	close  func() error
	total  int64
}

func newBounded(r io.Reader, source *counter, kind string, closing func() error) *bounded {
	return &bounded{Reader: r, source: source, kind: kind, close: closing}
}

func (b *bounded) Close() error { return b.close() }

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.total += int64(n)
	if b.total > expansionSlack && b.total-expansionSlack > maxExpansion*b.source.read {
		return 0, &containerError{fmt.Sprintf(
			"%d B of %s data decompress to %d B or more, expected at most %d times the size plus %d B: this is not a snapshot",
			b.source.read, b.kind, b.total, maxExpansion, expansionSlack)}
	}
	if err != nil && err != io.EOF {
		err = compressionError(b.source, b.kind, err)
	}
	return n, err
}

// compressionError turns a decompressor's error into one that a user understands.
func compressionError(source *counter, kind string, err error) error {
	switch {
	case source.err != nil:
		return source.err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &containerError{"the " + kind + " data end early: the file was not written or copied completely"}
	}
	return &containerError{"damaged " + kind + " data: " + err.Error()}
}

// sizeOf is the size of the file behind r in bytes, or 0 if it cannot be known.
func sizeOf(r io.Reader) int64 {
	switch f := r.(type) {
	case interface{ Stat() (fs.FileInfo, error) }:
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return info.Size()
		}
	case interface{ Len() int }:
		return int64(f.Len())
	}
	return 0
}
