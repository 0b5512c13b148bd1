//go:build unix

package torch

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// below makes the folders of a path below a new temporary folder, each with its mode.
func below(t *testing.T, modes ...fs.FileMode) (path string) {
	t.Helper()
	path = t.TempDir()
	for _, mode := range modes {
		path = filepath.Join(path, "f")
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestAFolderThatOthersCanChangeIsRefused(t *testing.T) {
	const sticky = fs.ModeSticky | 0o777
	loose := below(t, 0o777)
	for _, c := range []struct {
		name, folder, place string // place is empty if the folder is not refused
	}{
		{"private", below(t, 0o700, 0o755), ""},
		{"missing", filepath.Join(below(t, 0o755), "missing"), "missing"},
		{"others write it", loose, loose},
		{"others write a parent", filepath.Join(loose, "f"), loose},
		{"below a sticky folder", below(t, sticky, 0o700), ""},
		{"a sticky folder itself", below(t, sticky), "f"},
		{"a file", write(t, below(t, 0o700), "file"), "file"},
		{"a link to a private folder", link(t, below(t, 0o700), below(t, 0o755)), ""},
		{"a link to a loose folder", link(t, below(t, 0o700), loose), loose},
		{"a link in a loose folder", link(t, below(t, 0o777), below(t, 0o700)), "f"},
		{"a relative link", link(t, below(t, 0o700, 0o755), "../.."), ""},
		{"a link to itself", link(t, below(t, 0o700), "link"), "loop"},
	} {
		err := demandPrivate(c.folder)
		var refused *Refused
		switch {
		case c.place == "":
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		case c.place == "missing":
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: error %v, want one of a missing file", c.name, err)
			}
		case c.place == "loop":
			if !errors.Is(err, syscall.ELOOP) {
				t.Errorf("%s: error %v, want one of too many links", c.name, err)
			}
		case !errors.As(err, &refused) || !strings.HasSuffix(refused.Place, c.place):
			t.Errorf("%s: error %v, want a refusal of %s", c.name, err, c.place)
		}
	}
}

func TestAFolderOfAnotherUserIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a folder to another user")
	}
	parent := below(t, 0o755)
	folder := filepath.Join(parent, "folder")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.Chown(parent, 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	var refused *Refused
	if err := demandPrivate(folder); !errors.As(err, &refused) || refused.Reason != "belongs to another user, 12345" {
		t.Errorf("error %v", err)
	}
	if err := makePrivate(filepath.Join(parent, "new")); !errors.As(err, &refused) {
		t.Errorf("error %v", err)
	}
	if entries, _ := os.ReadDir(parent); len(entries) != 1 {
		t.Errorf("a refused folder got %v", entries)
	}
}

func write(t *testing.T, folder, name string) (path string) {
	t.Helper()
	path = filepath.Join(folder, name)
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func link(t *testing.T, folder, target string) (path string) {
	t.Helper()
	path = filepath.Join(folder, "link")
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTheCacheStays: the package lies in the user's cache, which is made with mode 0700
// whatever the umask; if an earlier version made the cache too loose, that is mended.
func TestTheCacheStays(t *testing.T) {
	for _, mask := range []int{0, 0o002, 0o077} {
		for _, exists := range []bool{false, true} {
			root := below(t, 0o700)
			cache := filepath.Join(root, "xdg", "stplan")
			t.Setenv("XDG_CACHE_HOME", filepath.Dir(cache))
			t.Setenv("TMPDIR", below(t, 0o700))
			if exists {
				if err := errors.Join(os.MkdirAll(cache, 0o700), os.Chmod(cache, 0o775)); err != nil {
					t.Fatal(err)
				}
			}
			old := syscall.Umask(mask)
			bootstrap, refused, err := InstallForUser()
			syscall.Umask(old)
			if err != nil || refused != nil {
				t.Fatalf("umask %03o: refused %v, error %v", mask, refused, err)
			}
			if !strings.HasPrefix(bootstrap, cache+"/python-") {
				t.Errorf("umask %03o: installed in %s, want it in %s", mask, bootstrap, cache)
			}
			if info, err := os.Stat(cache); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("umask %03o: mode %v, error %v", mask, info.Mode(), err)
			}
			if entries, _ := os.ReadDir(os.Getenv("TMPDIR")); len(entries) != 0 {
				t.Errorf("umask %03o: left %v in the temporary folder", mask, entries)
			}
		}
	}
}

// TestARefusedCacheIsReplaced: a temporary folder serves then, and is private too.
func TestARefusedCacheIsReplaced(t *testing.T) {
	loose, temporary := below(t, 0o777), below(t, 0o700)
	t.Setenv("XDG_CACHE_HOME", loose)
	t.Setenv("TMPDIR", temporary)
	bootstrap, refused, err := InstallForUser()
	if err != nil || !strings.HasPrefix(bootstrap, temporary) {
		t.Fatalf("installed in %s, error %v", bootstrap, err)
	}
	if refused == nil || refused.Place != loose || !strings.HasPrefix(refused.Advice, "run chmod go-w '"+loose+"'") {
		t.Errorf("refused: %+v", refused)
	}
	if err := demandPrivate(bootstrap); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(loose); len(entries) != 0 {
		t.Errorf("the refused cache got %v", entries)
	}
	// The name of the temporary folder is known, so somebody else may have taken it.
	shared := filepath.Join(temporary, strings.SplitN(strings.TrimPrefix(bootstrap, temporary+"/"), "/", 2)[0])
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	again, _, err := InstallForUser()
	if err != nil || strings.HasPrefix(again, shared+"/") || !strings.HasPrefix(again, temporary) {
		t.Errorf("installed in %s, error %v", again, err)
	}
}

func TestTheCacheOfAUserWithoutAHome(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "relative")
	home := below(t, 0o700)
	for value, want := range map[string]string{home: filepath.Join(home, ".cache", "stplan"), "relative": "", "": ""} {
		t.Setenv("HOME", value)
		// Without a home there may still be one in the user database.
		if got := UserCache(); got != want && (want != "" || !filepath.IsAbs(got)) {
			t.Errorf("HOME=%q: the cache is %q, want %q", value, got, want)
		}
	}
}

// TestJobsInstallAtTheSameTime: all of them get a whole package, and no draft is left. A
// file that something has damaged is written again.
func TestJobsInstallAtTheSameTime(t *testing.T) {
	cache := below(t, 0o700)
	var jobs sync.WaitGroup
	for range 8 {
		jobs.Add(1)
		go func() {
			defer jobs.Done()
			bootstrap, err := InstallIn(cache)
			if err != nil {
				t.Error(err)
				return
			}
			demandWhole(t, bootstrap)
		}()
	}
	jobs.Wait()
	bootstrap, err := InstallIn(cache)
	if err != nil {
		t.Fatal(err)
	}
	write(t, bootstrap, "sitecustomize.py")
	if _, err := InstallIn(cache); err != nil {
		t.Fatal(err)
	}
	demandWhole(t, bootstrap)
}

// demandWhole compares an installed package with the files that are embedded.
func demandWhole(t *testing.T, bootstrap string) {
	t.Helper()
	all, err := files()
	if err != nil || len(all) == 0 {
		t.Fatalf("%d files, error %v", len(all), err)
	}
	for _, f := range all {
		got, err := os.ReadFile(filepath.Join(bootstrap, "..", "..", f.name))
		if err != nil || !bytes.Equal(got, f.content) {
			t.Errorf("%s: %d bytes, want %d; error %v", f.name, len(got), len(f.content), err)
		}
	}
}
