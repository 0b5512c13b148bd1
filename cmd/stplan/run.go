package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

type runFlags struct {
	noPlan  bool
	memory  string
	move    string
	summary string
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

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run PLAN.bin -- COMMAND [ARG...] | run --no-plan -- COMMAND [ARG...]",
		Short: "Run a training job with its GPU memory served by a plan",
		Long: `run runs a training job whose GPU memory comes from stplan: at the addresses of
the plan, and for what the plan does not foresee from the pool, best fit in the
free memory. No line of the script changes, also under torchrun and other
launchers. In each process the allocator is put in place right before CUDA is
initialised. It is compiled once for the installed PyTorch and kept. If that is
not possible in a process, PyTorch's own allocator serves it, and a line says
so.

PLAN.bin serves every process. A folder of plans NAME-rankR.bin, as "compile
TRACE... -o FOLDER" writes them, gives each process the plan of its rank: RANK,
or torch.distributed's, or LOCAL_RANK. If the folder has the plans of several
jobs, FOLDER/NAME chooses one. A process without a plan of its own is served
from the pool alone, and so is every process with --no-plan.

After the job, run prints one table to standard error:

  on plan   the share of the allocated bytes served at the plan's addresses
  peak      the most bytes allocated, and the most reserved
  recorded  what was reserved when the job was recorded
  drift     how often the job left the plan's sequence of allocations
  waits     how often one stream was made to wait for another

--summary writes it as JSON, with more figures (docs/json.md). The exit code is
the job's. docs/running.md says how this works.`,
		Example: `  stplan run plan.bin -- python train.py
  stplan run plans -- torchrun --nproc-per-node 8 train.py
  stplan run --no-plan -- accelerate launch train.py --config c.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			switch {
			case dash < 0:
				return usageError(cmd, `expected "--" before the command, found none`)
			case f.noPlan && dash > 0:
				return usageError(cmd, fmt.Sprintf("expected no plan with --no-plan, found %q", args[0]))
			case !f.noPlan && dash != 1:
				return usageError(cmd, fmt.Sprintf(`expected one PLAN.bin before "--", found %d arguments`, dash))
			case len(args) == dash:
				return usageError(cmd, "expected a command to run, found none")
			case !f.noPlan && args[0] == "":
				return usageError(cmd, "PLAN.bin is empty")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := demandValues(cmd, "summary"); err != nil {
				return err
			}
			if f.summary == "-" {
				return fmt.Errorf("--summary: expected a file, found -: standard output is the job's")
			}
			if !slices.Contains(memoryKinds, f.memory) {
				return fmt.Errorf("--memory: expected one of %s, found %q", strings.Join(memoryKinds, ", "), f.memory)
			}
			if err := demandMove(f.move); err != nil {
				return err
			}
			dash := cmd.ArgsLenAtDash()
			return a.runServed(args[:dash], args[dash:], f)
		},
	}
	cmd.Flags().BoolVar(&f.noPlan, "no-plan", false, "serve every process from the pool alone")
	cmd.Flags().StringVar(&f.memory, "memory", "auto", `where device memory comes from: "plain" (cudaMalloc), "virtual" (mapped; it grows in place), or "auto"`)
	cmd.Flags().StringVar(&f.move, "move", "auto", `whether idle memory moves to where it is needed: "auto" until something registers memory by its address, or "off"`)
	cmd.Flags().StringVar(&f.summary, "summary", "", "write the summary to this file as JSON")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &hinted{err, fmt.Sprintf(`flags of the command go behind "--"; %q lists those of run`, cmd.CommandPath()+" --help")}
	})
	return cmd
}

// runSettings is what the Python package reads from the environment. Plan is
// null without one; paths are absolute.
type runSettings struct {
	Plan    *string `json:"plan"`
	ByRank  bool    `json:"by_rank"`
	Memory  string  `json:"memory"`
	Move    string  `json:"move"`
	Reports string  `json:"reports"`
}

// runVariable holds runSettings in the environment of the job.
const runVariable = "STPLAN_RUN"

// runServed runs the command with the plan, if there is one. What can be refused
// is refused before the job starts.
func (a *app) runServed(plan, command []string, f runFlags) error {
	plans := &jobPlans{}
	s := runSettings{Memory: f.memory, Move: f.move}
	if len(plan) > 0 {
		var err error
		if plans, err = a.readJobPlans(plan[0]); err != nil {
			return err
		}
		s.Plan, s.ByRank = &plans.path, plans.byRank
	}
	if f.summary != "" {
		if info, err := os.Stat(f.summary); err == nil && a.outputs.isInput(info) {
			return fmt.Errorf("--summary: %s is a plan of this run", f.summary)
		}
		if err := demandWritable(filepath.Dir(f.summary)); err != nil {
			return err
		}
	}
	settings := func(reports string) any {
		s.Reports = reports
		return s
	}
	return a.launch(command, runVariable, settings, func(reports string, code int) error {
		return a.tellServed(reports, plans, f.summary, code)
	})
}
