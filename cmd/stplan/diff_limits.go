package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/report"
)

// limitFlags are the limits that a comparison is held to, for CI.
type limitFlags struct {
	under   float64
	isUnder bool // --fail-under was given
	over    string
	junit   string
	allowed *allowance // of --fail-over, nil without it
}

func (f *limitFlags) add(cmd *cobra.Command) {
	cmd.Flags().Float64Var(&f.under, "fail-under", 0, "exit with code 1 if the plan avoids less than this percentage of native's waste")
	cmd.Flags().StringVar(&f.over, "fail-over", "", "exit with code 1 if more is taken than `2%` or 512MiB above what it is compared with")
	cmd.Flags().StringVar(&f.junit, "junit", "", "write the limits and whether they were met to this file, as JUnit's XML")
}

// read checks the flags.
func (f *limitFlags) read(cmd *cobra.Command) error {
	f.isUnder = cmd.Flags().Changed("fail-under")
	if f.isUnder && !(f.under <= 100) { // NaN too
		return fmt.Errorf("--fail-under: expected a percentage of at most 100, found %g", f.under)
	}
	if f.over != "" {
		allowed, err := parseAllowance(f.over)
		if err != nil {
			return fmt.Errorf("--fail-over: %w", err)
		}
		f.allowed = allowed
	}
	if f.junit != "" && !f.isUnder && f.allowed == nil {
		return &hinted{errors.New("--junit writes what came of limits, and there is none"), "--fail-over 2%"}
	}
	return nil
}

// allowance is how much more something may take: a share or a number of bytes.
type allowance struct {
	text  string
	share float64
	bytes int64
}

func parseAllowance(text string) (*allowance, error) {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(percent >= 0) || math.IsInf(percent, 1) {
			return nil, fmt.Errorf("expected a percentage from 0 on, found %q", text)
		}
		return &allowance{text: text, share: percent / 100}, nil
	}
	if text == "0" {
		return &allowance{text: text}, nil
	}
	n, err := baseline.ParseMemory(text)
	if err != nil {
		return nil, fmt.Errorf("expected a percentage such as 2%%, bytes, or a number with a unit such as 512MiB, found %q", text)
	}
	return &allowance{text: text, bytes: int64(n)}, nil
}

// exceeded says in words how much more than base a value is, if that is more than is
// allowed.
func (w *allowance) exceeded(what string, value, base int64) string {
	if float64(value-base) <= w.share*float64(base)+float64(w.bytes) {
		return ""
	}
	more := ""
	if base > 0 {
		more = ", " + report.Percent(float64(value)/float64(base)-1)
	}
	return fmt.Sprintf("%s, %s more than %s%s; the limit is %s", what, report.Bytes(value-base), report.Bytes(base), more, w.text)
}

// limit names --fail-over for JUnit.
func (w *allowance) limit(of string) string { return "fail-over " + w.text + ": " + of }

// enforce writes verdicts to --junit, and is a negative if there is a problem.
func (a *app) enforce(f *limitFlags, verdicts []report.Verdict) error {
	if f.junit != "" {
		err := a.outputs.write(f.junit, func(w io.Writer) error { return report.WriteJUnit(w, "stplan diff", verdicts) })
		if err != nil {
			return err
		}
	}
	var problems []error
	for _, v := range verdicts {
		if v.Problem != "" {
			problems = append(problems, &negative{v.Subject + ": " + v.Problem})
		}
	}
	return errors.Join(problems...)
}

// planVerdicts hold a plan to the limits, device by device.
func planVerdicts(f *limitFlags, all []report.Compared) []report.Verdict {
	var out []report.Verdict
	for i := range all {
		c := &all[i]
		subject := fmt.Sprintf("%s: device %d", c.Plan.File, c.Device)
		if f.isUnder {
			out = append(out, report.Verdict{Subject: subject, Limit: fmt.Sprintf("fail-under %g %%", f.under), Problem: reductionProblem(c, f.under)})
		}
		if f.allowed != nil {
			served := c.Plan.Served()
			what := "takes " + report.Bytes(served)
			out = append(out, report.Verdict{Subject: subject, Limit: f.allowed.limit("peak allocated"), Problem: f.allowed.exceeded(what, served, c.Plan.PeakAllocated)})
		}
	}
	return out
}

// reductionProblem is why a device does not meet --fail-under, "" if it does. If native
// wastes nothing, there is nothing to reduce, and a plan that wastes nothing passes. A
// device does not pass if the simulation could not establish its figures.
func reductionProblem(c *report.Compared, percent float64) string {
	switch r := c.Plan.ReductionNative; {
	case c.SelfCheck.Nothing():
		return "the trace has no addresses and no segments to check the simulation by, so there is nothing to judge by"
	case !c.SelfCheck.Exact():
		return "the simulation does not reproduce the recording, so there is nothing to judge by"
	case c.Simulated.Row(baseline.KeyNative).OutOfMemory != nil:
		return "native runs out of memory, so there is no figure to judge by"
	case r == nil && c.Plan.Waste > 0:
		return "native wastes nothing, and the plan " + report.Bytes(c.Plan.Waste)
	case r != nil && 100**r < percent:
		return fmt.Sprintf("the plan avoids %s of native's waste, less than the limit of %g %%", report.Percent(*r), percent)
	}
	return ""
}
