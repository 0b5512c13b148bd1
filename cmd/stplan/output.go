package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/stplan/stplan/internal/store"
)

// outputs knows the temporary files of the command under way, so that an
// interruption or an error leaves none behind, and the files that it reads, so
// that it overwrites none of them.
type outputs struct {
	stdout    io.Writer // where "-" goes
	remote    remote    // where URLs go
	mu        sync.Mutex
	pending   map[string]bool
	written   []string
	inputs    []fs.FileInfo
	abandoned bool
}

// twoWriters refuses a flag that sends an output to where --json goes.
func twoWriters(flag string) error {
	return fmt.Errorf("%s - and --json both write to standard output; give %s a file", flag, flag)
}

// abandon removes every unfinished file; from then on none can be finished.
func (o *outputs) abandon() {
	defer o.remote.wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.abandoned = true
	for name := range o.pending {
		os.Remove(name)
	}
	o.pending = nil
}

// reads notes an input file.
func (o *outputs) reads(info fs.FileInfo) { o.inputs = append(o.inputs, info) }

func (o *outputs) isInput(info fs.FileInfo) bool {
	return slices.ContainsFunc(o.inputs, func(in fs.FileInfo) bool { return os.SameFile(in, info) })
}

// finished lists the files that the command has written so far.
func (o *outputs) finished() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.written)
}

// create opens a temporary file beside path.
func (o *outputs) create(path string) (*os.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.abandoned {
		return nil, errAbandoned
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return nil, cannotWrite(path, err)
	}
	if o.pending == nil {
		o.pending = map[string]bool{}
	}
	o.pending[f.Name()] = true
	return f, nil
}

// finish gives a finished temporary file its name, in one step.
func (o *outputs) finish(temp, path string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.abandoned {
		return errAbandoned
	}
	delete(o.pending, temp)
	if err := os.Rename(temp, path); err != nil {
		os.Remove(temp)
		return cannotWrite(path, err)
	}
	o.written = append(o.written, path)
	return nil
}

// share gives a finished file another name beside it or elsewhere: by a hard link, or by a
// copy if the file system has no links or cannot link there.
func (o *outputs) share(from, path string) error {
	to, err := o.target(path)
	if err != nil {
		return err
	}
	source, err := os.Stat(from)
	if err != nil {
		return fmt.Errorf("%s: cannot read: %w", from, cause(err))
	}
	if to.info != nil && os.SameFile(source, to.info) {
		return nil // renaming a link over another one of the same file leaves both
	}
	f, err := o.create(to.path)
	if err != nil {
		return err
	}
	temp := f.Name()
	f.Close()
	if err := os.Remove(temp); err != nil || os.Link(from, temp) != nil {
		o.discard(temp)
		return o.write(path, func(w io.Writer) error {
			in, err := os.Open(from)
			if err != nil {
				return err
			}
			defer in.Close()
			_, err = io.Copy(w, in)
			return err
		})
	}
	return o.finish(temp, to.path)
}

// discard removes one unfinished file.
func (o *outputs) discard(temp string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pending, temp)
	os.Remove(temp)
}

// place is the file that an output is written to.
type place struct {
	path string      // where symbolic links lead; it need not exist
	info fs.FileInfo // of what is there, nil if nothing is
}

// target finds the file to write for a path other than "-", and refuses what
// must not be written: an input of this command, a folder, a file without write
// permission.
func (o *outputs) target(path string) (place, error) {
	link, err := followLinks(path)
	if err != nil {
		return place{}, cannotWrite(path, err)
	}
	info, err := os.Stat(link)
	if err != nil {
		return place{path: link}, nil
	}
	if o.isInput(info) {
		return place{}, cannotWrite(path, errIsInput)
	}
	err = writable(link, info)
	if errors.Is(err, fs.ErrNotExist) {
		return place{path: link}, nil // another process has just removed it
	}
	if err != nil {
		return place{}, cannotWrite(path, err)
	}
	return place{link, info}, nil
}

// demand proves, before the work, that the outputs can be written, each to a file of its own.
// "-" and "" are none. The inputs have to be noted before (reads).
func (o *outputs) demand(paths ...string) error {
	files := map[string]string{} // by where it is: how it was named
	for _, path := range paths {
		if path == "-" || path == "" {
			continue
		}
		if store.Is(path) {
			if err := o.remote.demand(path); err != nil {
				return err
			}
			continue
		}
		t, err := o.target(path)
		if err != nil {
			return err
		}
		if t.info != nil && !t.info.Mode().IsRegular() {
			continue // a device or a pipe: an error shows when it is written to
		}
		if err := probeFolder(filepath.Dir(t.path)); err != nil {
			return cannotWrite(path, err)
		}
		file, err := filepath.Abs(t.path)
		if err != nil {
			return cannotWrite(path, err)
		}
		if other, ok := files[file]; ok {
			return fmt.Errorf("%s and %s: expected a file for each output, found the same", other, path)
		}
		files[file] = path
	}
	return nil
}

// probeFolder proves that files can be made in a folder, and removed again.
func probeFolder(folder string) error {
	probe, err := os.CreateTemp(folder, ".stplan.*.tmp")
	if err != nil {
		return err
	}
	probe.Close()
	return os.Remove(probe.Name())
}

// write writes path whole or not at all: to a temporary file in the same
// folder, renamed when content has succeeded. "-" is standard output. What is there
// already and is not a regular file, such as a device or a pipe, is written to as
// it is; a symbolic link keeps pointing where it does.
func (o *outputs) write(path string, content func(io.Writer) error) error {
	if path == "-" {
		return content(o.stdout)
	}
	if store.Is(path) {
		return o.upload(path, content)
	}
	to, err := o.target(path)
	if err != nil {
		return err
	}
	mode := 0o666 &^ umask()
	if to.info != nil {
		if !to.info.Mode().IsRegular() {
			return writeThrough(path, to.path, content)
		}
		mode = to.info.Mode().Perm()
	}
	f, err := o.create(to.path)
	if err != nil {
		return err
	}
	temp := f.Name()
	if err := writeAndClose(f, mode, content); err != nil {
		o.discard(temp)
		return cannotWriteContent(path, err)
	}
	return o.finish(temp, to.path)
}

// writeBytes writes path whole or not at all.
func (o *outputs) writeBytes(path string, data []byte) error {
	return o.write(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// followLinks is where path leads; it need not exist there.
func followLinks(path string) (string, error) {
	const most = 40 // links that Linux follows
	for range most {
		next, err := os.Readlink(path)
		if err != nil {
			return path, nil // no link
		}
		if !filepath.IsAbs(next) {
			next = filepath.Join(filepath.Dir(path), next)
		}
		path = next
	}
	return "", errors.New("too many symbolic links")
}

// writable reports why what exists at path must not be replaced: renaming a new
// file over it needs no permission of its own.
func writable(path string, info fs.FileInfo) error {
	if info.IsDir() {
		return errors.New("is a directory")
	}
	if !info.Mode().IsRegular() {
		return nil // opening it may block; an error shows when it is written to
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// writeThrough writes to a device or a pipe.
func writeThrough(path, target string, write func(io.Writer) error) error {
	f, err := os.OpenFile(target, os.O_WRONLY, 0)
	if err != nil {
		return cannotWrite(path, err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return cannotWriteContent(path, err)
	}
	return nil
}

func writeAndClose(f *os.File, mode fs.FileMode, write func(io.Writer) error) error {
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	// CreateTemp makes files private; a result is as readable as any other.
	if err := f.Chmod(mode); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// countingWriter counts what passes through it.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
