package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [PLAN.bin | --no-plan] -- COMMAND [ARG...]",
		Short: "Run a training job with its GPU memory served by a plan",
		Long: `run runs a training job whose GPU memory comes from stplan: at the addresses of
a plan, and for what the plan does not foresee from the pool of free memory. No
line of the script changes, also under torchrun and other launchers. In each
process the allocator is put in place right before CUDA is initialised. It is
compiled once for the installed PyTorch and kept. If that is not possible in a
process, PyTorch's own allocator serves it, and a line says so.

Without PLAN.bin the plan is looked up among those that earlier runs have left
in the cache, by script and arguments, rank, versions and device. If there is
none, that of the run serves that was called the most alike: a seed or a folder
for the output does not decide what is allocated. If there is none of these
either, the pool serves, and run learns a plan: after 4 optimizer steps, or when
it ends, each process writes what it has allocated, and "stplan compile" makes a
plan of that beside the job, at the lowest priority. The plan is put in place in
the same run, between two steps, if that pays, and kept for the next one. If the
job ends first, run waits for it for --learn-limit at most. A plan that later
steps go beyond is replaced in the same way. --no-learn learns nothing.

PLAN.bin serves every process. A folder of plans NAME-rankR.bin, as "compile
TRACE... -o FOLDER" writes them, gives each process the plan of its rank: RANK,
or torch.distributed's, or LOCAL_RANK. If the folder has the plans of several
jobs, FOLDER/NAME chooses one. s3://BUCKET/PLAN.bin, and s3://BUCKET/FOLDER/,
are copied to this machine until the job ends. A process without a plan of its
own is served from the pool alone, and so is every process with --no-plan.

After the job, run prints one table to standard error:

  on plan   the share of the allocated bytes served at the plan's addresses
  peak      the most bytes allocated, and the most reserved
  recorded  what was reserved when the job was recorded
  drift     how often the job left the plan's sequence of allocations
  waits     how often one stream was made to wait for another

--summary writes it as JSON, with more figures (docs/json.md). The exit code is
the job's. docs/running.md says how this works.`,
		Example: `  stplan run -- python train.py
  stplan run --cache /shared/plans -- torchrun --nproc-per-node 8 train.py
  stplan run plan.bin -- python train.py
  stplan run plans -- torchrun --nproc-per-node 8 train.py
  stplan run --no-plan -- accelerate launch train.py --config c.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			switch {
			case dash < 0:
				return usageError(cmd, `expected "--" before the command, found none`)
			case f.noPlan && dash > 0:
				return usageError(cmd, fmt.Sprintf("expected no plan with --no-plan, found %q", args[0]))
			case dash > 1:
				return usageError(cmd, fmt.Sprintf(`expected at most one PLAN.bin before "--", found %d arguments`, dash))
			case len(args) == dash:
				return usageError(cmd, "expected a command to run, found none")
			case dash == 1 && args[0] == "":
				return usageError(cmd, "PLAN.bin is empty")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := demandValues(cmd, "summary", "cache"); err != nil {
				return err
			}
			dash := cmd.ArgsLenAtDash()
			if dash > 0 || f.noPlan {
				if err := refuseFlags(cmd, "only for a run without PLAN.bin or --no-plan", "cache", "no-learn", "learn-limit"); err != nil {
					return err
				}
			}
			if f.learnLimit < 0 {
				return fmt.Errorf("--learn-limit: expected at least 0s, found %v", f.learnLimit)
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
			return a.runServed(cmd.Context(), args[:dash], args[dash:], f)
		},
	}
	cmd.Flags().BoolVar(&f.noPlan, "no-plan", false, "serve every process from the pool alone")
	cmd.Flags().StringVar(&f.memory, "memory", "auto", `where device memory comes from: "plain" (cudaMalloc), "virtual" (mapped; it grows in place), or "auto"`)
	cmd.Flags().StringVar(&f.move, "move", "auto", `whether idle memory moves to where it is needed: "auto" until something registers memory by its address, or "off"`)
	cmd.Flags().StringVar(&f.cache, "cache", "", "folder of learned plans, such as one that all nodes share (default: stplan/plans in $XDG_CACHE_HOME or ~/.cache)")
	cmd.Flags().BoolVar(&f.noLearn, "no-learn", false, "look a plan up, but learn none")
	cmd.Flags().DurationVar(&f.learnLimit, "learn-limit", time.Minute, "wait for a plan that is being learned at most this long after the job has ended")
	cmd.Flags().StringVar(&f.summary, "summary", "", "write the summary to this file as JSON")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &hinted{err, fmt.Sprintf(`flags of the command go behind "--"; %q lists those of run`, cmd.CommandPath()+" --help")}
	})
	return cmd
}

// refuseFlags refuses flags that were given and have no meaning.
func refuseFlags(cmd *cobra.Command, why string, flags ...string) error {
	for _, name := range flags {
		if cmd.Flags().Changed(name) {
			return usageError(cmd, "--"+name+": "+why)
		}
	}
	return nil
}

// runSettings is what the Python package reads from the environment. Plan is
// null without one, and Cache unless a plan is looked up; paths are absolute. Learn is
// the number of steps to learn from, 0 for nothing.
type runSettings struct {
	Plan    *string `json:"plan"`
	ByRank  bool    `json:"by_rank"`
	Memory  string  `json:"memory"`
	Move    string  `json:"move"`
	Reports string  `json:"reports"`

	Cache    *string `json:"cache"`
	Versions string  `json:"versions"`
	Learn    int     `json:"learn"`
}

// runVariable holds runSettings in the environment of the job.
const runVariable = "STPLAN_RUN"

// runServed runs the command with the plan, if there is one. What can be refused
// is refused before the job starts.
func (a *app) runServed(ctx context.Context, plan, command []string, f runFlags) error {
	if err := demandCommand(command); err != nil {
		return err
	}
	plans := &jobPlans{facts: map[string][]planFacts{}}
	s := runSettings{Memory: f.memory, Move: f.move}
	var learns *learner
	switch {
	case len(plan) > 0:
		var err error
		if plans, err = a.readJobPlans(plan[0]); err != nil {
			return err
		}
		defer plans.discard()
		s.Plan, s.ByRank = &plans.path, plans.byRank
	case !f.noPlan:
		if err := demandLocal("--cache", f.cache); err != nil {
			return err
		}
		cache, err := openPlanCache(f.cache)
		if err != nil && f.cache != "" {
			return err
		}
		if err != nil {
			// Nobody asked for this folder, so the job is not kept from running.
			fmt.Fprintf(a.stderr, "stplan: %v; no plan is looked up or learned\n", err)
			break
		}
		learns = a.newLearner(cache, f)
		s.Cache, s.Versions, s.Learn = &cache.folder, cacheVersions(), learns.steps()
	}
	if err := demandLocal("--summary", f.summary); err != nil {
		return err
	}
	if f.summary != "" {
		if info, err := os.Stat(f.summary); err == nil && a.outputs.isInput(info) {
			return fmt.Errorf("--summary: %s is a plan of this run", f.summary)
		}
		if err := demandWritable(filepath.Dir(f.summary)); err != nil {
			return err
		}
	}
	start := func(reports string) any {
		s.Reports = reports
		learns.begin(ctx, reports)
		return s
	}
	return a.launch(command, runVariable, start, func(reports string, code int) error {
		learns.finish()
		return a.tellServed(reports, plans, learns, f.summary, code)
	})
}
