package main

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// ranOut is what is known of a process that ran out of memory, once a plan has been made of what it
// had asked for by then. Sizes are bytes.
type ranOut struct {
	had     int64 // what it could have in all
	planned int64 // what the same requests take by the plan, and the one that failed
}

// spare is what a run by the plan would have left.
func (r *ranOut) spare() int64 { return r.had - r.planned }

// compiledDevices are those of the one plan that compile has made, by what it says; none if it says nothing.
func compiledDevices(summary []byte) []report.CompiledDevice {
	var all report.CompiledAll
	if json.Unmarshal(summary, &all) != nil || len(all.Plans) != 1 {
		return nil
	}
	return all.Plans[0].Devices
}

// ranOutOf is the device of a plan whose history ends in an out-of-memory; nil if none does.
func ranOutOf(devices []report.CompiledDevice) *ranOut {
	for _, d := range devices {
		if d.Failure != nil && d.Failure.Fatal && d.Judged != nil {
			return &ranOut{d.Failure.Had, min(d.Judged.Planned, d.Judged.Pool)}
		}
	}
	return nil
}

// knowsMore says whether a plan, if there is one, was made of a longer run than a history that ends in an
// out-of-memory. Such a run did not go beyond its plan: something else took the memory.
func knowsMore(p *planfile.Plan, history string) bool {
	if p == nil {
		return false
	}
	t, err := trace.ReadFile(history, trace.Options{})
	if err != nil {
		return false
	}
	for i := range t.Devices {
		d := &t.Devices[i]
		if failures := d.Failures(); !failures.Fatal {
			continue
		}
		for k := range p.Devices {
			if own := p.Devices[k].Ordinal == uint32(d.Ordinal) || len(p.Devices) == 1; own && p.Devices[k].Events > uint64(len(d.Events)) {
				return true
			}
		}
	}
	return false
}

// tellRanOut says once which processes ran out of memory, and of the one that is nearest to doing so again by its
// plan what to do.
func (l *learner) tellRanOut() {
	var names []string
	for name := range l.ranOut {
		names = append(names, name)
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	worst := slices.MinFunc(names, func(a, b string) int { return cmp.Compare(l.ranOut[a].spare(), l.ranOut[b].spare()) })
	who, next := worst, "run it again"
	if len(names) == 1 {
		who = "it"
	}
	if l.ranOut[worst].spare() < 0 {
		next = "it may fit if it is run again"
	}
	l.app.note("%s ran out of memory: %s could have %s. By the plan that was made of it, what it asked for takes %s: %s",
		report.Names(names), who, report.Bytes(l.ranOut[worst].had), report.Bytes(l.ranOut[worst].planned), next)
	clear(l.ranOut)
}
