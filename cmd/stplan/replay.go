package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/trace"
)

func (a *app) replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay PLAN.bin TRACE | replay --no-plan TRACE",
		Short: "Serve a recording with the runtime, on a simulated device",
		Long: `replay drives the runtime that a training process loads over the requests of a
recording, on a simulated device: its memory is addresses only, so no GPU is
needed. It prints what the runtime reserves and how much of the program the plan
served. The plan may be that of another recording. --no-plan serves everything
from the pool: the free memory from which the runtime serves what no plan
foresees.

Each address that is handed out is judged by a checker that shares no code with
the runtime: memory must not be in use, nor have been used by a stream that has
not been waited for. If some is, the exit code is 1. A free takes effect when
the program asks for it; if it was delayed in the recording, another stream uses
the buffer too.

In the output,

  on plan  are allocations that were served at the plan's addresses;
  drift    says how often the requests left the plan's sequence, how often they
           were found again elsewhere in it, and how often a place was taken
           when its turn came;
  moved    is idle memory that was given back to the device and taken again
           where it was needed.

If compile found that a plan does not pay, the plan says so, and the runtime
serves without it. So does replay.

--move off has memory stay where it is, as "run --move off" does: what that
costs in memory.

--proven serves the plan as "run" does once an earlier run has followed it: its
memory comes in larger granules, if its places stay where they are.

--inject disturbs the program: at that rate allocations, with their frees, are
left out, added, doubled or swapped with the next one. Figures of what is on
plan then count what is left of the recording.

--repeat makes the recording longer by that many iterations. Each is like one of
its steady ones, in random order. It also prints what PyTorch's native allocator
and its expandable segments reserve for the longer program. Recordings are
short, and an allocator may reserve more with every iteration.

--learn does what "run" does without PLAN.bin: after 4 iterations a plan is made
of the history that the runtime keeps, and put in place in the same run once an
iteration has followed it. If later iterations go beyond it, it is replaced.
With --no-plan that is a first run, with PLAN.bin a run whose plan was found.
Making a plan takes no time here.

A folder or a pattern of recordings is one table. Each recording is served by
the plan of its name if PLAN.bin is a folder or a pattern too, and all by one
plan if it is not.

--addresses writes event,size,address,source for each allocation: the event's
index in the device's list, bytes as requested, the address in one flat space,
and where it came from: plan, gap (memory that was there) or grow (new memory).`,
		Example: `  stplan replay run.bin run.pickle.gz
  stplan replay run.bin other.pickle.gz --json
  stplan replay plans/ traces/                           # one table
  stplan replay --no-plan run.pickle.gz --addresses out.csv
  stplan replay --no-plan run.pickle.gz --repeat 40
  stplan replay --no-plan --learn run.pickle.gz --repeat 40`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.noPlan {
				return exactArgs("TRACE")(cmd, args)
			}
			return exactArgs("PLAN.bin", "TRACE")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := demandValues(cmd, "addresses"); err != nil {
				return err
			}
			if f.noPlan {
				if err := refuseFlags(cmd, "only with PLAN.bin", "proven"); err != nil {
					return err
				}
			}
			return a.runReplay(args, f, cmd.Flags().Changed("device"))
		},
	}
	cmd.Flags().BoolVar(&f.noPlan, "no-plan", false, "serve the recording without a plan")
	cmd.Flags().BoolVar(&f.learn, "learn", false, "make plans of the run while it goes on, and put them in place in it")
	cmd.Flags().StringVar(&f.addresses, "addresses", "", "write each allocation's address to this CSV file, \"-\" for standard output")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the result as JSON")
	cmd.Flags().IntVar(&f.device, "device", 0, "replay this device of the recording")
	cmd.Flags().StringVar(&f.move, "move", "auto", `"off": idle memory does not move`)
	cmd.Flags().BoolVar(&f.proven, "proven", false, "serve the plan as one that an earlier run has followed")
	cmd.Flags().Float64Var(&f.inject, "inject", 0, "disturb the program at this rate, from 0 to 1")
	cmd.Flags().IntVar(&f.repeat, "repeat", 0, "make the recording longer by this many iterations")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "seed of --inject and --repeat: the same seed gives the same program")
	return cmd
}

// runReplay replays one recording, or several (replay_many.go).
func (a *app) runReplay(args []string, f replayFlags, chosen bool) error {
	if err := f.demand(); err != nil {
		return err
	}
	in := a.findInputs(args[len(args)-1:], recordingInputs)
	if err := in.none(); err != nil {
		return err
	}
	plans, planPath := inputs{}, ""
	if !f.noPlan {
		planPath = args[0]
		plans = a.findInputs(args[:1], planInputs)
		if err := plans.none(); err != nil {
			return err
		}
	}
	if in.many || plans.many {
		return a.runReplayMany(plans, in, f, chosen)
	}
	if !f.noPlan {
		if err := oneStdin(planPath, in.paths[0], "PLAN.bin", "TRACE"); err != nil {
			return err
		}
	}
	if err := a.demandInputs(args...); err != nil {
		return err
	}
	if err := a.outputs.demand(f.addresses); err != nil {
		return err
	}
	t, p, err := a.readReplayed(planPath, in.paths[0], f)
	if err != nil {
		return err
	}
	d, err := replayDevice(t, f.device, chosen)
	if err != nil {
		return err
	}
	one, err := a.replayed(t, d, p, planPath, f)
	if err != nil {
		return err
	}
	if f.addresses != "" {
		if err := a.outputs.write(f.addresses, func(w io.Writer) error { return writeAddresses(w, one.program, one.result) }); err != nil {
			return err
		}
	}
	if err := a.printReplayed(&one.out, f.json, f.addresses == "-"); err != nil {
		return err
	}
	return one.overlaps(t)
}

// replayDevice picks the device: the only one with allocations, unless one was
// chosen.
func replayDevice(t *trace.Trace, ordinal int, chosen bool) (*trace.Device, error) {
	var found []*trace.Device
	for i := range t.Devices {
		d := &t.Devices[i]
		if compile.HasAllocations(d) && (!chosen || d.Ordinal == ordinal) {
			found = append(found, d)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case chosen:
		return nil, fmt.Errorf("%s: no allocations on device %d", t.Name, ordinal)
	case len(found) == 0:
		return nil, fmt.Errorf("%s: no allocations", t.Name)
	}
	return nil, &hinted{fmt.Errorf("%s: %d devices, and replay takes one", t.Name, len(found)), "choose with --device"}
}
