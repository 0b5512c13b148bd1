//go:build unix

package main

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openToOthers says how others could write in a folder; empty if they cannot.
func openToOthers(info fs.FileInfo) string {
	status, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode().Perm(); {
	case !ok:
		return "has no owner that is known"
	case int(status.Uid) != os.Geteuid():
		return fmt.Sprintf("belongs to another user, %d", status.Uid)
	case mode&0o022 != 0:
		return fmt.Sprintf("can be written by other users (mode %04o)", mode)
	}
	return ""
}
