// Package torch embeds the Python package stplan and the sources of the C runtime
// in the stplan binary, so that a job needs nothing installed.
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

// Install writes the Python package into dir, an existing folder. It returns the
// folder that has to come first on PYTHONPATH: its sitecustomize module imports the
// rest. It fails if a file cannot be written.
func Install(dir string) (bootstrap string, err error) {
	src, err := fs.Sub(sources, "src")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, src); err != nil {
		return "", err
	}
	// In the repository csrc is a link to the runtime's folder, which is not embedded.
	if err := os.CopyFS(filepath.Join(dir, "stplan", "csrc"), cuda.Sources); err != nil {
		return "", err
	}
	return filepath.Join(dir, "stplan", "bootstrap"), nil
}
