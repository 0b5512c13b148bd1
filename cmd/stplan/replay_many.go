package main

import (
	"errors"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// runReplayMany replays several recordings in one table: each served by the plan of its name, all
// by one plan, or without one.
func (a *app) runReplayMany(plans, traces inputs, f replayFlags, chosen bool) error {
	if f.addresses != "" {
		return errors.New("--addresses: expected one recording, found a folder or a pattern: one file cannot have the addresses of several")
	}
	pairs, failed := replayPairs(plans, traces)
	a.noteInputs(append(plans.paths, traces.paths...))
	all := report.ReplayedAll{Recordings: []report.Replayed{}}
	s := several{app: a}
	s.lacks(failed)
	askEach(&s, "replaying", recordingsOf(pairs), func(a *app, i int) ([]report.Replayed, error) {
		t, p, err := a.readReplayed(pairs[i].plan, pairs[i].trace, f)
		if err != nil {
			return nil, err
		}
		return a.replayedDevices(t, p, pairs[i].plan, f, chosen)
	}, func(replayed []report.Replayed) { all.Recordings = append(all.Recordings, replayed...) })
	all.Failed = reportFailed(s.failed)
	return s.printAnswer(&all, f.json, "recordings")
}

// replayPairs are the recordings with their plans. One plan that is named as a file serves all.
func replayPairs(plans, traces inputs) (pairs []pairedPlan, failed []failure) {
	switch {
	case plans.many:
		return pair(plans, traces)
	case len(plans.paths) == 0:
		plans.paths = []string{""} // no plan
	}
	for _, t := range traces.paths {
		pairs = append(pairs, pairedPlan{plans.paths[0], t})
	}
	return pairs, append(plans.failed, traces.failed...)
}

// replayedDevices replays the devices of a recording, or the chosen one. Blocks that overlap are
// an error, and what was replayed is there nevertheless.
func (a *app) replayedDevices(t *trace.Trace, p *planfile.Plan, planPath string, f replayFlags, chosen bool) ([]report.Replayed, error) {
	devices, err := allocatingDevices(t, f.device, chosen)
	if err != nil {
		return nil, err
	}
	var out []report.Replayed
	for _, d := range devices {
		one, err := a.replayed(t, d, p, planPath, f)
		if err != nil {
			return out, err
		}
		out = append(out, one.out)
		if err := one.overlaps(t); err != nil {
			return out, err
		}
	}
	return out, nil
}
