//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// stopSignal ends a compile that is not needed any more: it removes what it has written.
var stopSignal os.Signal = syscall.SIGTERM

// apart puts a command into a process group of its own, so that Ctrl-C is the job's.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// yieldProcessor gives the group of a process the lowest priority. By the group, all its
// threads get it.
func yieldProcessor(group int) {
	const lowest = 19
	// If it is refused, the compile has the priority of the launcher.
	_ = syscall.Setpriority(syscall.PRIO_PGRP, group, lowest)
}
