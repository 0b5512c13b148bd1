package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// version is one version of an object.
type version struct {
	ctx   context.Context
	store *Store
	src   source
	etag  string
	size  int64 // in bytes
}

// resumed reads a range of a version. A body that ends early is replaced by a request for
// what is left.
type resumed struct {
	*version
	off int64 // of the next byte
	end int64

	body     io.ReadCloser // nil if the next bytes have to be asked for
	failures int           // since the last byte that arrived
}

func (r *resumed) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for r.off < r.end {
		n, err := r.try(b)
		if n > 0 {
			r.off += int64(n)
			r.failures = 0
			if err != nil {
				r.close()
			}
			return n, nil
		}
		if err == nil {
			continue
		}
		r.close()
		var again passing
		if r.failures++; !errors.As(err, &again) || r.failures == retries || r.ctx.Err() != nil {
			if r.ctx.Err() == nil && r.off > 0 {
				err = fmt.Errorf("at byte %d of %d: %w", r.off, r.size, err)
			}
			return 0, &Unavailable{err}
		}
		pause(r.ctx, r.store.unit, r.failures)
	}
	return 0, io.EOF
}

// try reads once. An error of a connection is one that may pass.
func (r *resumed) try(b []byte) (int, error) {
	if r.body == nil {
		p, err := r.store.get(r.ctx, r.src, r.off, r.end, r.etag)
		switch {
		case err != nil:
			return 0, err
		case !p.ranged || p.size != r.size:
			p.body.Close()
			return 0, fmt.Errorf("expected bytes %d to %d of %d, found an object of %d B: it has changed", r.off, r.end, r.size, p.size)
		}
		r.body = p.body
	}
	n, err := r.body.Read(b[:min(int64(len(b)), r.end-r.off)])
	switch {
	case errors.Is(err, io.EOF):
		err = passing{errors.New("the connection was cut")}
	case err != nil: // hidden, as it may be io.ErrUnexpectedEOF, which readers take for the object's end
		err = passing{fmt.Errorf("the connection was cut: %v", err)}
	}
	return n, err
}

func (r *resumed) close() {
	if r.body != nil {
		r.body.Close()
		r.body = nil
	}
}

// pause waits before the next try; the wait doubles with each failure.
func pause(ctx context.Context, unit time.Duration, failures int) {
	select {
	case <-ctx.Done():
	case <-time.After(unit << (failures - 1)):
	}
}

// watched is a body whose request is cancelled when it is silent for too long.
type watched struct {
	io.ReadCloser
	limit   time.Duration
	timer   *time.Timer
	cancel  context.CancelFunc
	stalled atomic.Bool
}

func watch(body io.ReadCloser, limit time.Duration, cancel context.CancelFunc) io.ReadCloser {
	w := &watched{ReadCloser: body, limit: limit, cancel: cancel}
	w.timer = time.AfterFunc(limit, func() { w.stalled.Store(true); cancel() })
	w.timer.Stop() // it runs while a Read does
	return w
}

func (w *watched) Read(b []byte) (int, error) {
	w.timer.Reset(w.limit)
	n, err := w.ReadCloser.Read(b)
	w.timer.Stop()
	if err != nil && w.stalled.Load() {
		err = fmt.Errorf("no byte came for %v", w.limit)
	}
	return n, err
}

func (w *watched) Close() error {
	w.timer.Stop()
	defer w.cancel()
	return w.ReadCloser.Close()
}
