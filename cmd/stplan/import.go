package main

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

type importFlags struct {
	output string
	base   string
	json   bool
}

func (a *app) importCommand() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import SNAPSHOT... [-o TRACE.parquet | -o TRACES/]",
		Short: "Turn a PyTorch memory snapshot into a Parquet trace",
		Long: `import reads what torch.cuda.memory._dump_snapshot and its relatives write
(pickle protocols 2 to 5, plain, gzip or zstd) and writes the same recording as
a Parquet trace (docs/trace.md), which pandas, DuckDB and pyarrow open.

Nothing in the snapshot is executed. A pickle that wants to import or call
anything is refused, with the opcode and its byte.

If recording began after the first allocation, import infers what was live then,
and the trace says so. A snapshot taken right after recording was switched on
has the exact state: name it with --base.

Several snapshots, a folder or a pattern are imported into the folder -o, which
is made if it is missing. One that is no good does not stop the others; the exit
code is then 1. It is 2 if a trace could not be written, or a snapshot could not
be reached.`,
		Example: `  stplan import run.pickle.gz                     # writes run.parquet
  stplan import run.pickle -o /data/run.parquet --base start.pickle
  stplan import traces/ -o parquet/
  stplan import - -o - < run.pickle > run.parquet`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(cmd, "expected at least one SNAPSHOT, found none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := demandValues(cmd, "output", "base"); err != nil {
				return err
			}
			in := a.findInputs(args, recordingInputs)
			if err := in.none(); err != nil {
				return err
			}
			if in.many {
				return a.runImportMany(in, f)
			}
			return a.runImport(in.paths[0], f)
		},
	}
	cmd.Flags().StringVarP(&f.output, "output", "o", "", `file to write, "-" for standard output (default: the snapshot's name with .parquet)`)
	cmd.Flags().StringVar(&f.base, "base", "", "snapshot taken when recording began: the exact initial state")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the summary as JSON")
	return cmd
}

// importGCPercent makes import collect garbage early. What it keeps has hardly
// any pointers, so a collection costs little, and touching fresh memory costs
// more: against the default it takes a fifth less time and a quarter less memory.
const importGCPercent = 40

// runImportMany imports several snapshots into a folder.
func (a *app) runImportMany(in inputs, f importFlags) error {
	switch {
	case f.output == "" || f.output == "-":
		return &hinted{fmt.Errorf("%d snapshots need a folder for their traces", len(in.paths)), "-o DIR"}
	case f.base != "":
		return errors.New("--base: expected one snapshot, found a folder, a pattern or several: each has a state of its own")
	}
	targets, err := a.fileOfEach(in.paths, "-o", f.output, ".parquet", "imported")
	if err != nil {
		return err
	}
	a.noteInputs(in.paths)
	defer debug.SetGCPercent(debug.SetGCPercent(importGCPercent))
	all := report.ImportedAll{Recordings: []report.Imported{}}
	s := several{app: a}
	s.lacks(in.failed)
	askEach(&s, "importing", in.paths, func(a *app, i int) (*report.Imported, error) {
		t, err := a.readTrace(in.paths[i], trace.Options{})
		if err != nil {
			return nil, err
		}
		written, err := a.writeTrace(targets[i], t)
		if err != nil {
			return nil, err
		}
		one := summarise(targets[i], t, written)
		return &one, nil
	}, func(one *report.Imported) {
		if one != nil {
			all.Recordings = append(all.Recordings, *one)
		}
	})
	all.Failed = reportFailed(s.failed)
	return s.printAnswer(&all, f.json, "snapshots")
}

func (a *app) runImport(path string, f importFlags) error {
	output := f.output
	if output == "" {
		if path == "-" {
			return &hinted{fmt.Errorf("a snapshot from standard input needs a name for its trace"), "-o TRACE.parquet, or -o - for standard output"}
		}
		output = outputName(path, ".parquet")
	}
	if output == "-" && f.json {
		return twoWriters("-o")
	}
	if err := oneStdin(path, f.base, "SNAPSHOT", "--base"); err != nil {
		return err
	}
	if err := a.demandInputs(path, f.base); err != nil {
		return err
	}
	if err := a.outputs.demand(output); err != nil {
		return err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(importGCPercent))
	var opt trace.Options
	if f.base != "" {
		base, err := a.readTrace(f.base, trace.Options{AllowNoEvents: true})
		if err != nil {
			return err
		}
		opt.Base = base
	}
	t, err := a.readTrace(path, opt)
	if err != nil {
		return err
	}
	written, err := a.writeTrace(output, t)
	if err != nil {
		return err
	}
	return a.printImported(output, t, written, f.json)
}

func (a *app) writeTrace(output string, t *trace.Trace) (int64, error) {
	bar := a.progress("writing")
	defer bar.done()
	var count countingWriter
	err := a.outputs.write(output, func(w io.Writer) error {
		count.w = w
		return trace.WriteParquet(&count, t, trace.Options{Progress: bar.update})
	})
	return count.n, err
}

// printImported prints the summary: on standard output, or, when the trace
// itself went there, on standard error.
func (a *app) printImported(output string, t *trace.Trace, written int64, asJSON bool) error {
	sum := summarise(output, t, written)
	w := a.stdout
	if output == "-" {
		if a.quiet {
			return nil
		}
		w = a.stderr
	}
	if asJSON {
		return report.WriteJSON(w, sum)
	}
	var failures []report.DeviceFailure
	for _, d := range sum.DeviceList {
		failures = append(failures, report.DeviceFailure{Device: d.Device, Failure: d.Failure})
	}
	if err := report.WriteFailures(w, t.Name, failures); err != nil {
		return err
	}
	for _, d := range sum.DeviceList {
		fmt.Fprintf(w, "device %d: %s events, %s allocations", d.Device, report.Count(d.Events), report.Count(d.Allocations))
		if d.InitialBlocks > 0 {
			how := "exact"
			if d.InitialInferred {
				how = "inferred"
			}
			fmt.Fprintf(w, ", %s blocks live before it (%s)", report.Count(d.InitialBlocks), how)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s: %s\n", report.Printable(output), report.Bytes(written))
	return nil
}

func summarise(output string, t *trace.Trace, written int64) report.Imported {
	sum := report.Imported{Trace: output, Bytes: written, Stacks: t.Stacks.Len(), Notes: t.Notes, DeviceList: []report.ImportedDevice{}}
	if sum.Notes == nil {
		sum.Notes = []string{}
	}
	for i := range t.Devices {
		d := &t.Devices[i]
		row := report.ImportedDevice{Device: d.Ordinal, Events: len(d.Events), InitialInferred: d.InitialInferred, Failure: compile.FailureOf(d)}
		for k := range d.Events {
			if d.Events[k].Action == trace.ActionAlloc {
				row.Allocations++
			}
		}
		for _, s := range d.Initial {
			for _, b := range s.Blocks {
				if b.State != trace.BlockInactive {
					row.InitialBlocks++
				}
			}
		}
		sum.Annotations += len(d.Annotations)
		sum.DeviceList = append(sum.DeviceList, row)
	}
	return sum
}
