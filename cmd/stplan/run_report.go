package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/stplan/stplan/runtime/cuda"
)

// runReport is what one process of a served job says of itself: the Python
// package writes it, first when CUDA is about to be initialised. The counters of
// device N are in the file NAME.deviceN beside it.
type runReport struct {
	State   string   `json:"state"`
	PID     int      `json:"pid"`
	Name    string   `json:"name"`
	Plan    *string  `json:"plan"`
	Without string   `json:"without"` // why it has no plan although the job has some
	Cached  *string  `json:"cached"`  // the name of its own plan in the cache
	Similar bool     `json:"similar"` // Plan is that of a similar run
	Call    []string `json:"call"`    // how the program was called (callOf)
	Backend string   `json:"backend"`
	Error   string   `json:"error"`
}

// States of a runReport. In the first the process was killed meanwhile.
const (
	stateInstalling = "installing"
	stateServing    = "serving"
	stateNotServed  = "failed"
)

// backendPluggable is the Backend of a process without a compiler.
const backendPluggable = "pluggable"

// planStates are the states of the runtime, as --summary names them.
var planStates = map[cuda.State]string{
	cuda.NoPlan: "no plan", cuda.Prologue: "prologue", cuda.Body: "body", cuda.Ended: "ended", cuda.Off: "off", cuda.Declined: "declined",
}

// planState is a state's name; a runtime may have one that is newer than this.
func planState(s cuda.State) string {
	if name, ok := planStates[s]; ok {
		return name
	}
	return fmt.Sprintf("state %d", int(s))
}

// readCounters reads what a device of a process has counted.
func readCounters(file string) (cuda.Counters, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return cuda.Counters{}, fmt.Errorf("%s: %w", filepath.Base(file), cause(err))
	}
	c, err := cuda.ReadCounters(data)
	if err != nil {
		return cuda.Counters{}, fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	return c, nil
}

// byRankThenName puts rank 10 behind rank 9.
func byRankThenName(x, y string) int {
	return cmp.Or(cmp.Compare(rankOf(x), rankOf(y)), cmp.Compare(x, y))
}

func rankOf(name string) int {
	m := rankInName.FindStringSubmatch(name)
	if m == nil {
		return -1
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return -1 // More digits than a rank has.
	}
	return n
}

var rankInName = regexp.MustCompile(`-rank([0-9]+)`)
