package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/stplan/stplan/internal/store"
	"github.com/stplan/stplan/internal/trace"
)

// remote is what outputs knows of objects: s3:// paths and web addresses. ctx ends with the
// command.
type remote struct {
	ctx     context.Context
	store   *store.Store
	inputs  []string
	uploads sync.WaitGroup
}

// uploadsEnd is the longest that an interruption waits for uploads to remove what they have
// sent: the store's own limit is 5 s.
const uploadsEnd = 6 * time.Second

// wait waits for uploads that were interrupted.
func (r *remote) wait() {
	done := make(chan struct{})
	go func() { r.uploads.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(uploadsEnd):
	}
}

// demand proves that an object can be written.
func (r *remote) demand(path string) error {
	if err := r.notInput(path); err != nil {
		return err
	}
	return r.store.Demand(r.ctx, path)
}

// demandObject proves that an object can be read, and notes it.
func (o *outputs) demandObject(path string) error {
	if _, err := o.remote.store.Stat(o.remote.ctx, path); err != nil {
		return err
	}
	o.remote.inputs = append(o.remote.inputs, path)
	return nil
}

// upload writes an object whole or not at all.
func (o *outputs) upload(path string, content func(io.Writer) error) error {
	var refused error // by content, whose text says the path as well
	return o.send(path, func() error {
		err := o.remote.store.Write(o.remote.ctx, path, func(w io.Writer) error {
			refused = content(w)
			return refused
		})
		if refused == nil && err != nil {
			return &environment{err}
		}
		return err
	})
}

// send makes an object, unless the command was interrupted before.
func (o *outputs) send(path string, object func() error) error {
	o.mu.Lock()
	if o.abandoned {
		o.mu.Unlock()
		return errAbandoned
	}
	o.remote.uploads.Add(1)
	o.mu.Unlock()
	defer o.remote.uploads.Done()
	if err := object(); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.written = append(o.written, path)
	return nil
}

// open opens an input of any kind; "-" is standard input.
func (a *app) open(path string) (io.ReadCloser, error) {
	switch {
	case path == "-":
		return io.NopCloser(a.stdin), nil
	case store.Is(path):
		return a.outputs.remote.store.Open(a.outputs.remote.ctx, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot read: %w", path, cause(err))
	}
	return f, nil
}

// readStream reads a recording that is no file of this machine.
func (a *app) readStream(path string, opt trace.Options) (*trace.Trace, error) {
	r, err := a.open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return trace.Read(r, inputName(path), opt)
}

// inFolder is the path of a name in a folder of any kind.
func inFolder(folder, name string) string {
	if store.Is(folder) {
		return store.Join(folder, name)
	}
	return filepath.Join(folder, name)
}

// demandLocal refuses a URL for what the job's processes write, or stplan writes once signals
// are the job's.
func demandLocal(flag, path string) error {
	if store.Is(path) {
		return fmt.Errorf("%s: expected a path of this machine, found %s", flag, store.Name(path))
	}
	return nil
}

// notInput refuses to write an object that the command reads.
func (r *remote) notInput(path string) error {
	if slices.Contains(r.inputs, path) {
		return cannotWrite(path, errIsInput)
	}
	return nil
}
