//go:build !unix

package main

import (
	"os"
	"os/exec"
)

var stopSignal os.Signal = os.Kill

func apart(*exec.Cmd) {}

func yieldProcessor(int) {}
