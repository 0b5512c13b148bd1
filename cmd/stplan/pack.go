package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/report"
)

type packFlags struct {
	output    string
	capacity  int64
	alignment int64
	timeLimit time.Duration
	json      bool
}

func (a *app) packCommand() *cobra.Command {
	var f packFlags
	cmd := &cobra.Command{
		Use:   "pack INSTANCE.csv [-o OUT.csv]",
		Short: "Pack buffers from a CSV file",
		Long: `pack is the packer alone, on minimalloc's file form: a header
id,lower,upper,size and one buffer a row, live in [lower, upper). It writes the
same rows with an offset each. Sizes are exact bytes, unless --alignment rounds
them up.

With --capacity it stops as soon as the buffers fit. If no placement is found,
the exit code is 1 and no file is written. The message says whether none exists
or none was found.`,
		Example: `  stplan pack instance.csv -o packed.csv
  stplan pack instance.csv --capacity 1048576 --json
  stplan pack - < instance.csv > packed.csv`,
		Args: exactArgs("INSTANCE.csv"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := demandValues(cmd, "output"); err != nil {
				return err
			}
			if cmd.Flags().Changed("capacity") && f.capacity < 1 {
				return fmt.Errorf("--capacity: expected at least 1 byte, found %d", f.capacity)
			}
			return a.runPack(cmd.Context(), args[0], f)
		},
	}
	cmd.Flags().StringVarP(&f.output, "output", "o", "", `file to write, "-" for standard output (default: standard output, or none with --json)`)
	cmd.Flags().Int64Var(&f.capacity, "capacity", 0, "bytes that the buffers must fit in (default: as few as possible)")
	cmd.Flags().Int64Var(&f.alignment, "alignment", 1, "round sizes up to, and offsets to, a multiple of this many bytes")
	cmd.Flags().DurationVar(&f.timeLimit, "time-limit", 0, "stop improving after this long, e.g. 30s (default: none)")
	cmd.Flags().BoolVar(&f.json, "json", false, "print a summary as JSON on standard output")
	return cmd
}

func (a *app) runPack(ctx context.Context, path string, f packFlags) error {
	if f.timeLimit < 0 {
		return fmt.Errorf("--time-limit: expected at least 0s, found %v", f.timeLimit)
	}
	if f.alignment < 1 {
		return fmt.Errorf("--alignment: expected at least 1 byte, found %d", f.alignment)
	}
	if f.output == "-" && f.json {
		return twoWriters("-o")
	}
	if err := a.demandInputs(path); err != nil {
		return err
	}
	if err := a.outputs.demand(f.output); err != nil {
		return err
	}
	ids, problem, err := a.readInstance(path)
	if err != nil {
		return err
	}
	problem.Alignment = packing.Bytes(f.alignment)
	began := time.Now()
	a.working(path, 1, 1)
	bar := a.progress("packing")
	placement, err := packing.Pack(ctx, problem, packing.Options{
		Capacity: packing.Bytes(f.capacity), TimeLimit: f.timeLimit,
		Progress: func(done, total int, _ packing.Bytes) { bar.update(int64(done), int64(total)) },
	})
	bar.done()
	var over *packing.CapacityError
	if err != nil && !errors.As(err, &over) {
		return fmt.Errorf("%s: %w", inputName(path), err)
	}
	sum := report.Packed{
		Instance: inputName(path), Buffers: len(ids), Makespan: int64(placement.Makespan),
		LowerBound: int64(placement.LowerBound), MaxLoad: int64(placement.MaxLoad.Load), MaxLoadAt: int64(placement.MaxLoad.At),
		Gap:       report.GapShare(int64(placement.Makespan), int64(placement.LowerBound)),
		Heuristic: placement.Heuristic, TimeLimitHit: placement.TimeLimitHit, Seconds: time.Since(began).Seconds(),
	}
	if f.capacity > 0 {
		sum.Capacity = &f.capacity
		if fits := over == nil; fits || over.Infeasible() {
			sum.Fits = &fits
		}
	}
	if over == nil {
		if err := a.writePacked(ids, problem, placement, f, &sum); err != nil {
			return err
		}
	}
	if f.json {
		if err := report.WriteJSON(a.stdout, sum); err != nil {
			return err
		}
	}
	if over != nil {
		return &negative{fmt.Sprintf("%s: %v", inputName(path), over)}
	}
	return nil
}

func (a *app) readInstance(path string) ([]string, *packing.Problem, error) {
	f, err := a.open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return packing.ReadCSV(f, inputName(path))
}

func (a *app) writePacked(ids []string, p *packing.Problem, pl packing.Placement, f packFlags, sum *report.Packed) error {
	output := f.output
	if output == "" && !f.json {
		output = "-"
	}
	if output == "" {
		return nil
	}
	sum.OutputWritten = &output
	if err := a.outputs.write(output, func(w io.Writer) error { return packing.WriteCSV(w, ids, p, pl) }); err != nil {
		return err
	}
	if f.json {
		return nil
	}
	// The rows are the result. If they went to standard output, this line must not.
	w := a.stdout
	if output == "-" {
		if a.quiet {
			return nil
		}
		w = a.stderr
	}
	_, err := fmt.Fprintf(w, "%s buffers in %s bytes, lower bound %s, gap %s (%s)\n", report.Count(len(ids)), report.Count(sum.Makespan),
		report.Count(sum.LowerBound), report.Gap(sum.Makespan, sum.LowerBound), sum.Heuristic)
	return err
}
