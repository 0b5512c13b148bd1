package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/report"
)

func (a *app) reportCommand() *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report PLAN.bin --trace TRACE [-o FILE] [--svg FILE] [--png FILE]",
		Short: "Draw a plan and its recording: one HTML file, or still pictures",
		Long: `report writes one HTML file that any browser opens, without a network:

  memory over time: what the program held, and what PyTorch's native allocator,
  its expandable segments, the runtime's pool and the plan reserve for it;
  the plan as a picture, time by address, each buffer a rectangle, beside the
  segments of the recorded allocator: what is grey there was reserved and of no
  use. Point at a buffer for its size, lifetime and stack, search for a line of
  code, zoom and move with the mouse or the keyboard;
  where the lower bound binds, what was in memory at the peak as a flame graph,
  and the tables of "stplan diff" and "stplan peak", whose figures it has.

--svg and --png write a still picture for a paper, a chat or a terminal: memory
over time, and both pictures by address. Without -o no page is written then.

A folder or a pattern of plans, with one of recordings, makes a page for each
plan, with the recording of its name. -o, --svg and --png are folders then;
without them each page lies beside its plan.

A plan of several recordings (compile --merge) takes all of them, in the order
in which they were merged, and shows them as one: the first, and then the steady
iterations of the others, as the plan was made from them. What was recorded of
the allocator is left out then.

docs/report.md says what is on the page and how to read it.`,
		Example: `  stplan report run.bin --trace run.pickle.gz            # writes run.html
  stplan report run.bin --trace run.pickle.gz -o report.html
  stplan report run.bin --trace run.pickle.gz --png run.png --svg run.svg
  stplan report plans/ --trace traces/ -o pages/
  stplan report plan.bin --trace s1.pickle --trace s2.pickle   # of --merge`,
		Args: exactArgs("PLAN.bin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := demandValues(cmd, "trace", "output", "svg", "png"); err != nil {
				return err
			}
			return a.runReport(args[0], f, cmd.Flags().Changed("device"))
		},
	}
	cmd.Flags().StringArrayVar(&f.traces, "trace", nil, "the recording that the plan was made from; of several recordings, once for each")
	cmd.Flags().StringVarP(&f.output, "output", "o", "", `HTML file to write, "-" for standard output (default: the plan's name with .html)`)
	cmd.Flags().StringVar(&f.svg, "svg", "", `still picture to write as SVG, "-" for standard output`)
	cmd.Flags().StringVar(&f.png, "png", "", `still picture to write as PNG, "-" for standard output`)
	cmd.Flags().IntVar(&f.device, "device", 0, "show only this device")
	cmd.Flags().BoolVar(&f.json, "json", false, "print what was written as JSON")
	return cmd
}

func (a *app) runReport(path string, f reportFlags, oneDevice bool) error {
	if len(f.traces) == 0 {
		return &hinted{errors.New("report needs the recording that the plan was made from"), "--trace TRACE"}
	}
	if plans := a.findInputs([]string{path}, planInputs); plans.many {
		if err := plans.none(); err != nil {
			return err
		}
		return a.runReportMany(plans, a.findInputs(f.traces, recordingInputs), f, oneDevice)
	}
	for i, t := range f.traces {
		if err := oneStdin(path, t, "PLAN.bin", "--trace"); err != nil {
			return err
		}
		var err error
		if f.traces[i], err = a.oneRecording(t); err != nil {
			return err
		}
	}
	output, err := reportOutput(path, f)
	if err != nil {
		return err
	}
	if err := a.demandInputs(append([]string{path}, f.traces...)...); err != nil {
		return err
	}
	if err := a.outputs.demand(output, f.svg, f.png); err != nil {
		return err
	}
	result, err := a.writeReport(path, output, f, oneDevice)
	switch {
	case err != nil:
		return err
	case f.json:
		return report.WriteJSON(a.stdout, result)
	case output == "-" || f.svg == "-" || f.png == "-":
		return nil
	}
	return result.Write(a.stdout)
}

// noteReport names the command that draws a plan, if both files are there to be read again.
func (a *app) noteReport(plan, recording string) {
	if plan != "-" && recording != "-" {
		a.note("stplan report %s --trace %s draws it", shellQuote(plan), shellQuote(inputName(recording)))
	}
}

// reportOutput is the page to write, "" for none.
func reportOutput(path string, f reportFlags) (string, error) {
	var streams []string // flags that write to standard output
	for _, flag := range [][2]string{{"-o", f.output}, {"--svg", f.svg}, {"--png", f.png}} {
		if flag[1] == "-" {
			streams = append(streams, flag[0])
		}
	}
	switch {
	case len(streams) > 1:
		return "", fmt.Errorf("%s: only one can be standard output", strings.Join(streams, " and "))
	case len(streams) > 0 && f.json:
		return "", twoWriters(streams[0])
	case f.output != "", f.svg != "", f.png != "":
		return f.output, nil
	case path == "-":
		return "", &hinted{errors.New("a plan from standard input needs a name for its report"), "-o FILE, or -o - for standard output"}
	}
	return outputName(strings.TrimSuffix(path, ".bin"), ".html"), nil
}
