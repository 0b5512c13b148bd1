package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/stplan/stplan/internal/store"
)

// inputName is what messages call an input.
func inputName(path string) string {
	switch {
	case path == "-":
		return "standard input"
	case store.Is(path):
		return store.Name(path)
	}
	return path
}

// recordingSuffixes are what a recording's name may end with, compression last.
var recordingSuffixes = [][]string{
	{".gz", ".zst"},
	{".pickle", ".pkl", ".parquet", ".history"},
}

// What the names of exported files end with (export).
const (
	profileSuffix   = ".pb.gz"
	perfettoSuffix  = ".perfetto.json"
	lifetimesSuffix = ".lifetimes.parquet"
)

// isExported says whether a file has the name of an export, which may end like a recording's.
func isExported(name string) bool {
	return strings.HasSuffix(name, profileSuffix) || strings.HasSuffix(name, perfettoSuffix) || strings.HasSuffix(name, lifetimesSuffix)
}

// outputName replaces a recording's suffixes: run.pickle.gz with ".bin" is
// run.bin, in the same folder. A name that is nothing but a suffix stays.
func outputName(path, suffix string) string {
	path = inputName(path)
	for _, group := range recordingSuffixes {
		for _, s := range group {
			stem := len(path) - len(s)
			if stem > 0 && strings.EqualFold(path[stem:], s) && !os.IsPathSeparator(path[stem-1]) {
				path = path[:stem]
				break
			}
		}
	}
	return path + suffix
}

// oneStdin refuses to read two inputs from standard input.
func oneStdin(path, other, name, otherName string) error {
	if path == "-" && other == "-" {
		return fmt.Errorf("only one of %s and %s can be standard input", name, otherName)
	}
	return nil
}

func isDir(path string) bool {
	if store.Is(path) {
		return store.IsFolder(path)
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// shellQuote makes s one word of a POSIX shell.
func shellQuote(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
