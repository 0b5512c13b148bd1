package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stplan/stplan/internal/store"
)

// inputs are the files that arguments name, in their order. A file of a folder or a pattern
// is there once, whatever else names it.
type inputs struct {
	paths []string
	// many says that the answer is about a set, although it may have one element: there are
	// several arguments, or one is a folder or a pattern.
	many bool
	// failed are arguments that name no file.
	failed []failure
}

// inputKind is what a folder or a pattern is searched for.
type inputKind struct {
	name  string // "recordings"
	names string // what their names end with, for messages
	is    func(name string) bool
}

var (
	// What export writes beside a recording is none, although the name ends like one's.
	recordingInputs = inputKind{"recordings", ".pickle, .pkl, .parquet or .history",
		func(name string) bool { return outputName(name, "") != name && !isExported(name) }}
	planInputs = inputKind{"plans", ".bin", func(name string) bool { return filepath.Ext(name) == ".bin" }}
)

// findInputs is the one place that finds out which files arguments mean: a file or an object, a
// folder of either kind, which stands for the files of that kind in it, or a pattern of
// path/filepath.Match, for shells that were kept from expanding it. A folder's files, and a
// pattern's, come in the order of their names. A file that is missing is for who reads it to
// report.
func (a *app) findInputs(args []string, kind inputKind) inputs {
	in := inputs{many: len(args) > 1}
	seen := map[string]bool{} // by path: named by a folder or a pattern
	for _, arg := range args {
		found, set, err := a.expand(arg, kind)
		in.many = in.many || set
		if err != nil {
			in.failed = append(in.failed, failure{inputName(arg), err})
		}
		for _, path := range found {
			clean := cleanPath(path)
			inSet, named := seen[clean]
			if named && (set || inSet) {
				continue
			}
			seen[clean] = set
			in.paths = append(in.paths, path)
		}
	}
	return in
}

// cleanPath is filepath.Clean. An object's key is taken as it stands.
func cleanPath(path string) string {
	if store.Is(path) {
		return path
	}
	return filepath.Clean(path)
}

// expand is what one argument means. set says that it is a folder or a pattern.
func (a *app) expand(arg string, kind inputKind) (paths []string, set bool, err error) {
	switch {
	case arg == "-":
		return []string{arg}, false, nil
	case store.IsFolder(arg):
		return a.listObjects(arg, kind)
	case store.IsBucket(arg) && isPattern(path.Base(arg)):
		return a.matchObjects(arg)
	case store.Is(arg):
		return []string{arg}, false, nil
	}
	info, err := os.Stat(arg)
	switch {
	case err == nil && info.IsDir():
		return listFolder(arg, kind)
	case errors.Is(err, fs.ErrNotExist) && isPattern(arg):
		return match(arg)
	}
	return []string{arg}, false, nil
}

func isPattern(path string) bool { return strings.ContainsAny(path, "*?[") }

func listFolder(folder string, kind inputKind) ([]string, bool, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, true, fmt.Errorf("%s: cannot read: %w", folder, cause(err))
	}
	var paths []string
	for _, e := range entries { // by name
		if !e.IsDir() && kind.has(e.Name()) {
			paths = append(paths, filepath.Join(folder, e.Name()))
		}
	}
	return paths, true, kind.found(folder, paths)
}

func (a *app) listObjects(folder string, kind inputKind) ([]string, bool, error) {
	paths, err := a.outputs.remote.list(folder)
	if err != nil {
		return nil, true, err
	}
	paths = slices.DeleteFunc(paths, func(object string) bool { return !kind.has(path.Base(object)) })
	return paths, true, kind.found(folder, paths)
}

// has says whether a folder stands for a file of that name.
func (k inputKind) has(name string) bool { return k.is(name) && !strings.HasPrefix(name, ".") }

// found is the error if a folder has no file of the kind.
func (k inputKind) found(folder string, paths []string) error {
	if len(paths) == 0 {
		return fmt.Errorf("%s: no %s in this folder: expected files whose names end in %s", folder, k.name, k.names)
	}
	return nil
}

func match(pattern string) ([]string, bool, error) {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil, true, fmt.Errorf("%s: no pattern: %w", pattern, err)
	}
	found = slices.DeleteFunc(found, func(path string) bool {
		return isDir(path) || hiddenFrom(filepath.Base(pattern), filepath.Base(path))
	})
	return found, true, matched(pattern, found)
}

// matchObjects finds the objects whose names match the last element of a pattern; what is before
// it is taken as it stands. An object of the pattern's own name is no pattern.
func (a *app) matchObjects(pattern string) ([]string, bool, error) {
	last := path.Base(pattern)
	if _, err := path.Match(last, ""); err != nil {
		return nil, true, fmt.Errorf("%s: no pattern: %w", pattern, err)
	}
	found, err := a.outputs.remote.list(strings.TrimSuffix(pattern, last))
	if err != nil {
		return nil, true, err
	}
	if slices.Contains(found, pattern) {
		return []string{pattern}, false, nil
	}
	found = slices.DeleteFunc(found, func(object string) bool {
		matches, err := path.Match(last, path.Base(object))
		return err != nil || !matches || hiddenFrom(last, path.Base(object))
	})
	return found, true, matched(pattern, found)
}

// hiddenFrom says that a name begins with a dot and the pattern does not.
func hiddenFrom(pattern, name string) bool {
	return strings.HasPrefix(name, ".") && !strings.HasPrefix(pattern, ".")
}

func matched(pattern string, found []string) error {
	if len(found) == 0 {
		return fmt.Errorf("%s: no file has such a name", pattern)
	}
	return nil
}

// none is the error if the arguments name no file at all, nil otherwise.
func (in *inputs) none() error {
	if len(in.paths) > 0 {
		return nil
	}
	var all []error
	for _, f := range in.failed {
		all = append(all, f.err)
	}
	return errors.Join(all...)
}

// oneRecording is the only recording that an argument means, for what draws, serves or
// writes one.
func (a *app) oneRecording(arg string) (string, error) {
	in := a.findInputs([]string{arg}, recordingInputs)
	if err := in.none(); err != nil {
		return "", err
	}
	if len(in.paths) > 1 {
		return "", &hinted{fmt.Errorf("%s: expected one recording, found %d", arg, len(in.paths)), fmt.Sprintf("name one of them, such as %s", in.paths[0])}
	}
	return in.paths[0], nil
}
