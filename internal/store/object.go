package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Object is one version of an object, read as a stream or in parts. Read is for one goroutine
// at a time, ReadAt for any number.
//
// Parts are asked for in blocks and kept in a temporary file, so no byte is asked for twice
// and memory does not grow with the object.
type Object struct {
	head []byte // the first block, or all of a smaller object
	rest resumed

	at int64 // of Read

	mu     sync.Mutex
	change sync.Cond // a block that was awaited is there, or is not coming
	kept   *os.File  // made by the first ReadAt that goes beyond head
	remove func()
	blocks []block // of the whole object
}

// block is what is known of blockSize bytes.
type block uint8

const (
	absent block = iota
	awaited
	present
)

func newObject(v *version, head []byte) *Object {
	o := &Object{head: head, rest: resumed{version: v, off: int64(len(head)), end: v.size}}
	o.change.L = &o.mu
	return o
}

// Size is the object's, in bytes.
func (o *Object) Size() int64 { return o.rest.size }

// Read reads the object from its beginning to its end.
func (o *Object) Read(b []byte) (int, error) {
	if o.at < int64(len(o.head)) {
		n := copy(b, o.head[o.at:])
		o.at += int64(n)
		return n, nil
	}
	return o.rest.Read(b)
}

// ReadAt reads a part. Blocks that nobody has read yet are asked for, neighbours in one
// request.
func (o *Object) ReadAt(b []byte, off int64) (int, error) {
	size := o.Size()
	switch {
	case off < 0:
		return 0, errors.New("a negative offset")
	case off >= size:
		return 0, io.EOF
	}
	want := b[:min(int64(len(b)), size-off)]
	if end := off + int64(len(want)); end <= int64(len(o.head)) {
		copy(want, o.head[off:])
	} else if err := o.fetch(off, end); err != nil {
		return 0, err
	} else if _, err := o.kept.ReadAt(want, off); err != nil {
		return 0, fmt.Errorf("keep a copy: %w", err)
	}
	if len(want) < len(b) {
		return len(want), io.EOF
	}
	return len(want), nil
}

// fetch makes the blocks of a range present.
func (o *Object) fetch(off, end int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.keep(); err != nil {
		return err
	}
	last := int((end - 1) / blockSize)
	for k := int(off / blockSize); k <= last; {
		switch o.blocks[k] {
		case present:
			k++
		case awaited:
			o.change.Wait()
		case absent:
			behind := k
			for behind <= last && o.blocks[behind] == absent {
				o.blocks[behind] = awaited
				behind++
			}
			o.mu.Unlock()
			err := o.copyBlocks(k, behind)
			o.mu.Lock()
			result := present
			if err != nil {
				result = absent
			}
			for i := k; i < behind; i++ {
				o.blocks[i] = result
			}
			o.change.Broadcast()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// keep makes the temporary file, with the first block.
func (o *Object) keep() error {
	if o.kept != nil {
		return nil
	}
	if o.Size() > maxKept {
		return fmt.Errorf("%d B, expected at most %d of an object that is read in parts; copy it to this machine first", o.Size(), int64(maxKept))
	}
	f, remove, err := temporary()
	if err != nil {
		return fmt.Errorf("keep a copy: %w", err)
	}
	if _, err := f.WriteAt(o.head, 0); err != nil {
		remove()
		return fmt.Errorf("keep a copy: %w", err)
	}
	o.kept, o.remove = f, remove
	o.blocks = make([]block, (o.Size()+blockSize-1)/blockSize)
	o.blocks[0] = present
	return nil
}

// copyBlocks asks for the blocks from first up to before behind.
func (o *Object) copyBlocks(first, behind int) error {
	r := resumed{version: o.rest.version, off: int64(first) * blockSize, end: min(int64(behind)*blockSize, o.Size())}
	defer r.close()
	_, err := io.Copy(io.NewOffsetWriter(o.kept, r.off), &r)
	return err
}

// Close ends what is under way and removes the temporary file.
func (o *Object) Close() error {
	o.rest.close()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kept != nil {
		o.remove()
	}
	return nil
}
