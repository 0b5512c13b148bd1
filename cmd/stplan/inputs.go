package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stplan/stplan/internal/report"
)

// inputs are the files that arguments name, in their order. A file of a folder or a pattern
// is there once, whatever else names it.
type inputs struct {
	paths []string
	// many says that the answer is about a set, although it may have one element: there are
	// several arguments, or one is a folder or a pattern.
	many bool
	// failed are arguments that name no file.
	failed []report.FailedTrace
}

// inputKind is what a folder or a pattern is searched for.
type inputKind struct {
	name  string // "recordings"
	names string // what their names end with, for messages
	is    func(name string) bool
}

var (
	recordingInputs = inputKind{"recordings", ".pickle, .pkl, .parquet or .history",
		func(name string) bool { return outputName(name, "") != name }}
	planInputs = inputKind{"plans", ".bin", func(name string) bool { return filepath.Ext(name) == ".bin" }}
)

// findInputs is the one place that finds out which files arguments mean: a file, a folder,
// which stands for the files of that kind in it, or a pattern of path/filepath.Match, for
// shells that were kept from expanding it. A folder's files, and a pattern's, come in the
// order of their names. A file that is missing is for who reads it to report.
func findInputs(args []string, kind inputKind) inputs {
	in := inputs{many: len(args) > 1}
	seen := map[string]bool{} // by path: named by a folder or a pattern
	for _, arg := range args {
		found, set, err := expand(arg, kind)
		in.many = in.many || set
		if err != nil {
			in.failed = append(in.failed, report.FailedTrace{Trace: arg, Error: err.Error()})
		}
		for _, path := range found {
			clean := filepath.Clean(path)
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

// expand is what one argument means. set says that it is a folder or a pattern.
func expand(arg string, kind inputKind) (paths []string, set bool, err error) {
	if arg == "-" {
		return []string{arg}, false, nil
	}
	info, err := os.Stat(arg)
	switch {
	case err == nil && info.IsDir():
		return listFolder(arg, kind)
	case errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(arg, "*?["):
		return match(arg)
	}
	return []string{arg}, false, nil
}

func listFolder(folder string, kind inputKind) ([]string, bool, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, true, fmt.Errorf("%s: cannot read: %w", folder, cause(err))
	}
	var paths []string
	for _, e := range entries { // by name
		if name := e.Name(); !e.IsDir() && kind.is(name) && !strings.HasPrefix(name, ".") {
			paths = append(paths, filepath.Join(folder, name))
		}
	}
	if len(paths) == 0 {
		return nil, true, fmt.Errorf("%s: no %s in this folder: expected files whose names end in %s", folder, kind.name, kind.names)
	}
	return paths, true, nil
}

func match(pattern string) ([]string, bool, error) {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil, true, fmt.Errorf("%s: no pattern: %w", pattern, err)
	}
	hidden := strings.HasPrefix(filepath.Base(pattern), ".")
	found = slices.DeleteFunc(found, func(path string) bool {
		return isDir(path) || !hidden && strings.HasPrefix(filepath.Base(path), ".")
	})
	if len(found) == 0 {
		return nil, true, fmt.Errorf("%s: no file has such a name", pattern)
	}
	return found, true, nil
}

// none is the error if the arguments name no file at all, nil otherwise.
func (in *inputs) none() error {
	if len(in.paths) > 0 {
		return nil
	}
	var all []error
	for _, f := range in.failed {
		all = append(all, errors.New(f.Error))
	}
	return errors.Join(all...)
}

// oneRecording is the only recording that an argument means, for what draws, serves or
// writes one.
func oneRecording(arg string) (string, error) {
	in := findInputs([]string{arg}, recordingInputs)
	if err := in.none(); err != nil {
		return "", err
	}
	if len(in.paths) > 1 {
		return "", &hinted{fmt.Errorf("%s: expected one recording, found %d", arg, len(in.paths)), fmt.Sprintf("name one of them, such as %s", in.paths[0])}
	}
	return in.paths[0], nil
}
