//go:build unix

package torch

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// maxLinks is how many links a path may lead through, as in the Linux kernel.
const maxLinks = 40

// unmapped is the user that the kernel shows, by default, as the owner of files whose
// owner has no number in the process's user namespace.
const unmapped = 65534

// demandPrivate fails if another user, root left out, could change what is in a folder or
// put another one in its place. It follows the path from the root, and looks at each folder
// and each link on the way. The error is a *Refused, or one of the file system's.
func demandPrivate(folder string) error {
	at, left := "/", strings.Split(filepath.Clean(folder), "/")
	for links := 0; ; {
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		for len(left) > 0 && (left[0] == "" || left[0] == ".") {
			left = left[1:]
		}
		if reason, advice := looseness(at, info, len(left) == 0); reason != "" {
			return &Refused{folder, at, reason, advice}
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return &fs.PathError{Op: "follow", Path: folder, Err: syscall.ELOOP}
			}
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			if at = filepath.Dir(at); filepath.IsAbs(target) {
				at = "/"
			}
			left = append(strings.Split(target, "/"), left...)
		case len(left) == 0:
			return nil
		case left[0] == "..":
			at, left = filepath.Dir(at), left[1:]
		default:
			at, left = filepath.Join(at, left[0]), left[1:]
		}
	}
}

// looseness says how a folder or a link on the way lets other users in, and what to do;
// empty if it does not. In a folder with the sticky bit nobody can rename or remove what
// is another user's, so such a folder may be on the way, but not be the last one.
func looseness(path string, info fs.FileInfo, last bool) (reason, advice string) {
	const own = "set XDG_CACHE_HOME to a folder of your own"
	status, ok := info.Sys().(*syscall.Stat_t)
	link := info.Mode()&fs.ModeSymlink != 0
	switch mode := info.Mode().Perm(); {
	case !ok:
		return "has no owner that is known", own
	case !trusted(status.Uid):
		return fmt.Sprintf("belongs to another user, %d", status.Uid), own
	case !link && !info.IsDir():
		return "is no folder", own
	case link || !last && info.Mode()&fs.ModeSticky != 0:
		return "", ""
	case mode&0o002 != 0 || mode&0o020 != 0 && !privateGroup(status):
		return fmt.Sprintf("can be written by other users (mode %04o)", mode), fmt.Sprintf("run chmod go-w '%s', or %s", path, own)
	}
	return "", ""
}

// trusted reports whether a user may own what code is loaded from: this one, or root. In a
// user namespace, as containers have, root may have no number, and is shown as unmapped.
func trusted(uid uint32) bool {
	return uid == 0 || int(uid) == os.Geteuid() || uid == unmapped && inNamespace()
}

// inNamespace reports whether some users have no number in this process's user namespace.
func inNamespace() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(text)), " ") != "0 0 4294967295"
}

// privateGroup reports whether a folder is this user's, and its group is the user's private
// group, as pam_umask tells it: the primary group, with the user's name.
func privateGroup(status *syscall.Stat_t) bool {
	u, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil || int(status.Uid) != os.Geteuid() || u.Gid != strconv.Itoa(int(status.Gid)) {
		return false
	}
	g, err := user.LookupGroupId(u.Gid)
	return err == nil && g.Name == u.Username
}

// repair takes write permission of a cache from others if the cache is this user's.
// Versions of stplan up to 0.1 made it with the mode that the umask allowed.
func repair(cache string) {
	info, err := os.Stat(cache)
	if err != nil {
		return
	}
	if status, ok := info.Sys().(*syscall.Stat_t); ok && int(status.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 != 0 {
		// If it fails, the cache is refused.
		_ = os.Chmod(cache, 0o700)
	}
}
