package main

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/runtime/cuda"
)

// Exit codes, documented in the README and in `stplan --help`.
const (
	exitOK          = 0
	exitNo          = 1   // the answer is no
	exitBadInput    = 2   // bad usage or bad input
	exitBug         = 3   // stplan is wrong, not its input
	exitInterrupted = 130 // 128 + SIGINT, the shell's convention
	exitTerminated  = 143 // 128 + SIGTERM
)

// producer is what plans name as their maker.
var producer = "stplan " + cuda.Version

// app is what every command shares.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	quiet          bool
	outputs        *outputs // of the whole command, also of what works beside it
	// subject is the file that is worked on, one of subjectOf, for progress.
	subject   string
	subjectOf int
	// jobOwnsSignals is set while record or run runs a job. Signals are for the job
	// then, and stplan ends when the job has ended.
	jobOwnsSignals atomic.Bool
	// resumes is set while several recordings are compiled: what is done is not done again.
	resumes atomic.Bool
}

// exactArgs demands these arguments and says which are missing.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return usageError(cmd, fmt.Sprintf("expected %s, found %d arguments", strings.Join(names, " and "), len(args)))
	}
}

func usageError(cmd *cobra.Command, problem string) error {
	return &hinted{fmt.Errorf("%s: %s", cmd.Name(), problem), "usage: " + cmd.UseLine()}
}

// demandValues refuses flags that were given an empty value.
func demandValues(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return usageError(cmd, "--"+name+" is empty")
		}
	}
	return nil
}

// print prints a result on standard output, as JSON or for people.
func (a *app) print(result interface{ Write(w io.Writer) error }, asJSON bool) error {
	if asJSON {
		return report.WriteJSON(a.stdout, result)
	}
	return result.Write(a.stdout)
}

// note tells the reader something that is not a result.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.stderr, "note: %s\n", report.Printable(fmt.Sprintf(format, args...)))
	}
}
