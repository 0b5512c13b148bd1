package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// ranOut is what is known of a process that ran out of memory, once a plan has been made of what it
// had asked for by then. Sizes are bytes.
type ranOut struct {
	had     int64 // what it could have in all
	planned int64 // what the same requests take by the plan, and the one that failed
}

// ranOutOf is the device of a plan whose history ends in an out-of-memory, by what compile says;
// nil if none does.
func ranOutOf(summary []byte) *ranOut {
	var all report.CompiledAll
	if json.Unmarshal(summary, &all) != nil || len(all.Plans) != 1 {
		return nil
	}
	for _, d := range all.Plans[0].Devices {
		if d.Failure != nil && d.Failure.Fatal && d.Judged != nil {
			return &ranOut{d.Failure.Had, min(d.Judged.Planned, d.Judged.Pool)}
		}
	}
	return nil
}

// line is what to do next.
func (r *ranOut) line(name string) string {
	text := fmt.Sprintf("%s ran out of memory: it could have %s. By the plan that was made of it, what it asked for takes %s: ",
		name, report.Bytes(r.had), report.Bytes(r.planned))
	if r.planned <= r.had {
		return text + "run it again"
	}
	return text + "it may fit if it is run again"
}

// knowsMore says whether a plan in the cache was made of a longer run than a history that ends in an
// out-of-memory. Such a run did not go beyond its plan: something else took the memory.
func (l *learner) knowsMore(plan, history string) bool {
	p, err := l.app.readPlan(plan)
	if err != nil {
		return false
	}
	t, err := trace.ReadFile(history, trace.Options{})
	if err != nil {
		return false
	}
	longer := false
	for i := range t.Devices {
		d := &t.Devices[i]
		if failures := d.Failures(); !failures.Fatal {
			continue
		}
		for k := range p.Devices {
			if own := p.Devices[k].Ordinal == uint32(d.Ordinal) || len(p.Devices) == 1; own && p.Devices[k].Events > uint64(len(d.Events)) {
				longer = true
			}
		}
	}
	return longer
}

// tellRanOut says which processes ran out of memory, once each.
func (l *learner) tellRanOut() {
	var names []string
	for name := range l.ranOut {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		l.app.note("%s", l.ranOut[name].line(name))
		delete(l.ranOut, name)
	}
}
