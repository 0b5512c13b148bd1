package main

import (
	"fmt"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/trace"
)

// lakeRun is one comparison with GMLake's code.
type lakeRun struct {
	title       string
	environment []string // GMLake's settings
	rising      bool     // new addresses lie above the others
	share       float64  // of what its simulator reserves without a limit is what the device has, 0 for no limit
	ours        func(baseline.Config) baseline.Allocator
}

// lakeRuns are its defaults, with the addresses that the simulator has and with others, and
// the settings that come nearest to its paper's policy, which the code does not quite have.
var lakeRuns = []lakeRun{
	{title: "defaults", ours: baseline.GMLake},
	{title: "defaults, new addresses above", rising: true, ours: baseline.GMLake},
	{title: "defaults, 97 % of the memory", share: 0.97, ours: baseline.GMLake},
	{title: "paper", environment: []string{"fragLimit=2097153", "reuseLimit=1", "reAlloc=1"}, ours: baseline.GMLakePaper},
}

func compareGMLake(binary string, paths []string) error {
	fmt.Println("| recording | settings | their peak / allocated | ours | operations | differ | first at entry | largest difference |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, path := range paths {
		r, err := open(path)
		if err != nil {
			return err
		}
		for _, run := range lakeRuns {
			row, err := r.compareLake(binary, run)
			if err != nil {
				row = fmt.Sprintf("their code ended: %v", err)
			}
			fmt.Printf("| %s | %s | %s |\n", name(path), run.title, row)
		}
	}
	return nil
}

func (r *recording) compareLake(binary string, run lakeRun) (row string, err error) {
	allocator, limit := run.ours(r.recorded), trace.Bytes(0)
	ours, err := follow(r.program, allocator)
	if err != nil {
		return "", err
	}
	if run.share > 0 {
		limit = trace.Bytes(run.share * float64(ours.PeakReserved))
		if ours, err = follow(r.program, allocator.Within(limit, limit)); err != nil {
			return "", err
		}
	}
	p, err := startPeer(binary, run.environment)
	if err != nil {
		return "", err
	}
	p.layOut(r.device, run.rising)
	if limit > 0 {
		p.say("l %d", limit)
	}
	theirs, err := follow(r.program, baseline.Allocator{New: func(*baseline.Program) (baseline.Model, error) { return p, nil }})
	if stopped := p.stop(); stopped != nil {
		return "", stopped
	}
	if err != nil {
		return "", err
	}
	allocated := float64(baseline.FromRecording(r.device).PeakAllocated)
	d := compare(ours, theirs)
	return fmt.Sprintf("%.4f | %.4f | %d | %d | %d | %.2f %%", float64(theirs.PeakReserved)/allocated, float64(ours.PeakReserved)/allocated,
		d.operations, d.differ, d.first, 100*d.worst), nil
}
