package torch

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestInstallWritesThePackage: InstallIn writes every source file of the package, and
// the folder that it returns holds sitecustomize.py.
func TestInstallWritesThePackage(t *testing.T) {
	bootstrap, err := InstallIn(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(bootstrap, "..", "..")
	if _, err := os.Stat(filepath.Join(bootstrap, "sitecustomize.py")); err != nil {
		t.Error(err)
	}
	files := 0
	err = filepath.WalkDir(filepath.Join("src", "stplan"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !slices.Contains([]string{".py", ".cpp", ".h"}, filepath.Ext(path)) {
			return err
		}
		files++
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
	if err != nil || files == 0 {
		t.Errorf("%d files under src, error %v", files, err)
	}
}

func TestInstallReportsAPathBelowAFile(t *testing.T) {
	if _, err := InstallIn(filepath.Join("embed.go", "deeper")); err == nil {
		t.Error("installed below a file")
	}
}

// TestInstallWritesSourcesThatCompile: the C sources that InstallIn writes are those of
// the runtime, and compile into the library that a process without the shim loads.
func TestInstallWritesSourcesThatCompile(t *testing.T) {
	dir := t.TempDir()
	bootstrap, err := InstallIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(bootstrap, "..", "csrc")
	demandSources(t, installed)
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("no C compiler %q", cc)
	}
	sources, err := filepath.Glob(filepath.Join(installed, "*.c"))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-std=c11", "-O1", "-fPIC", "-shared", "-fexceptions", "-Wall", "-Wextra", "-Werror", "-o", filepath.Join(dir, "lib.so")}
	if out, err := exec.Command(cc, append(append(args, sources...), "-lpthread", "-ldl")...).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", cc, err, out)
	}
}

// demandSources compares a folder with the runtime's C files, and with the files
// behind the package's link csrc in the repository.
func demandSources(t *testing.T, installed string) {
	t.Helper()
	entries, err := os.ReadDir(installed)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
		want, err := os.ReadFile(filepath.Join("src", "stplan", "csrc", e.Name()))
		if err != nil {
			t.Error(err)
			continue
		}
		if got, err := os.ReadFile(filepath.Join(installed, e.Name())); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: installed %d bytes (error %v), want the %d of the source", e.Name(), len(got), err, len(want))
		}
	}
	var want []string
	for _, pattern := range []string{"*.c", "*.h"} {
		matches, err := filepath.Glob(filepath.Join("..", "cuda", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range matches {
			want = append(want, filepath.Base(m))
		}
	}
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(found, want) {
		t.Errorf("installed %q, want %q", found, want)
	}
}
