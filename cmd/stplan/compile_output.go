package main

import (
	"time"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
)

type compileFlags struct {
	output         string
	mode           string
	marker         string
	noReusePending bool
	noCrossStream  bool
	timeLimit      time.Duration
	maxScale       float64
	merge          bool
	against        string
	wholeRun       bool
	shard          string
	part           shard // what shard says
	json           bool
}

// writePlan makes a plan and writes it, unless one that was there before is kept.
func (a *app) writePlan(output string, opt compile.Options, make func(compile.Options) (*planfile.Plan, report.Compiled, error)) (report.Compiled, error) {
	stages := a.stages()
	opt.Progress = stages.update
	p, sum, err := make(opt)
	stages.done()
	if err != nil {
		return report.Compiled{}, err
	}
	sum.Plan = output
	if sum.Kept {
		return sum, nil
	}
	data, err := planfile.Encode(p)
	if err != nil {
		return report.Compiled{}, &bug{err}
	}
	return sum, a.outputs.writeBytes(output, data)
}

// printCompiled prints the summary for people, on standard output unless the
// plan went there.
func (a *app) printCompiled(sum report.Compiled, output string) error {
	if output == "-" {
		if a.quiet {
			return nil
		}
		return sum.Write(a.stderr)
	}
	return sum.Write(a.stdout)
}
