package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/verify"
)

type verifyFlags struct {
	traces []string
	json   bool
}

func (a *app) verifyCommand() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify PLAN.bin [--trace TRACE]...",
		Short: "Prove that a plan is whole and right",
		Long: `verify proves a plan without the code that made it: the file is whole; no two
buffers overlap in address while both are live; every reuse that needs a
stream-ordered wait is listed as one; alignment and bounds hold; the lower bound
really is one, and the gap to it is the one claimed. With --trace it also proves
that the plan belongs to this recording and serves each of its allocations. A
plan of several recordings (compile --merge) takes all of them, in the order in
which they were merged.

A folder or a pattern of plans is proved plan by plan, each with the recording
of its name: plans/run.bin with traces/run.pickle.gz.

If a rule does not hold, the exit code is 1, and the first violation is printed
with both buffers.`,
		Example: `  stplan verify run.bin
  stplan verify run.bin --trace run.pickle.gz
  stplan verify plans/ --trace traces/
  stplan verify plan.bin --trace s1.pickle --trace s2.pickle   # of --merge`,
		Args: exactArgs("PLAN.bin"),
		RunE: func(_ *cobra.Command, args []string) error { return a.runVerify(args[0], f) },
	}
	cmd.Flags().StringArrayVar(&f.traces, "trace", nil, "the recording that the plan should belong to; of several recordings, once for each")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the result as JSON")
	return cmd
}

func (a *app) runVerify(path string, f verifyFlags) error {
	if plans := a.findInputs([]string{path}, planInputs); plans.many {
		if err := plans.none(); err != nil {
			return err
		}
		return a.runVerifyMany(plans, a.findInputs(f.traces, recordingInputs), f)
	}
	for _, t := range f.traces {
		if err := oneStdin(path, t, "PLAN.bin", "--trace"); err != nil {
			return err
		}
	}
	if err := a.demandInputs(append([]string{path}, f.traces...)...); err != nil {
		return err
	}
	res, err := a.proved(path, f.traces)
	if err != nil {
		return err
	}
	return a.printVerified(res, f.json)
}

// proved is what comes of proving a plan, by its recordings too if there are any. A plan of a
// newer format, and a file that is no plan, are errors: nothing can be said of them.
func (a *app) proved(path string, traces []string) (report.Verified, error) {
	res := report.Verified{Plan: inputName(path), Violations: []verify.Violation{}}
	p, err := a.readPlan(path)
	var format *planfile.FormatError
	switch {
	case errors.As(err, &format) && !errors.Is(err, planfile.ErrNewerVersion):
		res.Violations = append(res.Violations, verify.Violation{Rule: "file", First: -1, Second: -1, Message: format.Error()})
		return res, nil
	case err != nil:
		return res, err
	}
	a.checkPlan(p, &res)
	if len(traces) > 0 {
		t, err := a.readJoined(traces)
		if err != nil {
			return res, err
		}
		found := verify.AgainstTrace(p, t)
		match := len(found) == 0
		res.TraceMatch, res.Violations = &match, append(res.Violations, found...)
	}
	res.Verified = len(res.Violations) == 0
	return res, nil
}

// runVerifyMany proves several plans, and with traces that each is that of the recording of
// its name.
func (a *app) runVerifyMany(plans, traces inputs, f verifyFlags) error {
	pairs, failed := pair(plans, traces)
	if len(f.traces) == 0 {
		pairs, failed = nil, plans.failed
		for _, p := range plans.paths {
			pairs = append(pairs, pairedPlan{plan: p})
		}
	}
	all := report.VerifiedAll{Plans: []report.Verified{}}
	s := several{app: a}
	s.lacks(failed)
	plansOf := make([]string, len(pairs))
	for i, p := range pairs {
		plansOf[i] = p.plan
	}
	askEach(&s, "verifying", plansOf, func(a *app, i int) (*report.Verified, error) {
		var recording []string
		if pairs[i].trace != "" {
			recording = []string{pairs[i].trace}
		}
		res, err := a.proved(pairs[i].plan, recording)
		if err != nil {
			return nil, err
		}
		if !res.Verified {
			err = fmt.Errorf("does not verify: %s", res.Violations[0].Message)
		}
		return &res, err
	}, func(res *report.Verified) {
		if res != nil {
			all.Plans = append(all.Plans, *res)
		}
	})
	all.Failed = reportFailed(s.failed)
	return s.printAnswer(&all, f.json, "plans")
}

func (a *app) checkPlan(p *planfile.Plan, res *report.Verified) {
	a.working(res.Plan, 1, 1)
	bar := a.progress("verifying")
	defer bar.done()
	res.Violations = append(res.Violations, verify.Plan(p, bar.update)...)
	res.Devices = len(p.Devices)
	for i := range p.Devices {
		res.Buffers += p.Devices[i].Allocations()
		waits := report.WaitsOf(&p.Devices[i])
		res.Waits, res.CrossWaits = res.Waits+waits.Count, res.CrossWaits+waits.CrossStream
		if advice := p.Devices[i].Advice.String(); advice != "" {
			res.Advice = append(res.Advice, fmt.Sprintf("device %d: %s", p.Devices[i].Ordinal, advice))
		}
	}
}

func (a *app) printVerified(res report.Verified, asJSON bool) error {
	if asJSON {
		if err := report.WriteJSON(a.stdout, res); err != nil {
			return err
		}
	} else if res.Verified {
		line := fmt.Sprintf("%s: %s: %s buffers on %s, %s; no overlap, bounds and certificate hold", report.Printable(res.Plan), verdict(a.stdout, true, "verified"), report.Count(res.Buffers), counted(res.Devices, "device"), report.CountWaits(res.Waits, res.CrossWaits))
		if res.TraceMatch != nil {
			line += "; it is the plan of this trace"
		}
		for _, advice := range res.Advice {
			line += "; " + advice
		}
		if _, err := fmt.Fprintln(a.stdout, line); err != nil {
			return err
		}
	}
	if res.Verified {
		return nil
	}
	more := ""
	if n := len(res.Violations) - 1; n > 0 {
		more = fmt.Sprintf(" (and at least %s more)", report.Count(n))
	}
	return &negative{fmt.Sprintf("%s: does not verify: %s%s", res.Plan, res.Violations[0].Message, more)}
}
