package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"
)

const (
	// partSize is what one request of a large upload carries, in bytes. S3 takes 10,000 parts
	// of 5 MiB or more, so 160 GiB have room, and a part that is cut costs little to repeat.
	partSize = 16 << 20

	// maxParts is what S3 takes.
	maxParts = 10_000

	// partsAtOnce bounds the memory of an upload to four parts, 64 MiB; more connections
	// rarely carry more.
	partsAtOnce = 4
)

// Write writes an object, or replaces it, in one step: with one request, or with a multipart
// upload that is completed after its last part. content first goes to a temporary file, so
// nothing is sent before it has succeeded. If Write fails or ctx ends, no object appears, and
// one that was there stays; parts that were sent are removed. If the process is killed they
// remain in the bucket without a name until a lifecycle rule removes them.
func (s *Store) Write(ctx context.Context, path string, content func(io.Writer) error) error {
	u, err := writable(path)
	if err != nil {
		return err
	}
	core, err := s.buckets.connect()
	if err != nil {
		return cannotWrite(path, err)
	}
	f, remove, err := temporary()
	if err != nil {
		return cannotWrite(path, fmt.Errorf("keep a copy: %w", err))
	}
	defer remove()
	if err := content(untilEnd{ctx, f}); err != nil {
		return cannotWrite(path, err)
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return cannotWrite(path, err)
	}
	if size <= partSize {
		err = putOne(ctx, core, u, io.NewSectionReader(f, 0, size))
	} else {
		err = putParts(ctx, core, u, f, size)
	}
	if err != nil {
		return cannotWrite(path, s.buckets.explain(err, u))
	}
	return nil
}

// untilEnd is a writer that fails once ctx has ended.
type untilEnd struct {
	ctx context.Context
	io.Writer
}

func (u untilEnd) Write(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Writer.Write(b)
}

func cannotWrite(path string, err error) error {
	return fmt.Errorf("%s: cannot write: %w", Name(path), err)
}

// writable refuses addresses that nothing can be written to.
func writable(path string) (address, error) {
	u, err := parse(path)
	switch {
	case err != nil:
		return u, err
	case u.bucket == "":
		return u, cannotWrite(path, errors.New("web addresses are only read; expected a file or s3://BUCKET/KEY"))
	case IsFolder(path):
		return u, cannotWrite(path, errors.New("this names a folder, expected s3://BUCKET/KEY"))
	}
	return u, nil
}

// readPart reads a part into memory, with its MD5, which the server compares.
func readPart(r *io.SectionReader) (data []byte, sum string, err error) {
	data = make([]byte, r.Size())
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, "", err
	}
	hash := md5.Sum(data)
	return data, base64.StdEncoding.EncodeToString(hash[:]), nil
}

func putOne(ctx context.Context, core *minio.Core, u address, r *io.SectionReader) error {
	data, sum, err := readPart(r)
	if err != nil {
		return err
	}
	_, err = core.PutObject(ctx, u.bucket, u.key, bytes.NewReader(data), int64(len(data)), sum, "", minio.PutObjectOptions{})
	return err
}

// putParts uploads in parts. The library's own multipart upload does not remove its parts if
// ctx has ended.
func putParts(ctx context.Context, core *minio.Core, u address, f io.ReaderAt, size int64) error {
	n := int((size + partSize - 1) / partSize)
	if n > maxParts {
		return fmt.Errorf("%d B, expected at most %d", size, int64(maxParts)*partSize)
	}
	id, err := core.NewMultipartUpload(ctx, u.bucket, u.key, minio.PutObjectOptions{})
	if err != nil {
		return err
	}
	parts := make([]minio.CompletePart, n)
	work, sending := errgroup.WithContext(ctx)
	work.SetLimit(partsAtOnce)
	for i := range n {
		work.Go(func() error {
			if err := sending.Err(); err != nil {
				return err
			}
			off := int64(i) * partSize
			data, sum, err := readPart(io.NewSectionReader(f, off, min(partSize, size-off)))
			if err != nil {
				return err
			}
			p, err := core.PutObjectPart(sending, u.bucket, u.key, id, i+1, bytes.NewReader(data), int64(len(data)), minio.PutObjectPartOptions{Md5Base64: sum})
			parts[i] = minio.CompletePart{PartNumber: i + 1, ETag: p.ETag}
			return err
		})
	}
	if err = work.Wait(); err == nil {
		_, err = core.CompleteMultipartUpload(ctx, u.bucket, u.key, id, parts, minio.PutObjectOptions{})
	}
	if err != nil {
		abort(ctx, core, u, id)
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// abort removes the parts of an upload, also after ctx has ended. If that fails too, they
// have no name and nobody reads them.
func abort(ctx context.Context, core *minio.Core, u address, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer cancel()
	_ = core.AbortMultipartUpload(ctx, u.bucket, u.key, id)
}

// probes are the folders that were proven writable.
type probes struct {
	mu   sync.Mutex
	done map[string]bool
}

// Demand proves that an object can be written, before the work for it: it begins a multipart
// upload and ends it without a part. Of the objects of one folder only the first is tried.
func (s *Store) Demand(ctx context.Context, path string) error {
	u, err := writable(path)
	if err != nil {
		return err
	}
	s.buckets.probe.mu.Lock()
	defer s.buckets.probe.mu.Unlock()
	folder := path[:len(path)-len(lastName(path))]
	if s.buckets.probe.done[folder] {
		return nil
	}
	core, err := s.buckets.connect()
	if err != nil {
		return cannotWrite(path, err)
	}
	id, err := core.NewMultipartUpload(ctx, u.bucket, u.key, minio.PutObjectOptions{})
	if err != nil {
		return cannotWrite(path, s.buckets.explain(err, u))
	}
	abort(ctx, core, u, id)
	if s.buckets.probe.done == nil {
		s.buckets.probe.done = map[string]bool{}
	}
	s.buckets.probe.done[folder] = true
	return nil
}
