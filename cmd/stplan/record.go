package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/runtime/torch"
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
name and R the rank, or DIR/NAME-pidP.pickle.gz where there is no rank. An older
file of that name is replaced.

Recording begins before the first CUDA allocation, with no line of the script
changed, also under torchrun and other launchers. After --steps iterations the
trace is written and recording stops; the job goes on. A job that ends or dies
earlier leaves what there is. Where several optimizers step in turn, the first
one's step counts.

record's own words go to standard error. Its exit code is the job's; where the
job succeeds and a trace is missing, it is 1. docs/recording.md says how this
works and what it cannot see.`,
		Example: `  stplan record -- python train.py
  stplan record -o traces --steps 6 -- torchrun --nproc-per-node 8 train.py
  stplan record --stacks python -- accelerate launch train.py --config c.yaml`,
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
	cmd.Flags().StringVarP(&f.output, "output", "o", "traces", "folder for the traces; made where there is none")
	cmd.Flags().IntVar(&f.steps, "steps", 4, "iterations to record; 0 records until the job ends")
	cmd.Flags().StringVar(&f.stacks, "stacks", "none", "call stacks to keep: none, python, or all (with C++); they make traces many times larger")
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
	dir, err := outputFolder(f.output)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "stplan-record-")
	if err != nil {
		return fmt.Errorf("cannot make a temporary folder: %w", cause(err))
	}
	defer os.RemoveAll(work)
	env, reports, err := recordEnvironment(work, dir, f, a.quiet)
	if err != nil {
		return err
	}
	code, err := a.runJob(command, env)
	if err != nil {
		return err
	}
	recorded, err := readReports(reports)
	if err != nil {
		return err
	}
	return a.tellRecorded(recorded, dir, f, code)
}

// outputFolder makes the folder where there is none and proves, before the job
// starts, that files can be written there. It returns the absolute path.
func outputFolder(path string) (string, error) {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return "", fmt.Errorf("%s: expected a folder for the traces: %w", path, cause(err))
	}
	probe, err := os.CreateTemp(path, ".stplan-record.*.tmp")
	if err != nil {
		return "", fmt.Errorf("%s: cannot write: %w", path, cause(err))
	}
	probe.Close()
	if err := os.Remove(probe.Name()); err != nil {
		return "", fmt.Errorf("%s: cannot remove a file: %w", path, cause(err))
	}
	return filepath.Abs(path)
}

// recordEnvironment installs the Python package in the folder work and returns
// the job's environment and the folder where its processes will report.
func recordEnvironment(work, dir string, f recordFlags, quiet bool) (env []string, reports string, err error) {
	python, reports := filepath.Join(work, "python"), filepath.Join(work, "reports")
	for _, d := range []string{python, reports} {
		if err := os.Mkdir(d, 0o777); err != nil {
			return nil, "", fmt.Errorf("%s: %w", d, cause(err))
		}
	}
	bootstrap, err := torch.Install(python)
	if err != nil {
		return nil, "", fmt.Errorf("%s: cannot install the recorder: %w", python, cause(err))
	}
	settings, err := json.Marshal(recordSettings{dir, reports, f.steps, f.stacks, quiet})
	if err != nil {
		return nil, "", err
	}
	path := bootstrap
	if old := os.Getenv("PYTHONPATH"); old != "" {
		path += string(os.PathListSeparator) + old
	}
	// Of a variable that stands there twice, the last value counts.
	return append(os.Environ(), "PYTHONPATH="+path, recordVariable+"="+string(settings)), reports, nil
}
