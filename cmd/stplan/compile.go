package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
)

func (a *app) compileCommand() *cobra.Command {
	var f compileFlags
	cmd := &cobra.Command{
		Use:   "compile TRACE... [-o PLAN.bin | -o PLANS/]",
		Short: "Compile a recording into a memory plan",
		Long: `compile reads a recording and gives every allocation an address, so that buffers
that are never live together share memory. It writes the plan
(docs/planfile.md), and prints what PyTorch reserved, what the program needed at
its peak, what the plan takes, and how far from the smallest possible size that
can be at most (the gap to the lower bound).

If the recording shows iterations that repeat, the plan is periodic. It has a
prologue, which is everything before the steady state and is served once, and
one or more bodies. A body is one steady iteration; it is served again and again
for ever. So the plan serves a run of any length. An iteration that looks
different, such as an evaluation every other step, is another body. Iterations
that run a loop more or less often, such as generations of other lengths, share
one. In the output,

  slots     are the places of a phase, one for each allocation;
  optional  slots were not used in every recorded pass of their body;
  off plan  are allocations that outlive their iteration and are not replaced in
            the next one, such as losses kept in a list: they have no place;
  bound     is the lower bound: the most bytes that are live at once;
  the seam  is where one pass ends and the next begins. What is live then
            crosses it in a cell, a place that every pass empties and fills;
  envelope  is what it costs that every place has the size that the largest
            recorded iteration needs.

If nothing repeats, or if the iterations differ so much that one plan for all of
them takes more than PyTorch reserved, the plan is of the recorded process
alone.

Memory is reused from the moment the program frees it. If another stream was
still using it (the free was pending), or the next owner runs on another stream
(a cross-stream reuse), the plan lists a stream-ordered wait: the GPU makes the
new owner's stream wait, and the host does not. A cross-stream reuse waits for
all that any stream of the device had been given by the free, as PyTorch's own
allocator orders it. If the free was recent, streams may lose overlap. Among
plans of equal size compile looks for the one with the fewest cross-stream
reuses, and of these the one with the fewest waits. It prints how many are left,
how much memory changes hands with one, and their slack: the events between the
free and the next allocation there. A wait with much slack costs nothing.

While a send or a receive is under way, as in a pipeline, nobody is made to wait
for what was freed behind it: the other process may be waiting for this one. If
the recording tells of such exchanges, the plan leaves room for the memory that
they hold until the program waits for them, and "held by exchanges" says how
much that is.

--no-reuse-pending reuses memory only after the recorded completion of its free.
--no-cross-stream gives each stream its own part of the arena. Both usually take
more memory: "cost" is what the plan takes above the lower bound that holds
without them.

Then compile tries the plan: it serves the recording with the runtime on a
simulated device, once by the plan and once from the pool alone (the free memory
from which the runtime serves whatever no plan foresees). The plan pays if it
reserves no more than the pool, or at most 0.5 % more and moves less than half
as much memory, which means to give it back and take it again. A plan that does
not pay is written all the same, but says so, and run and replay then serve
without it. Mixtures of experts allocate what their data decides. Such a plan
may not reserve more at all, and a plan made without the last iteration has to
pay too. Nothing is tried with --no-reuse-pending or --no-cross-stream, because
the pool makes the waits that these forbid, nor by a stplan that was built
without its C runtime.

With --against PLAN the recording is served by that plan too. PLAN is kept if it
reserves 0.5 % less than the plan made of the recording, or at most 0.5 % more
while half as much moves: then nothing is written, and the summary as JSON says
so. So a new recording of a job replaces its plan only if that is no loss. If
both plans are of one run each, and the recording has left PLAN, runs differ:
then the new plan says that it does not pay.

With --whole-run the recording is of a run from its beginning to its end. If no
plan of its iterations pays, the plan is of the run itself, and serves a run
that does the same.

With --merge several recordings of the same program make one plan: of other
seeds, other lengths, or more steps. What comes before the steady iterations is
the first recording's. The steady iterations of all of them are passes of the
same bodies: a slot is as large as the largest recorded iteration needs, and
optional if some lack it. Recordings are refused, with the reason, if they do
not fit to the first: if they have another number of devices or of streams; if
iterations are found in another way or none are steady; if what is live between
two iterations differs by more than 1/16; if fewer than half of the steady
allocations of one have a slot in common with the others; or if one plan for all
would take more than PyTorch reserved.

Several recordings, a folder or a pattern are compiled into the folder -o, which
is made if it is missing: a plan each, on all cores, as many at once as fit into
half of the memory that is free. Recordings that do the same, whatever their
addresses, are compiled once and share a plan. A recording that fails does not
stop the others: the table at the end names it, and says why. The same command
again does only what is missing or has changed, and one recording that is
compiled into that folder later joins the table. docs/fleet.md has the rest, for
jobs on many machines too:

--shard 2/8 compiles every eighth recording only, counted from 0. In a Slurm
array --shard auto takes the part of the task, and in a Kubernetes Indexed Job
--shard auto/8 does. Without --shard a task compiles all that it is given. All
shards may write into one folder; "stplan table" prints the table of all.

The exit code of several recordings says why some failed, not how many did: 1 if
they are no good, even all of them; 2 if the fault is not theirs, such as a full
disk or a server that does not answer; 3 if it is a bug in stplan. Of several
causes the largest counts. 1 and 3 are the same in another try with the same
files. 2 may pass, and so may 143 and 137, terminated and killed.

The same recording and options give the same bytes on any machine. Only
--time-limit can change that; the output says so if it did. It is
the time for one recording in all. Reading it, finding its iterations, a first
plan, trying it and writing it are done in any case; the search for a smaller
plan and for fewer waits gets what they leave.`,
		Example: `  stplan compile run.pickle.gz                       # writes run.bin
  stplan compile run.parquet -o plan.bin --json
  stplan compile traces/ -o plans/                   # one plan each
  stplan compile 'traces/*.gz' -o plans/ --shard auto  # in a Slurm array
  stplan compile s3://traces/run/ -o s3://traces/plans/
  stplan compile s1.pickle s2.pickle --merge -o plan.bin   # one plan of both
  stplan compile new.pickle.gz --against run.bin -o run.bin   # unless run.bin is better
  stplan compile run.parquet --mode recorded         # this process, once
  stplan compile run.parquet --iteration-marker '^train_step'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(cmd, "expected at least one TRACE, found none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := demandValues(cmd, "output", "iteration-marker", "against"); err != nil {
				return err
			}
			return a.runCompile(cmd.Context(), args, f)
		},
	}
	cmd.Flags().StringVarP(&f.output, "output", "o", "", `plan to write, "-" for standard output; with several traces, a folder (default: the trace's name with .bin)`)
	cmd.Flags().StringVar(&f.mode, "mode", "auto", `what the plan covers: "recorded", the recorded process once; "periodic", its start and then its steady iteration for ever; "auto", periodic if that serves the job`)
	cmd.Flags().StringVar(&f.marker, "iteration-marker", "", "regular expression: annotations that begin an iteration (default: optimizer steps, else periodicity)")
	cmd.Flags().BoolVar(&f.noReusePending, "no-reuse-pending", false, "reuse memory only after the recorded completion of its free, never with a wait for it")
	cmd.Flags().BoolVar(&f.noCrossStream, "no-cross-stream", false, "never use memory of one stream for another: every stream has its own part of the arena")
	cmd.Flags().Float64Var(&f.maxScale, "max-scale", 1, "plan sizes that vary for this many times the largest recorded length, pixels or tokens, e.g. 1.5")
	cmd.Flags().DurationVar(&f.timeLimit, "time-limit", 0, "time for a recording, from reading it to the written plan, e.g. 30s: what is left of it bounds the search (default: none)")
	cmd.Flags().StringVar(&f.shard, "shard", "", "of many recordings, compile only this part: `INDEX/COUNT`, counted from 0, auto in a Slurm array, or auto/COUNT in a Kubernetes Indexed Job")
	cmd.Flags().BoolVar(&f.merge, "merge", false, "make one plan of several recordings of the same program")
	cmd.Flags().StringVar(&f.against, "against", "", "write nothing if this `PLAN` serves the recording clearly better than the one made of it")
	cmd.Flags().BoolVar(&f.wholeRun, "whole-run", false, "the trace is of a whole run: if no plan of its iterations pays, make one of the run itself")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the summary as JSON on standard output")
	return cmd
}

func (a *app) runCompile(ctx context.Context, args []string, f compileFlags) error {
	in := a.findInputs(args, recordingInputs)
	if err := in.none(); err != nil {
		return err
	}
	paths := in.paths
	if f.merge && len(in.failed) > 0 {
		return in.failed[0].err
	}
	many := (in.many || hasRecords(f.output)) && !f.merge
	if many && f.output != "" && f.output != "-" {
		f.output = cleanPath(f.output)
	}
	outputs, err := compileOutputs(paths, many, f)
	if err != nil {
		return err
	}
	if f.shard != "" {
		if !many {
			return errors.New("--shard: expected several recordings, a folder or a pattern, found one recording")
		}
		if f.part, err = readShard(f.shard, os.Getenv); err != nil {
			return err
		}
	}
	if f.timeLimit < 0 {
		return fmt.Errorf("--time-limit: expected at least 0s, found %v", f.timeLimit)
	}
	if !(f.maxScale >= 1 && f.maxScale <= mostScale) {
		return fmt.Errorf("--max-scale: expected 1 to %d, found %g", mostScale, f.maxScale)
	}
	if f.maxScale > 1 && f.noCrossStream {
		return errors.New("--max-scale: expected no --no-cross-stream with it, whose lower bound is of the planned sizes only")
	}
	if f.maxScale > 1 && f.mode == planfile.ModeRecorded.String() {
		return errors.New("--max-scale: expected a periodic plan, found --mode recorded: sizes vary from iteration to iteration")
	}
	if !many {
		if err := a.demandInputs(paths...); err != nil {
			return err
		}
		if err := a.outputs.demand(outputs...); err != nil {
			return err
		}
	}
	opt := compile.Options{
		NoReusePending: f.noReusePending, NoCrossStream: f.noCrossStream, TimeLimit: f.timeLimit, MaxScale: f.maxScale, WholeRun: f.wholeRun,
		Producer: producer, Note: func(text string) { a.note("%s", text) },
	}
	if opt.Mode, err = planMode(f.mode); err != nil {
		return err
	}
	if f.marker != "" {
		if opt.Marker, err = regexp.Compile(f.marker); err != nil {
			return fmt.Errorf("--iteration-marker: %w", err)
		}
	}
	if simdevice.Built {
		opt.Serve = simdevice.Serve
	} else {
		a.note("this stplan was built without its C runtime (cgo was off): it does not try the plan and gives no advice; a build with it may write other bytes")
	}
	if f.against != "" {
		if many || f.merge {
			return errors.New("--against: expected one recording, found several")
		}
		if opt.Against, err = a.encodedPlan(f.against); err != nil {
			return err
		}
	}
	if f.merge {
		return a.compileMerged(ctx, paths, f, opt)
	}
	if many {
		a.noteInputs(paths)
		return a.runBatch(ctx, in, outputs, f, opt)
	}
	sum, err := a.compileOne(ctx, paths[0], outputs[0], opt)
	if err != nil {
		return err
	}
	if f.json {
		return a.print(report.NewCompiledAll([]report.Compiled{sum}, nil), true)
	}
	if err := a.printCompiled(sum, outputs[0]); err != nil {
		return err
	}
	if sum.Kept {
		a.note("%s serves the recording clearly better than the plan made of it, so nothing was written", f.against)
		return nil
	}
	a.noteReport(outputs[0], paths[0])
	return nil
}

// encodedPlan is the bytes of a plan that is whole.
func (a *app) encodedPlan(path string) ([]byte, error) {
	p, err := a.readPlan(path)
	if err != nil {
		return nil, err
	}
	data, err := planfile.Encode(p)
	if err != nil {
		return nil, &bug{err}
	}
	return data, nil
}

// hasRecords says whether a folder is one that several recordings were compiled into: another one
// that is added belongs into their table.
func hasRecords(folder string) bool {
	return isDir(folder) && isDir(filepath.Join(folder, recordsFolder))
}

// mostScale is the largest --max-scale. Laws through recorded sizes say nothing of a hundred
// times these.
const mostScale = 100

// planMode is the mode of a name; 0 leaves the choice to the recording.
func planMode(name string) (planfile.Mode, error) {
	for _, m := range []planfile.Mode{planfile.ModeRecorded, planfile.ModePeriodic} {
		if name == m.String() {
			return m, nil
		}
	}
	if name != "auto" {
		return 0, fmt.Errorf(`--mode: expected "auto", "recorded" or "periodic", found %q`, name)
	}
	return 0, nil
}

// compileOutputs names each trace's plan, and refuses names that collide. The plans of many
// go into a folder, which need not exist.
func compileOutputs(paths []string, many bool, f compileFlags) ([]string, error) {
	if f.merge {
		return mergedOutput(paths, f)
	}
	if !many && f.output != "" && !isDir(f.output) {
		if f.output == "-" && f.json {
			return nil, twoWriters("-o")
		}
		return []string{f.output}, nil
	}
	if many && (f.output == "" || f.output == "-") {
		return nil, &hinted{fmt.Errorf("%d traces need a folder for their plans", len(paths)), "-o DIR"}
	}
	names := make([]string, len(paths))
	for i, path := range paths {
		if path == "-" {
			return nil, &hinted{errors.New("a trace from standard input needs a name for its plan"), "-o PLAN.bin, or -o - for standard output"}
		}
		names[i] = outputName(path, ".bin")
		if f.output != "" {
			names[i] = inFolder(f.output, filepath.Base(names[i]))
		}
	}
	return names, oneEach(paths, names, "compiled")
}

// compileOne compiles one recording and writes its plan.
func (a *app) compileOne(ctx context.Context, path, output string, opt compile.Options) (report.Compiled, error) {
	opt.Began = time.Now()
	t, err := a.readTrace(path, trace.Options{})
	if err != nil {
		return report.Compiled{}, err
	}
	return a.writePlan(output, opt, func(opt compile.Options) (*planfile.Plan, report.Compiled, error) {
		return compile.Compile(ctx, t, opt)
	})
}
