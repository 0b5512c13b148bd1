package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

func (a *app) diffCommand() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff PLAN.bin --trace TRACE | --trace A --trace B | A.bin B.bin",
		Short: "Compare a plan with PyTorch's allocators, or two runs or plans",
		Long: `diff shows a plan beside what the recording reserved, and beside what PyTorch's
allocators reserve for the same program: the native caching allocator, and
expandable segments (PYTORCH_ALLOC_CONF=expandable_segments:True).

Allocated is what tensors use, each rounded up to 512 B. Reserved is what was
taken from the GPU for them. Every row is accounted for by the same formulas:

  efficiency     peak allocated / peak reserved
  fragmentation  1 - efficiency; only in --json
  waste          peak reserved - peak allocated
  plan avoids    1 - the plan's waste / this row's waste

The allocators are simulated, event by event. The self-check says how far to
believe the simulation: it runs under the recorded settings, and counts how many
of the segments (the pieces of memory that PyTorch takes from the GPU and gives
back) and of the addresses in the recording it reproduces. All of them is exact.
A recording does not hold the size of the GPU's memory, nor a memory fraction
that the script set. If the job ran into such a limit, pass it with
--recorded-config.

An allocator that runs out of memory in the simulation says so in its row. Its
efficiency, fragmentation, waste and plan_reduction are then null in --json.

If the recording ends in an out-of-memory, every row but the recorded one counts
the request that failed: it is served, and freed at once. Below the table is
what that takes, and whether it would have fitted into what the process had and
could get. What the program would have done then is not in the recording.

A periodic plan has places for what comes before the steady state, in which
iterations repeat, and for one such iteration. A tensor that outlives its
iteration and is not replaced in the next, such as a loss kept in a list, has no
place in the plan: it is off plan. Its memory is added to the plan's.

compile may have found that a plan does not pay: that serving without it, from
the runtime's pool of free memory alone, reserves less. A run then does that. So
the table has a row for it, and "plan avoids" is of what is served.

--allocators adds what else serves such programs: gmlake, GMLake by its code;
gmlake_paper, by its paper; stalloc, STAlloc's plan of the first iterations,
served by position, with hooks on all that varies in the recording;
stalloc_by_position, without hooks; cuda_malloc_async, an estimate of PyTorch's
backend:cudaMallocAsync, with its error; pool, stplan's runtime without a plan;
served, stplan's runtime with this plan, or without it if the plan does not pay.
"all" is all of them. STAlloc's take up to half a minute for 500,000 events, the
others less than a second. A second table says at which event each reserves
most, and how often it gave back all cached memory to serve a request.

--config simulates other settings too. Repeat it for several: each is a row of
its own. In --json "configured" is the first of them or null, and if there are
several, "configurations" is a list of all. The syntax is that of
PYTORCH_ALLOC_CONF, with the keys max_split_size_mb, roundup_power2_divisions,
garbage_collection_threshold, expandable_segments, large_segment_size_mb,
max_non_split_rounding_mb, per_process_memory_fraction. Two keys are stplan's
own: device_memory, the size of the GPU's memory in bytes or with a unit
(80GiB), and usable_memory, if other users of the GPU leave less of it. As in
PyTorch, settings that such a string leaves out return to their defaults.

--device-memory says of each allocator whether the job fits into a GPU of that
size, what is spare, or at which event it runs out of memory ("stplan fit
--help" says how). Those of --allocators are listed too.

--advise looks for the best settings of PyTorch's own allocator for this
program, for those who cannot load a plan: it simulates expandable segments, and
values of max_split_size_mb and roundup_power2_divisions, at most 40 settings,
and prints the line for the shell. Best is what takes least. With
--device-memory the job has to fit first of all, and if it does not,
garbage_collection_threshold is tried too: it does nothing without a limit on
the process. Speed is not judged; what gives cached memory back costs time.

With --trace twice, or with two plans, diff says what changed from the first to
the second. Of recordings it compares the peaks, what each allocator and the
pool reserve, and what was allocated at the peak: by category, by phase, and by
line of code if both have Python stacks. Lines that an edit has moved are taken
for the same if their function has as many in both recordings. Of plans it
compares sizes, lower bounds, waits and phases.

A folder or a pattern of plans, with one of recordings, is one table: each plan
with the recording of its name. --fail-over and --fail-under are then about all.

For CI, --fail-over exits with code 1 if what is served takes more than the
given percentage or bytes above the peak allocated, and --fail-under if the plan
avoids too little of native's waste. Of two recordings or plans, --fail-over is
about every figure in bytes of the second one: it may not be that much above the
first one's. Everything is compared and printed first. --junit writes a test
case for each limit and device. Exit code 2 is an error: then there is no JUnit
file.`,
		Example: `  stplan diff run.bin --trace run.pickle.gz
  stplan diff plans/ --trace traces/
  stplan diff run.bin --trace run.parquet --config max_split_size_mb:512
  stplan diff run.bin --trace run.parquet --allocators gmlake,stalloc,pool
  stplan diff run.bin --trace run.parquet --device-memory 80GiB
  stplan diff run.bin --trace run.parquet --advise
  stplan diff --trace yesterday.pickle.gz --trace today.pickle.gz --fail-over 1%
  stplan diff yesterday.bin today.bin
  stplan diff run.bin --trace run.parquet --json --fail-under 90
  stplan diff run.bin --trace run.parquet --fail-over 2% --junit memory.xml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 2 {
				return usageError(cmd, fmt.Sprintf("expected at most two plans, found %d arguments", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.limits.read(cmd); err != nil {
				return err
			}
			f.oneDevice = cmd.Flags().Changed("device")
			return a.chooseDiff(cmd, args, f)
		},
	}
	cmd.Flags().StringArrayVar(&f.traces, "trace", nil, "the recording that the plan was made from; twice, two recordings to compare")
	cmd.Flags().IntVar(&f.device, "device", 0, "compare only this device")
	cmd.Flags().StringArrayVar(&f.configs, "config", nil, "also simulate `settings` such as max_split_size_mb:512; repeat it for several")
	addPeers(cmd, &f.peers)
	cmd.Flags().StringVar(&f.recorded, "recorded-config", "", "settings of the recording that it does not hold, e.g. device_memory:80GiB")
	cmd.Flags().BoolVar(&f.advise, "advise", false, "look for the best settings of PYTORCH_CUDA_ALLOC_CONF")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the comparison as JSON")
	f.limits.add(cmd)
	f.memory.add(cmd)
	return cmd
}

// chooseDiff finds out what is compared with what.
func (a *app) chooseDiff(cmd *cobra.Command, args []string, f diffFlags) error {
	switch {
	case slices.Contains(f.traces, ""):
		return demandValues(cmd, "trace")
	case len(args) == 1 && len(f.traces) == 0:
		return &hinted{errors.New("diff needs the recording that the plan was made from"), "--trace TRACE"}
	case len(args) == 1 && len(f.traces) == 1:
		return a.runDiff(cmd.Context(), args[0], f.traces[0], f)
	case len(args) == 0 && len(f.traces) == 2:
		return a.runDiffTwo(cmd.Context(), f.traces[0], f.traces[1], false, f)
	case len(args) == 2 && len(f.traces) == 0:
		return a.runDiffTwo(cmd.Context(), args[0], args[1], true, f)
	}
	return usageError(cmd, fmt.Sprintf("expected a plan and a trace, two traces or two plans, found %d and %d", len(args), len(f.traces)))
}

func (a *app) runDiff(ctx context.Context, path, recording string, f diffFlags) error {
	if err := oneStdin(path, recording, "PLAN.bin", "--trace"); err != nil {
		return err
	}
	budget, err := f.memory.budget(false)
	if err != nil {
		return err
	}
	peers, err := choosePeers(f.peers)
	if err != nil {
		return err
	}
	plans, traces := a.findInputs([]string{path}, planInputs), a.findInputs([]string{recording}, recordingInputs)
	if err := errors.Join(plans.none(), traces.none()); err != nil {
		return err
	}
	a.noteInputs(append(plans.paths, traces.paths...))
	if err := a.outputs.demand(f.limits.junit); err != nil {
		return err
	}
	if plans.many || traces.many {
		return a.runDiffMany(ctx, plans, traces, f, peers, budget)
	}
	if err := a.demandInputs(path, recording); err != nil {
		return err
	}
	all, err := a.comparePair(ctx, path, recording, f, peers, budget)
	if err != nil {
		return err
	}
	if err := a.printCompared(all, f.json); err != nil {
		return err
	}
	if !f.json {
		a.noteReport(path, recording)
	}
	return a.enforce(&f.limits, planVerdicts(&f.limits, all))
}

// runDiffMany compares several plans with their recordings in one table.
func (a *app) runDiffMany(ctx context.Context, plans, traces inputs, f diffFlags, peers []string, budget *fit.Budget) error {
	pairs, failed := pair(plans, traces)
	all := report.ComparedAll{Plans: []report.Compared{}}
	s := several{app: a}
	s.lacks(failed)
	askEach(&s, "comparing", recordingsOf(pairs), func(a *app, i int) ([]report.Compared, error) {
		return a.comparePair(ctx, pairs[i].plan, pairs[i].trace, f, peers, budget)
	}, func(compared []report.Compared) { all.Plans = append(all.Plans, compared...) })
	all.Failed = reportFailed(s.failed)
	if err := a.print(&all, f.json); err != nil {
		return err
	}
	return errors.Join(s.answer("plans"), a.enforce(&f.limits, planVerdicts(&f.limits, all.Plans)))
}

// comparePair reads a plan and its recording and compares them.
func (a *app) comparePair(ctx context.Context, path, recording string, f diffFlags, peers []string, budget *fit.Budget) ([]report.Compared, error) {
	p, err := a.readPlan(path)
	if err != nil {
		return nil, err
	}
	t, err := a.readTrace(recording, trace.Options{})
	if err != nil {
		return nil, err
	}
	if err := provenPlan(inputName(path), p, t); err != nil {
		return nil, err
	}
	if f.oneDevice {
		d, err := planDeviceByOrdinal(p, f.device, inputName(path))
		if err != nil {
			return nil, err
		}
		p.Devices = []planfile.Device{*d}
	}
	return a.comparePlan(ctx, inputName(path), p, t, f, peers, budget)
}

func (a *app) printCompared(all []report.Compared, asJSON bool) error {
	var failures []report.DeviceFailure
	for i := range all {
		failures = append(failures, report.DeviceFailure{Device: all[i].Device, Failure: all[i].Failure})
	}
	if asJSON {
		first := all[0]
		first.Others = all[1:]
		return report.WriteJSON(a.stdout, first)
	}
	if err := report.WriteFailures(a.stdout, all[0].Trace, failures); err != nil {
		return err
	}
	for i := range all {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		all[i].Paint = painter(a.stdout)
		if err := all[i].Write(a.stdout); err != nil {
			return err
		}
		if m := all[i].SelfCheck.Mismatch; m != "" {
			a.note("device %d: first difference from the recording: %s", all[i].Device, m)
		}
		for _, h := range all[i].SelfCheck.Hints {
			a.note("device %d: %s", all[i].Device, h)
		}
	}
	return nil
}
