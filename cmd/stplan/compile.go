package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

type compileFlags struct {
	output         string
	mode           string
	marker         string
	noReusePending bool
	noCrossStream  bool
	timeLimit      time.Duration
	json           bool
}

func (a *app) compileCommand() *cobra.Command {
	var f compileFlags
	cmd := &cobra.Command{
		Use:   "compile TRACE... [-o PLAN.bin]",
		Short: "Compile a recording into a memory plan",
		Long: `compile gives every allocation of the recording an address, so that buffers that
are never live together share memory, and writes the plan (docs/planfile.md).
It ends by saying what PyTorch reserved, what the program needed at its peak,
what the plan takes, and how far from optimal that can be at most.

Where the recording shows a steady state, the plan is periodic: everything before
it once, and then one iteration that repeats for ever, each of its places as large
as any recorded iteration needs. So it serves a run of any length. What repeats
differently, such as an evaluation every other step, is an alternative iteration.
Where nothing repeats, or what repeats differs so much that its plan would take
more than PyTorch reserved, the plan is of the recorded process alone.

A buffer's memory is reused from the moment the program frees it. Where the
free was still waiting for another stream, or the new owner runs on another
stream, the plan lists a stream-ordered wait. Among plans of equal size compile
looks for one with fewer waits, and says how many are left, the memory that
changes hands with one, and their slack: the events between the free and the
next allocation there. --no-reuse-pending waits for the recorded completion
instead, --no-cross-stream gives each stream its own part of the arena. Both
usually take more memory; "cost" (cost_bytes in --json) is what the plan takes
above the lower bound that holds without them. The pool below would make such waits,
so what follows is left out.

A build with the runtime also serves the recording, with the plan and from one pool
without. A plan that reserves more than the pool alone, by more than 0.5 % or without
sparing half of what the pool gives back and takes again, is written, but says so, and
is not served ("judged" in --json). Where data decides what an iteration allocates, as
in mixtures of experts, it may not reserve more at all, and a plan made without the last
iteration has to pay as well.

The same recording and options give the same bytes, whatever the machine. Only
--time-limit can change that, and says so when it did.`,
		Example: `  stplan compile run.pickle.gz                       # writes run.bin
  stplan compile run.parquet -o plan.bin --json
  stplan compile rank*.pickle.gz -o plans/           # one plan each
  stplan compile run.parquet --mode recorded         # this one process, to the last byte
  stplan compile run.parquet --iteration-marker '^train_step'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(cmd, "expected at least one TRACE, found none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := demandValues(cmd, "output", "iteration-marker"); err != nil {
				return err
			}
			return a.runCompile(cmd.Context(), args, f)
		},
	}
	cmd.Flags().StringVarP(&f.output, "output", "o", "", `plan to write, "-" for standard output; with several traces, a folder (default: the trace's name with .bin)`)
	cmd.Flags().StringVar(&f.mode, "mode", "auto", `what the plan covers: "recorded", the recorded process once; "periodic", its start and then its steady iteration for ever; "auto", periodic where that serves the job`)
	cmd.Flags().StringVar(&f.marker, "iteration-marker", "", "regular expression: annotations that begin an iteration (default: optimizer steps, else periodicity)")
	cmd.Flags().BoolVar(&f.noReusePending, "no-reuse-pending", false, "reuse memory only after the recorded completion of its free, never with a wait for it")
	cmd.Flags().BoolVar(&f.noCrossStream, "no-cross-stream", false, "never use memory of one stream for another: every stream has its own part of the arena")
	cmd.Flags().DurationVar(&f.timeLimit, "time-limit", 0, "stop improving a device's plan after this long, e.g. 30s (default: none)")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the summary as JSON on standard output")
	return cmd
}

func (a *app) runCompile(ctx context.Context, paths []string, f compileFlags) error {
	outputs, err := compileOutputs(paths, f)
	if err != nil {
		return err
	}
	if f.timeLimit < 0 {
		return fmt.Errorf("--time-limit: expected at least 0s, found %v", f.timeLimit)
	}
	if err := a.demandInputs(paths...); err != nil {
		return err
	}
	if err := a.demandOutputs(outputs...); err != nil {
		return err
	}
	opt := compile.Options{
		NoReusePending: f.noReusePending, NoCrossStream: f.noCrossStream, TimeLimit: f.timeLimit,
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
	var all []report.Compiled
	for i, path := range paths {
		sum, err := a.compileOne(ctx, path, outputs[i], opt)
		if err != nil {
			// What was compiled before stays, and is reported.
			return errors.Join(err, a.printAllCompiled(all, f.json))
		}
		all = append(all, sum)
		if !f.json {
			if err := a.printCompiled(sum, outputs[i]); err != nil {
				return err
			}
		}
	}
	return a.printAllCompiled(all, f.json)
}

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

// printAllCompiled prints the JSON of all plans that were written: an object
// for one, a list under "plans" for several.
func (a *app) printAllCompiled(all []report.Compiled, asJSON bool) error {
	switch {
	case !asJSON || len(all) == 0:
		return nil
	case len(all) == 1:
		return report.WriteJSON(a.stdout, all[0])
	}
	return report.WriteJSON(a.stdout, map[string]any{"plans": all})
}

// compileOutputs names each trace's plan, and refuses names that collide.
func compileOutputs(paths []string, f compileFlags) ([]string, error) {
	if len(paths) == 1 && f.output != "" && !isDir(f.output) {
		if f.output == "-" && f.json {
			return nil, twoWriters("-o")
		}
		return []string{f.output}, nil
	}
	if len(paths) > 1 {
		if f.output == "" {
			return nil, &hinted{fmt.Errorf("%d traces need a folder for their plans", len(paths)), "-o DIR"}
		}
		if !isDir(f.output) {
			return nil, fmt.Errorf("%s: expected an existing folder for %d plans", f.output, len(paths))
		}
	}
	names := make([]string, len(paths))
	from := map[string]string{}
	for i, path := range paths {
		if path == "-" {
			return nil, &hinted{errors.New("a trace from standard input needs a name for its plan"), "-o PLAN.bin, or -o - for standard output"}
		}
		names[i] = outputName(path, ".bin")
		if f.output != "" {
			names[i] = filepath.Join(f.output, filepath.Base(names[i]))
		}
		if other, ok := from[names[i]]; ok {
			return nil, fmt.Errorf("%s and %s would both be compiled to %s", other, path, names[i])
		}
		from[names[i]] = path
	}
	return names, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// compileOne compiles one recording and writes its plan.
func (a *app) compileOne(ctx context.Context, path, output string, opt compile.Options) (report.Compiled, error) {
	t, err := a.readTrace(path, trace.Options{})
	if err != nil {
		return report.Compiled{}, err
	}
	stages := a.stages()
	opt.Progress = stages.update
	p, sum, err := compile.Compile(ctx, t, opt)
	stages.done()
	if err != nil {
		return report.Compiled{}, err
	}
	data, err := planfile.Encode(p)
	if err != nil {
		return report.Compiled{}, &bug{err}
	}
	sum.Plan = output
	return sum, a.writeOutput(output, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// printCompiled prints the summary for people, on standard output unless the
// plan went there.
func (a *app) printCompiled(sum report.Compiled, output string) error {
	if output == "-" {
		if a.quiet {
			return nil
		}
		return sum.Write(a.stderr)
	}
	return sum.Write(a.stdout)
}
