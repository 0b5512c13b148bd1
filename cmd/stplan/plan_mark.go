package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/runtime/cuda"
)

// Shares of the bytes that a run has asked for while it followed a plan. From proves on, on plan,
// the plan is proven: runs of the plan's own job have 99 % and more (docs/results/disturbed.md).
// Below leaves it is not any more; so few have another plan made (device_learn.c). Between the two
// it stays as it is.
const (
	proves = 0.99
	leaves = 0.90
)

// markForm is the content of a mark: the checksum in the header of the plan that is proven.
// _proven.py reads it.
const markForm = "stplan-proven 1 %016x\n"

// judge marks the plans of the cache that all processes of the job have followed which had them,
// and takes the marks of those that one has left. Nothing is changed with --no-learn.
func (l *learner) judge(reports string, all []runReport) {
	if l == nil || !l.learns {
		return
	}
	followed := map[string][]cuda.Counters{} // by the plan's path
	for _, r := range all {
		if r.Cached == nil || r.State != stateServing {
			continue
		}
		if plan, err := l.cache.path(*r.Cached); err == nil {
			followed[plan] = append(followed[plan], countersOf(reports, r.Name)...)
		}
	}
	for plan, counters := range followed {
		if err := l.app.markPlan(plan, counters); err != nil {
			l.app.note("%s: whether the run followed this plan is not kept: %v", plan, err)
		}
	}
}

// countersOf are those of a process's devices which can be read.
func countersOf(reports, name string) (all []cuda.Counters) {
	files, _ := filepath.Glob(filepath.Join(reports, name+".device*"))
	for _, file := range files {
		if c, err := readCounters(file); err == nil {
			all = append(all, c)
		}
	}
	return all
}

// markPlan marks a plan, or takes its mark, by how devices have followed it.
func (a *app) markPlan(plan string, counters []cuda.Counters) error {
	data, err := os.ReadFile(plan)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cause(err)
	}
	p, err := planfile.Decode(data)
	if err != nil {
		return nil // the next run says so, and replaces it
	}
	worst, judged := shareOnPlan(p, data, counters)
	switch {
	case judged && worst >= proves:
		return a.outputs.writeBytes(markOf(plan), fmt.Appendf(nil, markForm, planfile.Checksum(data)))
	case judged && worst < leaves:
		return removeFile(markOf(plan))
	}
	return nil
}

// shareOnPlan is the share of the bytes that was on plan, of the device that followed it worst. Those count that have
// followed the very plan with this data, for as many bytes as it has in all: fewer do not
// show whether a run follows it. judged is whether there is such a device.
func shareOnPlan(p *planfile.Plan, data []byte, counters []cuda.Counters) (worst float64, judged bool) {
	sum, enough := planfile.Checksum(data), bytesOnce(p)
	worst = 1
	for _, c := range counters {
		if c.FollowedPlan == sum && c.FollowedBytes >= enough && enough > 0 {
			worst, judged = min(worst, float64(c.FittingBytes)/float64(c.FollowedBytes)), true
		}
	}
	return worst, judged
}

// bytesOnce is what the slots of a plan's device have together, the most of any device.
func bytesOnce(p *planfile.Plan) (most uint64) {
	for i := range p.Devices {
		var all uint64
		for k := range p.Devices[i].Slots {
			all += p.Devices[i].Slots[k].Size
		}
		most = max(most, all)
	}
	return most
}
