//go:build !unix

package main

import "os"

var jobSignals = []os.Signal{os.Interrupt}

// sentToJobToo: the console interrupts every process that is attached to it.
func sentToJobToo(os.Signal) bool { return true }

func exitCode(p *os.ProcessState) int { return p.ExitCode() }
