// Package torch carries the Python package stplan inside the stplan binary, so
// that a job needs nothing installed. It imports nothing of the project.
package torch

import (
	"embed"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed src/stplan/*.py src/stplan/bootstrap/*.py
var sources embed.FS

// Install writes the Python package into dir, an existing folder, and returns
// the folder that PYTHONPATH has to begin with: it holds a sitecustomize module
// that finds the rest.
func Install(dir string) (bootstrap string, err error) {
	src, err := fs.Sub(sources, "src")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, src); err != nil {
		return "", err
	}
	return filepath.Join(dir, "stplan", "bootstrap"), nil
}
