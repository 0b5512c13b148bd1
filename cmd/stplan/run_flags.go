package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

type runFlags struct {
	noPlan     bool
	memory     string
	move       string
	summary    string
	cache      string
	noLearn    bool
	learnLimit time.Duration
}

// memoryKinds are the values of --memory, as the Python package knows them.
var memoryKinds = []string{"auto", "plain", "virtual"}

// moveOff has memory stay where it is. moveKinds are the values of --move, likewise.
const moveOff = "off"

var moveKinds = []string{"auto", moveOff}

func demandMove(kind string) error {
	if !slices.Contains(moveKinds, kind) {
		return fmt.Errorf("--move: expected one of %s, found %q", strings.Join(moveKinds, ", "), kind)
	}
	return nil
}
