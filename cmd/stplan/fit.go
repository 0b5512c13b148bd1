package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
)

func (a *app) fitCommand() *cobra.Command {
	var f fitFlags
	cmd := &cobra.Command{
		Use:   "fit TRACE... [--device-memory SIZE]",
		Short: "Say whether a job fits into a GPU's memory, and at which sizes",
		Long: `fit tries a recorded job on a GPU of the given size: under PyTorch's native
allocator, under expandable segments, from stplan's pool alone, and by a plan.
Each gets a verdict, with what it takes and what is spare, or the event at which
it runs out of memory. The plan is compiled for this, and not kept.

Without --device-memory fit looks for the least memory in which the recording
runs, under each: "at least" in the output. It is memory for tensors, in steps
of 2 MiB; what the process takes beside them comes on top.

An allocator may fit although it would take more on a larger GPU: before it runs
out of memory it gives cached memory back ("gives back" in the output), which
costs time. PyTorch's allocators and the pool do; the figure is then what is
taken within the limit. --json has both.

Of the GPU's memory, fit leaves out what a process takes beside its tensors: for
the CUDA context, kernels and libraries, and, if the job has several ranks, for
NCCL. It prints both figures: the first was measured on one kind of GPU, the
second is for one communicator on one host, which takes from 0.3 to 0.8 GiB.
Jobs with several, or with all-to-all, take more. docs/fit.md says how to
measure yours; --context-memory and --nccl-memory set them.

A folder or a pattern stands for its recordings, and these for the ranks of one
job: it fits if all do. They are one table, and fit names the rank that binds.
What cannot be read is named at the end, and the exit code is 1 or 2, as
"stplan --help" says of several recordings.

Several recordings are of one job at several sizes: samples in a batch, or
tokens in a sequence. From them fit finds how each allocation grows, and from
that the largest size that fits under each allocator, with an error bar. --sizes
names the sizes of the recordings; without it they are multiples of the first
one's. Three or more recordings test the laws: each is predicted from the
others. One recording is enough if its micro-batches differ in length: sizes are
then multiples of the longest one, and every micro-batch is taken to be as long.
--at tries other sizes, each with an error bar. A row whose error could turn its
verdict does not count as one that fits.

--top 5 shows what is at the peak of the recording that needs most: the groups
of buffers with the most bytes, by line of code and category, or by size if
there are no Python stacks; how long they live; by how much the peak falls if
they are recomputed, or moved to the host and back; and how fast they would have
to move.

--allocators also tries what else serves such programs, with the names that
"stplan diff --help" explains; pool and served are in every table anyway. Of an
estimate fit says if its error could turn the verdict: such a row does not count
as one that fits. Rows of --allocators and --config have no size laws.

A recording that ends in an out-of-memory counts with the request that failed:
it is served, and freed at once. What the program would have done then is not in
the recording.

The exit code is 1 if the job fits under none.`,
		Example: `  stplan fit run.pickle.gz                            # how much it needs
  stplan fit run.pickle.gz --device-memory 80GiB
  stplan fit traces/ --device-memory 80GiB            # the ranks of a job
  stplan fit run.pickle.gz --device-memory 24GiB --top 5
  stplan fit run.pickle.gz --device-memory 24GiB --allocators gmlake,stalloc
  stplan fit b4.pickle.gz b8.pickle.gz --sizes 4,8 --at 16 --device-memory 80GiB
  stplan fit oom.pickle.gz --device-memory 24GiB --config max_split_size_mb:128
  stplan fit run.pickle.gz --device-memory 141GiB --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(cmd, "expected at least one TRACE, found none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runFit(cmd.Context(), args, f, cmd.Flags().Changed("device"))
		},
	}
	f.memory.add(cmd)
	cmd.Flags().Float64SliceVar(&f.sizes, "sizes", nil, "the `sizes` of the recordings, one each, such as the samples of a batch: 4,8")
	cmd.Flags().Float64SliceVar(&f.at, "at", nil, "with several recordings, also try the job at these `sizes`: 16,32")
	cmd.Flags().StringArrayVar(&f.configs, "config", nil, "also try `settings` of PYTORCH_ALLOC_CONF such as max_split_size_mb:512; repeat it for several")
	addPeers(cmd, &f.peers)
	cmd.Flags().StringVar(&f.recorded, "recorded-config", "", "settings of the recording that it does not hold")
	cmd.Flags().IntVar(&f.device, "device", 0, "try only this device of a recording")
	cmd.Flags().IntVar(&f.top, "top", 0, "also show this many groups of buffers at the peak, how long they live, and what recomputing or moving them would give")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the verdicts as JSON")
	return cmd
}

func (a *app) runFit(ctx context.Context, args []string, f fitFlags, oneDevice bool) error {
	in, ranks, err := a.fitInputs(args)
	if err != nil {
		return err
	}
	if f.peers, err = choosePeers(f.peers); err != nil {
		return err
	}
	paths := in.paths
	if f.top < 0 {
		return fmt.Errorf("--top: expected at least 0, found %d", f.top)
	}
	if err := demandSizes(f.sizes, f.at, len(paths), ranks); err != nil {
		return err
	}
	budget, err := f.memory.parse(ranks && len(paths) > 1)
	if err != nil {
		return err
	}
	least := budget.Device == 0
	if least && !ranks && (len(paths) > 1 || f.at != nil) {
		return &hinted{errors.New("fit needs the size of the GPU's memory to say which sizes of a job fit"), "--device-memory 80GiB"}
	}
	if !ranks {
		if err := a.demandInputs(paths...); err != nil {
			return err
		}
	}
	if !simdevice.Built {
		a.note("this stplan was built without its C runtime and cannot say what the pool and a plan take")
	}
	result := report.Fitted{Ranks: ranks, Jobs: []report.FittedJob{}}
	if least {
		beside := besideTensors(*budget)
		result.Beside = &beside
	} else {
		memory := deviceMemory(*budget)
		result.Memory = &memory
	}
	var all [][]*fit.Job
	var largest *fit.Job
	s := several{app: a}
	type fitted struct {
		jobs []*fit.Job
		rows []report.FittedJob
	}
	failed := make([]error, len(paths))
	askEach(&s, "fitting", paths, func(a *app, i int) (one *fitted, err error) {
		defer func() { failed[i] = err }()
		t, err := a.readTrace(paths[i], trace.Options{})
		if err != nil {
			return nil, err
		}
		jobs, rows, err := a.fitTrace(ctx, t, f, oneDevice, *budget)
		if err != nil {
			return nil, err
		}
		return &fitted{jobs, rows}, nil
	}, func(one *fitted) {
		if one == nil {
			return
		}
		result.Jobs = append(result.Jobs, one.rows...)
		for _, j := range one.jobs {
			if largest == nil || j.Allocated() > largest.Allocated() {
				largest = j
			}
		}
		all = append(all, one.jobs)
	})
	// A rank that cannot be read does not stop the others; laws need every size.
	for _, err := range failed {
		if err != nil && !ranks {
			return err
		}
	}
	result.Failed = reportFailed(s.failed)
	switch {
	case len(result.Jobs) == 0:
		return s.printAnswer(&result, f.json, "recordings")
	case ranks && least:
		result.Whole = report.NewWholeLeast(result.Jobs)
	case ranks:
		result.Whole = report.NewWhole(result.Jobs)
	case least:
	default:
		if result.Laws, err = a.sizeLaws(ctx, all, f, *budget); err != nil {
			return err
		}
	}
	if f.top > 0 {
		if result.Holders, err = peakHolders(largest, f.top); err != nil {
			return err
		}
	}
	if err := a.printFitted(&result, f.json); err != nil {
		return err
	}
	if err := s.answer("recordings"); err != nil {
		return err
	}
	if !least && len(result.FitsUnder()) == 0 {
		return &negative{fmt.Sprintf("does not fit into %s under any allocator", report.Bytes(int64(budget.Device)))}
	}
	return nil
}

// fitInputs lists the recordings to read. Those of a folder or a pattern are the ranks of a
// job.
func (a *app) fitInputs(args []string) (in inputs, ranks bool, err error) {
	in = a.findInputs(args, recordingInputs)
	if err := in.none(); err != nil {
		return in, false, err
	}
	if len(args) == 1 {
		return in, in.many, nil
	}
	if i := slices.IndexFunc(args, isDir); i >= 0 {
		return in, false, fmt.Errorf("%s: expected one folder of ranks, or recordings, found a folder among %d arguments", args[i], len(args))
	}
	if len(in.failed) > 0 || len(in.paths) != len(args) {
		return in, false, fmt.Errorf("expected one pattern for the ranks of a job, or recordings, found a pattern among %d arguments", len(args))
	}
	return in, false, nil
}

func (a *app) printFitted(f *report.Fitted, asJSON bool) error {
	if asJSON {
		return report.WriteJSON(a.stdout, f)
	}
	for i := range f.Jobs {
		j := &f.Jobs[i]
		if err := report.WriteFailures(a.stdout, j.Trace, []report.DeviceFailure{{Device: j.Device, Failure: j.Failure}}); err != nil {
			return err
		}
	}
	f.Paint = painter(a.stdout)
	return f.Write(a.stdout)
}
