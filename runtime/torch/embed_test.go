package torch

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// What the binary carries is the whole package, and what Install returns holds
// the module that Python looks for.
func TestInstallWritesThePackage(t *testing.T) {
	dir := t.TempDir()
	bootstrap, err := Install(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(bootstrap, "sitecustomize.py")); err != nil {
		t.Error(err)
	}
	modules := 0
	err = filepath.WalkDir("src", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".py" {
			return err
		}
		modules++
		rel, err := filepath.Rel("src", path)
		if err != nil {
			return err
		}
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if got, err := os.ReadFile(filepath.Join(dir, rel)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: installed %d bytes (error %v), want the %d of the source", rel, len(got), err, len(want))
		}
		return nil
	})
	if err != nil || modules == 0 {
		t.Errorf("%d modules under src, error %v", modules, err)
	}
}

func TestInstallReportsAFolderThatIsNone(t *testing.T) {
	if _, err := Install(filepath.Join("embed.go", "deeper")); err == nil {
		t.Error("installed below a file")
	}
}
