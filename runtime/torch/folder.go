package torch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// The rules of this file and of trust_unix.go are those of src/stplan/_folders.py: the
// launcher and the processes of its job use the same folder.

// Refused says why code is not loaded from a folder: other users could write it.
type Refused struct {
	Folder string // the folder
	Place  string // itself, or a folder or link on the way to it
	Reason string // what is wrong with Place
	Advice string // what the user can do
}

func (r *Refused) Error() string {
	return fmt.Sprintf("%s: %s %s", r.Folder, r.Place, r.Reason)
}

// UserCache is the folder stplan of the user's cache, or empty if the user has no home.
func UserCache() string {
	// The XDG specification says that a relative path is to be ignored.
	if root := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(root) {
		return filepath.Join(root, "stplan")
	}
	homes := []string{os.Getenv("HOME")}
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		homes = append(homes, u.HomeDir)
	}
	for _, home := range homes {
		if info, err := os.Stat(home); err == nil && info.IsDir() && filepath.IsAbs(home) {
			return filepath.Join(home, ".cache", "stplan")
		}
	}
	return ""
}

// makePrivate makes a folder with mode 0700, and its parents, if it is missing. It fails if
// other users could change what is in it; then nothing is made.
func makePrivate(folder string) error {
	if err := demandPrivate(folder); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	return demandPrivate(folder)
}
