package trace

import (
	"fmt"
	"io"
	"runtime"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"golang.org/x/sync/errgroup"
)

// WriteParquet writes t as a Parquet trace of the current version. Everything
// in t but its Name comes back from ReadParquet, indices into its tables
// renumbered by first appearance. Traces that are equal, however their tables
// are numbered, give equal bytes. Of the options only Progress counts, with
// rows for units. One row group at a time is held in memory.
func WriteParquet(w io.Writer, t *Trace, opt Options) error {
	if err := t.writable(); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	out := &sink{w: w}
	pw, err := newParquetWriter(out, t)
	if err == nil {
		err = pw.write(opt.Progress)
	}
	if out.err != nil {
		err = out.err
	}
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

// writable checks what the form cannot hold and ReadParquet would refuse: an
// index out of range, blocks that do not tile, text that is not UTF-8.
func (t *Trace) writable() error {
	c := newChecker(t, entryOf)
	if err := c.tables(); err != nil {
		return err
	}
	for i := range t.Devices {
		if _, err := c.shape(&t.Devices[i]); err != nil {
			return err
		}
	}
	return nil
}

// sink keeps the first error of the underlying writer: the Parquet writer
// panics on one in its first write and drops one in its last. It also hides a
// Close method, which that writer would call.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err == nil {
		_, s.err = s.w.Write(p)
	}
	return len(p), nil
}

// parquetWriter writes one trace, row group by row group.
type parquetWriter struct {
	t     *Trace
	out   *sink
	file  *file.Writer
	batch *rowBatch

	scratch chan *columnScratch // one for each column that is encoded at a time
}

func newParquetWriter(out *sink, t *Trace) (*parquetWriter, error) {
	stacks := newStackRenderer(&t.Stacks)
	meta, err := encodeMeta(t, stacks)
	if err != nil {
		return nil, err
	}
	batch := newRowBatch(t, stacks)
	root, err := batch.schema()
	if err != nil {
		return nil, err
	}
	kv := metadata.NewKeyValueMetadata()
	size := 0
	for _, m := range meta {
		if err := kv.Append(m[0], m[1]); err != nil {
			return nil, err
		}
		size += len(m[1])
	}
	if size > maxFooter/2 {
		return nil, fmt.Errorf("segments and notes take %d B of metadata, more than a trace can hold (%d B)", size, maxFooter/2)
	}
	scratch := make(chan *columnScratch, runtime.GOMAXPROCS(0))
	for range cap(scratch) {
		scratch <- &columnScratch{distinct: newNumbering(0)}
	}
	return &parquetWriter{t: t, out: out, batch: batch,
		file:    file.NewParquetWriter(out, root, file.WithWriterProps(writerProperties()), file.WithWriteMetadata(kv)),
		scratch: scratch}, nil
}

// writerProperties are the encodings measured best on recorded traces: text and
// sizes repeat, times grow by little, and addresses compress better plain than
// as scattered dictionary indices. Every column of a row group is one page, so
// limits that would split it are out of reach.
func writerProperties() *parquet.WriterProperties {
	const never = 1 << 30
	return parquet.NewWriterProperties(
		parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithStats(false),
		parquet.WithBatchSize(rowGroupRows),
		parquet.WithDataPageSize(never),
		parquet.WithDictionaryPageSizeLimit(never),
		parquet.WithDictionaryFor(colAddr, false),
		parquet.WithDictionaryFor(colTime, false),
		parquet.WithEncodingFor(colTime, parquet.Encodings.DeltaBinaryPacked),
	)
}

func (pw *parquetWriter) write(progress func(done, total int64)) error {
	done, total := 0, pw.t.rows()
	rows := rowCursor{t: pw.t}
	for rows.fill(pw.batch) {
		if err := pw.group(); err != nil {
			return err
		}
		done += pw.batch.rows
		if progress != nil {
			progress(int64(done), int64(total))
		}
		if pw.out.err != nil {
			return pw.out.err
		}
	}
	return pw.file.Close()
}

// group writes the batch as one row group, its columns gathered and encoded side
// by side. Each goes to a buffer of its own; Close then writes them in order.
func (pw *parquetWriter) group() error {
	group := pw.file.AppendBufferedRowGroup()
	var work errgroup.Group
	work.SetLimit(cap(pw.scratch))
	for i, c := range pw.batch.columns {
		w, err := group.Column(i)
		if err != nil {
			return err
		}
		work.Go(func() error {
			s := <-pw.scratch
			defer func() { pw.scratch <- s }()
			return c.encode(w, pw.batch, s)
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	return group.Close()
}
