//go:build unix

package main

import (
	"io/fs"
	"sync"
	"syscall"
)

// umask reads the process's file mode mask. The system offers no call that
// only reads it, so it is set and put back once.
var umask = sync.OnceValue(func() fs.FileMode {
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	return fs.FileMode(mask)
})
