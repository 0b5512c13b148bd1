// Package store reads and writes objects that lie outside this machine: in a bucket of
// anything that speaks S3, or, to read only, at an https or http address.
//
// An object is read as a stream, or in parts by range requests. A connection that is cut or
// stalls is taken up again at the byte that it reached, of the same version of the object. An
// object is written whole or not at all.
//
// Nothing is sent, and no credentials are looked up, before an object is asked for.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// blockSize is what is asked for at once at the beginning of an object, and the unit in
	// which parts of it are kept, in bytes. A request takes some 30 ms before its first byte,
	// in which one connection carries 1 to 3 MB.
	blockSize = 1 << 20

	// maxSize is the largest object that S3 knows, in bytes. A server that claims more is
	// wrong.
	maxSize = 5 << 40

	// maxKept is the largest object that is read in parts, in bytes, because the parts are
	// kept in a temporary file. Streams of Parquet have the same limit.
	maxKept = 8 << 30

	// retries is how often something is tried that can pass: a server that is overloaded, a
	// cut connection. Bytes that arrive begin the count anew.
	retries = 5

	// retryUnit is the wait after a first failure; it doubles. With it the five tries bridge
	// some 3 s, as long as a gateway takes to restart a connection, and a job that waits for
	// its input is not held for minutes by a server that is gone.
	retryUnit = 200 * time.Millisecond

	// stall is how long a connection may be silent. S3's own tools wait a minute.
	stall = time.Minute

	// lookupTime bounds the search for an instance's role, which is a request to an address
	// that answers within milliseconds, or never.
	lookupTime = 5 * time.Second

	// abortTime bounds the removal of an unfinished upload after an interruption.
	abortTime = 5 * time.Second
)

// Store opens and makes objects. It may be used by several goroutines.
type Store struct {
	buckets buckets
	web     web
	stall   time.Duration
	unit    time.Duration
}

// New makes a store. It reads the environment when the first object is asked for.
func New() *Store { return &Store{stall: stall, unit: retryUnit} }

// source is where ranges of one object come from.
type source interface {
	// get asks for the bytes from "from" up to before "to", of the version etag if it is not
	// "". The server may send fewer, and all from byte 0 on if it does not know ranges.
	get(ctx context.Context, from, to int64, etag string) (*part, error)
}

// part is what a source answers.
type part struct {
	body   io.ReadCloser
	size   int64  // of the whole object, -1 if that is not known
	etag   string // of the version, "" if the server names none
	since  string // when the version was made, in the server's words, "" if it does not say
	ranged bool   // whether the body is the range that was asked for, and not the whole object
}

func (p *part) version() string { return cmp.Or(p.etag, p.since) }

// passing is an error that another try may not meet.
type passing struct{ error }

func (p passing) Unwrap() error { return p.error }

// Unavailable says that a fault is not the object's: a server that does not answer or has too much
// to do, a connection that was cut, credentials that are not taken, an endpoint that is none. What
// the server says of the object itself, that there is none of this name or that it is denied, is
// another error.
type Unavailable struct{ Err error }

func (u *Unavailable) Error() string { return u.Err.Error() }

// Unwrap is the fault.
func (u *Unavailable) Unwrap() error { return u.Err }

// source finds the source of a path.
func (s *Store) source(path string) (source, error) {
	u, err := parse(path)
	if err != nil {
		return nil, err
	}
	if u.bucket == "" {
		return &webSource{web: &s.web, url: u.path, unit: s.unit}, nil
	}
	if u.key == "" {
		return nil, fmt.Errorf("%s: cannot read: this names a bucket, expected s3://BUCKET/KEY", path)
	}
	return &bucketSource{buckets: &s.buckets, url: u}, nil
}

func cannotRead(path string, err error) error {
	return fmt.Errorf("%s: cannot read: %w", Name(path), err)
}

// Info is what a server says of an object.
type Info struct {
	Size    int64  // in bytes, -1 if the server does not say
	Version string // changes with the content: the ETag, else the time of the last change; "" if the server names neither
}

// Stat asks for an object's first byte, which proves that it can be read.
func (s *Store) Stat(ctx context.Context, path string) (Info, error) {
	src, err := s.source(path)
	if err != nil {
		return Info{}, err
	}
	p, err := s.begin(ctx, src, 1)
	if err != nil {
		return Info{}, cannotRead(path, err)
	}
	if p.ranged { // read to its end, so that the connection can be used again
		_, _ = io.CopyN(io.Discard, p.body, 2)
	}
	return Info{p.size, p.version()}, p.body.Close()
}

// Open opens an object. If the server knows ranges, the result is an *Object. Errors of Open
// have the object's name, those of reading do not.
func (s *Store) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	src, err := s.source(path)
	if err != nil {
		return nil, err
	}
	p, err := s.begin(ctx, src, blockSize)
	if err != nil {
		return nil, cannotRead(path, err)
	}
	if !p.ranged {
		return &stream{ReadCloser: p.body}, nil
	}
	v := &version{ctx, s, src, p.etag, p.size}
	first := resumed{version: v, end: min(p.size, blockSize), body: p.body}
	defer first.close()
	head := make([]byte, first.end)
	if _, err := io.ReadFull(&first, head); err != nil {
		return nil, cannotRead(path, err)
	}
	return newObject(v, head), nil
}

// stream is an object of a server that does not know ranges.
type stream struct {
	io.ReadCloser
	at int64
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	s.at += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		// Hidden, as it may be io.ErrUnexpectedEOF, which readers take for the object's end.
		err = &Unavailable{fmt.Errorf("at byte %d: the connection was cut, and the server sends no parts, so it cannot be taken up there: %v", s.at, err)}
	}
	return n, err
}

// begin asks for the first bytes of an object. The body that it returns gives up if it is
// silent for too long.
func (s *Store) begin(ctx context.Context, src source, most int64) (*part, error) {
	p, err := s.get(ctx, src, 0, most, "")
	if err == nil && p.ranged && (p.size < 0 || p.size > maxSize) {
		p.body.Close()
		return nil, fmt.Errorf("the server says that it has %d B, expected at most %d", p.size, int64(maxSize))
	}
	return p, err
}

// get is src.get with a watch on the answer's body.
func (s *Store) get(ctx context.Context, src source, from, to int64, etag string) (*part, error) {
	ctx, cancel := context.WithCancel(ctx)
	p, err := src.get(ctx, from, to, etag)
	if err != nil {
		cancel()
		return nil, err
	}
	p.body = watch(p.body, s.stall, cancel)
	return p, nil
}

// temporary is a file that is gone when it is closed, and if the system can do that, also if
// the process is killed.
func temporary() (*os.File, func(), error) {
	f, err := os.CreateTemp("", "stplan-*.object")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { f.Close() }
	if os.Remove(f.Name()) != nil {
		remove = func() { f.Close(); os.Remove(f.Name()) }
	}
	return f, remove, nil
}
