package store

import (
	"context"
	"fmt"
	"io"

	"github.com/minio/minio-go/v7"
)

// Copy gives an object another name, or replaces the object there, in one step. The server
// copies it; if it cannot, as from one region to another, the object is read and written.
func (s *Store) Copy(ctx context.Context, from, to string) error {
	source, err := parse(from)
	if err != nil {
		return err
	}
	u, err := writable(to)
	if err != nil {
		return err
	}
	if source.bucket != "" {
		core, err := s.buckets.connect()
		if err != nil {
			return cannotWrite(to, err)
		}
		o, err := core.CopyObject(ctx, source.bucket, source.key, u.bucket, u.key, nil, minio.CopySrcOptions{}, minio.PutObjectOptions{})
		// S3 can answer 200 and tell of a failure in what follows, which then names no version.
		if err == nil && o.ETag != "" {
			return nil
		}
		if ctx.Err() != nil {
			return cannotWrite(to, context.Cause(ctx))
		}
	}
	r, err := s.Open(ctx, from)
	if err != nil {
		return err
	}
	defer r.Close()
	return s.Write(ctx, to, func(w io.Writer) error {
		if _, err := io.Copy(w, r); err != nil {
			return fmt.Errorf("copy of %s: %w", Name(from), err)
		}
		return nil
	})
}
