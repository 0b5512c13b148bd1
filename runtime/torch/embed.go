// Package torch embeds the Python package stplan and the sources of the C runtime
// in the stplan binary, and writes them to a folder of the user's, so that a job needs
// nothing installed.
package torch

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/stplan/stplan/runtime/cuda"
)

//go:embed src/stplan/*.py src/stplan/bootstrap/*.py src/stplan/shim
var sources embed.FS

// InstallForUser writes the Python package where InstallIn puts it, into the first folder
// of these that can be had: the user's cache, a folder below the temporary one that all
// processes of the user share, and a new temporary folder. None of them is removed: a
// process that outlives the job still has the folder on its PYTHONPATH, and a folder that
// is gone can be made again by any user. refused is set if the user's cache was left out
// because others could write there.
func InstallForUser() (bootstrap string, refused *Refused, err error) {
	if cache := UserCache(); cache != "" {
		repair(cache)
		bootstrap, err := installInPrivate(cache)
		if err == nil {
			return bootstrap, nil, nil
		}
		errors.As(err, &refused)
	}
	bootstrap, err = installInPrivate(filepath.Join(os.TempDir(), fmt.Sprintf("stplan-%d", os.Getuid())))
	if err == nil {
		return bootstrap, refused, nil
	}
	folder, err := os.MkdirTemp("", "stplan-")
	if err != nil {
		return "", refused, err
	}
	if bootstrap, err = InstallIn(folder); err != nil {
		_ = os.RemoveAll(folder)
		return "", refused, err
	}
	return bootstrap, refused, nil
}

func installInPrivate(folder string) (bootstrap string, err error) {
	if err := makePrivate(folder); err != nil {
		return "", err
	}
	return InstallIn(folder)
}

// InstallIn writes the Python package into a folder of the existing folder cache. It
// returns the folder that has to come first on PYTHONPATH: its sitecustomize module
// imports the rest. The name of the folder is made from the files' contents, so versions
// of stplan lie side by side, and jobs that start at the same time write the same. A file
// that is there already is not touched. It fails if a file cannot be written, or if
// others could have.
func InstallIn(cache string) (bootstrap string, err error) {
	all, err := files()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "python-"+key(all))
	for _, f := range all {
		if err := f.place(folder); err != nil {
			return "", err
		}
	}
	return filepath.Join(folder, "stplan", "bootstrap"), nil
}

// file is a file of the package. name is its path in it.
type file struct {
	name    string
	content []byte
}

// files lists the package's files, in the order of their names. In the repository csrc is
// a link to the runtime's folder, which is not embedded.
func files() ([]file, error) {
	var all []file
	for folder, tree := range map[string]fs.FS{".": sources, "src/stplan/csrc": cuda.Sources} {
		err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := fs.ReadFile(tree, path)
			name, _ := filepath.Rel("src", filepath.Join(folder, path))
			all = append(all, file{name, content})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b file) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	return all, nil
}

// key stands for the names and contents of files.
func key(all []file) string {
	hash := sha256.New()
	for _, f := range all {
		fmt.Fprintf(hash, "%s %d\n", filepath.ToSlash(f.name), len(f.content))
		hash.Write(f.content)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

// place writes the file below folder, if it is not there. It gets its name when it is
// complete, since another job may read it meanwhile.
func (f file) place(folder string) error {
	path := filepath.Join(folder, f.name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := demandPrivate(filepath.Dir(path)); err != nil {
		return err
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, f.content) {
		return nil
	}
	draft, err := os.CreateTemp(filepath.Dir(path), ".draft-")
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name())
	_, err = draft.Write(f.content)
	if closing := draft.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	return os.Rename(draft.Name(), path)
}
