package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

type recordFlags struct {
	output string
	steps  int
	stacks string
}

// stackModes are the values of --stacks, as the Python package knows them.
var stackModes = []string{"none", "python", "all"}

func (a *app) recordCommand() *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use:   "record [-o DIR] [--steps N] -- COMMAND [ARG...]",
		Short: "Run a training job and record its GPU memory",
		Long: `record runs a training job as it stands and writes one trace for each of its
processes that uses CUDA: DIR/NAME-rankR.pickle.gz, where NAME is the script's
name and R the rank, or DIR/NAME-pidP.pickle.gz if the process has no rank. An
older file of that name is replaced.

Recording begins before the first CUDA allocation. No line of the script
changes, also under torchrun and other launchers. After --steps iterations the
trace is written and recording stops; the job goes on. A job that ends or dies
earlier leaves what was recorded until then. If several optimizers step in turn,
the steps of the first one count.

record's own words go to standard error. Its exit code is the job's; if the job
succeeds and a trace is missing, it is 1. docs/recording.md says how this works
and what it cannot see.`,
		Example: `  stplan record -- python train.py
  stplan record -o traces --steps 6 -- torchrun --nproc-per-node 8 train.py
  stplan record --stacks all -- accelerate launch train.py --config c.yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(cmd, "expected a command to run, found none")
			}
			if err := demandValues(cmd, "output"); err != nil {
				return err
			}
			if f.steps < 0 {
				return fmt.Errorf("--steps: expected at least 0, found %d", f.steps)
			}
			if !slices.Contains(stackModes, f.stacks) {
				return fmt.Errorf("--stacks: expected one of %s, found %q", strings.Join(stackModes, ", "), f.stacks)
			}
			return a.runRecord(args, f)
		},
	}
	cmd.Flags().StringVarP(&f.output, "output", "o", "traces", "folder for the traces; made if it does not exist")
	cmd.Flags().IntVar(&f.steps, "steps", 4, "iterations to record; 0 records until the job ends")
	cmd.Flags().StringVar(&f.stacks, "stacks", "python", "call stacks to keep: none, python, or all (with C++, which makes traces many times larger)")
	// Flags behind the command's name are the command's.
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// recordSettings is what the Python package reads from the environment.
type recordSettings struct {
	Directory string `json:"directory"`
	Reports   string `json:"reports"`
	Steps     int    `json:"steps"`
	Stacks    string `json:"stacks"`
	Quiet     bool   `json:"quiet"`
}

// recordVariable holds recordSettings in the environment of the job.
const recordVariable = "STPLAN_RECORD"

func (a *app) runRecord(command []string, f recordFlags) error {
	if err := demandCommand(command); err != nil {
		return err
	}
	dir, err := outputFolder(f.output)
	if err != nil {
		return err
	}
	settings := func(reports string) any { return recordSettings{dir, reports, f.steps, f.stacks, a.quiet} }
	return a.launch(command, recordVariable, settings, func(reports string, code int) error {
		recorded, err := readReports[recordReport](reports)
		if err != nil {
			return err
		}
		return a.tellRecorded(recorded, dir, f.output, code)
	})
}

// outputFolder makes the folder if it does not exist, and demands that it can be
// written to. It returns the absolute path.
func outputFolder(path string) (string, error) {
	if err := demandLocal("-o", path); err != nil {
		return "", err
	}
	if err := os.MkdirAll(path, 0o777); err != nil {
		return "", fmt.Errorf("%s: expected a folder for the traces: %w", path, cause(err))
	}
	if err := demandWritable(path); err != nil {
		return "", err
	}
	return filepath.Abs(path)
}
