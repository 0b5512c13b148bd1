package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
)

// several asks one question of several files, one after the other, and goes on after a file
// that has no answer.
type several struct {
	app    *app
	failed []report.FailedTrace
	asked  int
	bug    bool
}

// ask asks it of one file, the n-th of so many.
func (s *several) ask(path string, n, of int, question func() error) {
	s.app.working(path, n, of)
	s.asked++
	if err := question(); err != nil {
		s.failed = append(s.failed, report.FailedTrace{Trace: path, Error: message(err)})
		s.bug = s.bug || isBug(err)
	}
}

// lacks notes arguments that name no file, which count as well.
func (s *several) lacks(failed []report.FailedTrace) {
	s.failed = append(s.failed, failed...)
	s.asked += len(failed)
}

// answer is no if any file had no answer.
func (s *several) answer(what string) error {
	if len(s.failed) == 0 {
		return nil
	}
	err := fmt.Errorf("%d of %d %s failed", len(s.failed), s.asked, what)
	if s.bug {
		return &bug{err}
	}
	return &negative{err.Error()}
}

// pairedPlan is a plan and the recording of its name, "" if none was asked for.
type pairedPlan struct{ plan, trace string }

// pair finds the recording of each plan by the name that compile gives it: plans/run.bin is
// the plan of traces/run.pickle.gz.
func pair(plans, traces inputs) (pairs []pairedPlan, failed []report.FailedTrace) {
	failed = append(append(failed, plans.failed...), traces.failed...)
	byName := map[string]string{}
	for _, t := range traces.paths {
		byName[filepath.Base(outputName(t, ""))] = t
	}
	for _, p := range plans.paths {
		if t, ok := byName[planName(p)]; ok {
			pairs = append(pairs, pairedPlan{p, t})
			delete(byName, planName(p))
		} else {
			failed = append(failed, report.FailedTrace{Trace: p, Error: "no recording of this name"})
		}
	}
	for _, t := range traces.paths {
		if byName[filepath.Base(outputName(t, ""))] == t {
			failed = append(failed, report.FailedTrace{Trace: t, Error: "no plan of this name"})
		}
	}
	return pairs, failed
}

// runPeakMany shows the peaks of several recordings in one table.
func (a *app) runPeakMany(in inputs, f peakFlags, look func(path string) (*report.Peaked, error)) error {
	all := report.PeakedAll{Recordings: []report.Peaked{}}
	s := several{app: a}
	s.lacks(in.failed)
	for i, path := range in.paths {
		s.ask(path, i+1, len(in.paths), func() error {
			one, err := look(path)
			if err == nil {
				all.Recordings = append(all.Recordings, *one)
			}
			return err
		})
	}
	all.Failed = notNilFailed(s.failed)
	if f.json {
		return errors.Join(report.WriteJSON(a.stdout, all), s.answer("recordings"))
	}
	return errors.Join(all.Write(a.stdout), s.answer("recordings"))
}

// runDiffMany compares several plans with their recordings in one table.
func (a *app) runDiffMany(ctx context.Context, plans, traces inputs, f diffFlags, peers []string, budget *fit.Budget) error {
	pairs, failed := pair(plans, traces)
	all := report.ComparedAll{Plans: []report.Compared{}}
	s := several{app: a}
	s.lacks(failed)
	for i, p := range pairs {
		s.ask(p.trace, i+1, len(pairs), func() error {
			compared, err := a.comparePair(ctx, p.plan, p.trace, f, peers, budget)
			all.Plans = append(all.Plans, compared...)
			return err
		})
	}
	all.Failed = notNilFailed(s.failed)
	var err error
	if f.json {
		err = report.WriteJSON(a.stdout, all)
	} else {
		err = all.Write(a.stdout)
	}
	if err != nil {
		return err
	}
	return errors.Join(s.answer("plans"), a.enforce(&f.limits, planVerdicts(&f.limits, all.Plans)))
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
	for i, p := range pairs {
		s.ask(p.plan, i+1, len(pairs), func() error {
			res := report.Verified{Plan: p.plan, Violations: []verify.Violation{}}
			plan, err := a.readPlan(p.plan)
			var format *planfile.FormatError
			switch {
			case errors.As(err, &format):
				res.Violations = append(res.Violations, verify.Violation{Rule: "file", First: -1, Second: -1, Message: format.Error()})
			case err != nil:
				return err
			default:
				a.checkPlan(plan, &res)
				if p.trace != "" {
					t, err := a.readTrace(p.trace, trace.Options{})
					if err != nil {
						return err
					}
					found := verify.AgainstTrace(plan, t)
					match := len(found) == 0
					res.TraceMatch, res.Violations = &match, append(res.Violations, found...)
				}
			}
			res.Verified = len(res.Violations) == 0
			all.Plans = append(all.Plans, res)
			if !res.Verified {
				return fmt.Errorf("does not verify: %s", res.Violations[0].Message)
			}
			return nil
		})
	}
	all.Failed = notNilFailed(s.failed)
	if f.json {
		return errors.Join(report.WriteJSON(a.stdout, all), s.answer("plans"))
	}
	return errors.Join(all.Write(a.stdout), s.answer("plans"))
}

// notNilFailed is an empty list in JSON if nothing failed.
func notNilFailed(failed []report.FailedTrace) []report.FailedTrace {
	if failed == nil {
		return []report.FailedTrace{}
	}
	return failed
}
