package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stplan/stplan/internal/report"
)

// recordReport is what one process of a recorded job says of itself: the
// Python package writes it, first when recording begins.
type recordReport struct {
	State       string `json:"state"`
	PID         int    `json:"pid"`
	Trace       string `json:"trace"`
	Temporary   string `json:"temporary"`
	Steps       int    `json:"steps"`
	Allocations int    `json:"allocations"`
	Bytes       int64  `json:"bytes"`
	Why         string `json:"why"`
	Error       string `json:"error"`
}

// States of a recordReport. In the first two the process was killed meanwhile.
const (
	stateRecording = "recording"
	stateWriting   = "writing"
	stateWritten   = "written"
	stateEmpty     = "empty"
	stateFailed    = "failed"
)

// tellRecorded lists the traces and what went wrong, and says what to do next.
// The result is the job's exit code, or a negative if a trace is missing.
func (a *app) tellRecorded(all []recordReport, dir, output string, code int) error {
	var traces, problems []string
	for _, r := range all {
		switch r.State {
		case stateWritten:
			path := filepath.Join(output, r.Trace)
			traces = append(traces, path)
			fmt.Fprintf(a.stderr, "%s: %s, %s, %s%s\n", report.Printable(path), counted(r.Steps, "step"),
				counted(r.Allocations, "allocation"), report.Bytes(r.Bytes), report.Printable(early(r)))
		case stateEmpty:
			a.note("process %d (%s) allocated nothing on a GPU and has no trace", r.PID, traceStem(r))
		default:
			os.Remove(filepath.Join(dir, r.Temporary))
			problems = append(problems, fmt.Sprintf("process %d (%s): %s", r.PID, traceStem(r), r.problem()))
		}
	}
	for _, p := range problems {
		fmt.Fprintf(a.stderr, "stplan: %s\n", report.Printable(p))
	}
	if len(traces) > 0 && !a.quiet {
		fmt.Fprintf(a.stderr, "next: %s\n", report.Printable(nextCommand(traces)))
	}
	switch {
	case code != 0:
		return &jobExit{code}
	case len(problems) > 0:
		return &negative{fmt.Sprintf("%d of %d processes have no trace", len(problems), len(all))}
	case len(traces) == 0:
		return &hinted{&negative{"the job ended and no process of it used CUDA through PyTorch"},
			"Python options -I, -E and -S keep the recorder out; docs/recording.md has the rest"}
	}
	return nil
}

func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return report.Count(n) + " " + noun
}

func early(r recordReport) string {
	if r.Why == "" {
		return ""
	}
	return " (stopped before the last step: " + r.Why + ")"
}

// problem says why there is no trace.
func (r recordReport) problem() string {
	switch r.State {
	case stateFailed:
		return r.Error
	case stateWriting:
		return "ended while it wrote its trace: killed, or crashed"
	case stateRecording:
		return "ended without its trace: killed, or crashed in native code"
	}
	return fmt.Sprintf("reported %q, which is not a state", r.State)
}

func traceStem(r recordReport) string { return strings.TrimSuffix(r.Trace, ".pickle.gz") }

// nextCommand compiles the traces: one plan beside the only one, a folder of
// plans for several.
func nextCommand(traces []string) string {
	quoted := make([]string, len(traces))
	for i, t := range traces {
		quoted[i] = shellQuote(t)
	}
	if len(traces) == 1 {
		return "stplan compile " + quoted[0]
	}
	return "stplan compile " + strings.Join(quoted, " ") + " -o plans"
}
