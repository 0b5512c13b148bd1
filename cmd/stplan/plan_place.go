package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/stplan/stplan/internal/store"
)

// recordsFolder is the folder within a folder of plans that has what compile knows of them:
//
//	PLAN-SHA256.bin          a plan, named by its bytes; NAME.bin is a link to it, or a copy
//	program-IDENTITY.json    a program: its summary and its plan
//	rank-NAME.json           a recording: its program, or why it has none
//	expected-SHA256.json     the names of a whole batch, named by their bytes
//
// All names but the ranks' come from content, and a file only ever appears under its name
// when it is whole. So any number of processes can work in one folder, and one that is
// killed leaves nothing that another one would believe.
const recordsFolder = ".stplan"

// planPlace is a folder of plans and of what compile knows of them, on this machine or in a
// bucket. Names are relative to it. A file appears under its name when it is whole. All of it
// but demand is for any number of goroutines.
type planPlace interface {
	// demand makes the folder, if the place has such, and proves that it can be written.
	demand() error
	// list is the names of the files in a folder of the place, without the folder, sorted. A
	// folder that is not there has none.
	list(folder string) ([]string, error)
	open(name string) (io.ReadCloser, error)
	// sum is the SHA-256 of a file's bytes, in hexadecimal digits.
	sum(name string) (string, error)
	write(name string, data []byte) error
	// share gives a file a second name, or replaces what has that name.
	share(from, to string) error
}

// planPlace is the place of a folder's path.
func (a *app) planPlace(folder string) planPlace {
	if store.Is(folder) {
		return &bucketPlace{folder: folder, outputs: a.outputs, sums: map[store.Info]string{}}
	}
	return &localPlace{folder, a.outputs}
}

// localPlace is a folder of this machine.
type localPlace struct {
	folder  string
	outputs *outputs
}

func (p *localPlace) path(name string) string { return filepath.Join(p.folder, name) }

func (p *localPlace) demand() error {
	if err := os.MkdirAll(p.path(recordsFolder), 0o777); err != nil {
		return &environment{fmt.Errorf("%s: cannot make the folder for plans: %w", p.folder, cause(err))}
	}
	for _, dir := range []string{p.folder, p.path(recordsFolder)} {
		if err := probeFolder(dir); err != nil {
			return cannotWrite(dir, err)
		}
	}
	return nil
}

func (p *localPlace) list(folder string) ([]string, error) {
	entries, err := os.ReadDir(p.path(folder))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cannot read: %w", p.path(folder), cause(err))
	}
	var names []string
	for _, e := range entries { // by name
		names = append(names, e.Name())
	}
	return names, nil
}

func (p *localPlace) open(name string) (io.ReadCloser, error) { return os.Open(p.path(name)) }

func (p *localPlace) sum(name string) (string, error) { return sumOfFile(p, name) }

func (p *localPlace) write(name string, data []byte) error {
	return p.outputs.writeBytes(p.path(name), data)
}

func (p *localPlace) share(from, to string) error {
	return p.outputs.share(p.path(from), p.path(to))
}

// bucketPlace is what has a common beginning in a bucket.
type bucketPlace struct {
	folder  string
	outputs *outputs
	mu      sync.Mutex
	sums    map[store.Info]string // of versions that were read
}

func (p *bucketPlace) path(name string) string { return store.Join(p.folder, name) }

func (p *bucketPlace) remote() *remote { return &p.outputs.remote }

func (p *bucketPlace) demand() error {
	for _, name := range []string{"plan.bin", recordsFolder + "/plan.bin"} {
		if err := p.remote().store.Demand(p.remote().ctx, p.path(name)); err != nil {
			return err
		}
	}
	return nil
}

func (p *bucketPlace) list(folder string) ([]string, error) {
	names, err := p.remote().list(p.path(folder))
	for i, object := range names {
		names[i] = object[strings.LastIndexByte(object, '/')+1:]
	}
	return names, err
}

func (p *bucketPlace) open(name string) (io.ReadCloser, error) {
	return p.remote().store.Open(p.remote().ctx, p.path(name))
}

// leastVersion is the length from which on a version is taken to depend on the content, in
// characters: that of an MD5, which it mostly is. What is shorter may be a number that each
// object counts by itself.
const leastVersion = 32

// sum reads objects of one size and version only once, whatever their names. So plans that many
// ranks share come over the network once.
func (p *bucketPlace) sum(name string) (string, error) {
	info, err := p.remote().store.Stat(p.remote().ctx, p.path(name))
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	sum, known := p.sums[info]
	p.mu.Unlock()
	if known {
		return sum, nil
	}
	sum, err = sumOfFile(p, name)
	if err == nil && len(info.Version) >= leastVersion {
		p.mu.Lock()
		p.sums[info] = sum
		p.mu.Unlock()
	}
	return sum, err
}

func (p *bucketPlace) write(name string, data []byte) error {
	if err := p.remote().notInput(p.path(name)); err != nil {
		return err
	}
	return p.outputs.writeBytes(p.path(name), data)
}

func (p *bucketPlace) share(from, to string) error {
	if err := p.remote().notInput(p.path(to)); err != nil {
		return err
	}
	return p.outputs.send(p.path(to), func() error {
		if err := p.remote().store.Copy(p.remote().ctx, p.path(from), p.path(to)); err != nil {
			return &environment{err}
		}
		return nil
	})
}

func sumOfFile(p planPlace, name string) (string, error) {
	r, err := p.open(name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// readBounded reads a file of at most most bytes.
func readBounded(p planPlace, name string, most int64) ([]byte, error) {
	r, err := p.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s: expected at most %d B", name, most)
	}
	return data, err
}

// list lists the objects of a folder, with or without the slash at its end.
func (r *remote) list(folder string) ([]string, error) {
	return r.store.List(r.ctx, strings.TrimSuffix(folder, "/")+"/")
}
