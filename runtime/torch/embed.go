// Package torch carries the Python package stplan inside the stplan binary, with
// the C runtime's sources, so that a job needs nothing installed.
package torch

import (
	"embed"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/stplan/stplan/runtime/cuda"
)

//go:embed src/stplan/*.py src/stplan/bootstrap/*.py src/stplan/shim
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
	// In the repository this is a link to the runtime's folder.
	if err := os.CopyFS(filepath.Join(dir, "stplan", "csrc"), cuda.Sources); err != nil {
		return "", err
	}
	return filepath.Join(dir, "stplan", "bootstrap"), nil
}
