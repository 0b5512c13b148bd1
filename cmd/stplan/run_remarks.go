package main

import (
	"fmt"

	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/runtime/cuda"
)

// remarks are what is to be said of several processes at once, in the order in
// which each was said first.
type remarks struct {
	texts []string
	of    map[string][]string // names of processes, by text
	grave map[string]bool     // it went wrong
}

func (m *remarks) note(name, text string) {
	if m.of == nil {
		m.of, m.grave = map[string][]string{}, map[string]bool{}
	}
	if m.of[text] == nil {
		m.texts = append(m.texts, text)
	}
	m.of[text] = append(m.of[text], name)
}

func (m *remarks) problem(name, text string) {
	m.note(name, text)
	m.grave[text] = true
}

func (m *remarks) ofDevice(name string, d report.ServedDevice) {
	off := d.PlanState == planStates[cuda.Off]
	switch {
	case off && d.PlannedAllocations == 0:
		m.note(name, "the plan was given up: its memory was not to be had, or nothing fitted; served from the pool")
	case off:
		m.note(name, "the plan was suspended at the end: it does not fit this run; served from the pool then")
	case d.PlanState == planStates[cuda.Declined]:
		m.note(name, "served from the pool alone: the plan does not pay, as compile found; its advice is followed")
	case d.PlanState == planStates[cuda.Ended] && d.PlannedAllocations < d.Allocations:
		m.note(name, "the plan is of the recorded steps only and has ended; served from the pool after them")
	}
	if d.RefusedFrees > 0 {
		m.note(name, "freed memory that was not allocated; refused and counted (refused_frees of --summary)")
	}
}

func (m *remarks) print(a *app) {
	for _, text := range m.texts {
		line := report.Names(m.of[text]) + ": " + text
		if m.grave[text] {
			fmt.Fprintf(a.stderr, "stplan: %s\n", report.Printable(line))
		} else {
			a.note("%s", line)
		}
	}
}
