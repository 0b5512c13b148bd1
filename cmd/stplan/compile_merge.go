package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// mergedOutput is the one plan of several traces.
func mergedOutput(paths []string, f compileFlags) ([]string, error) {
	switch {
	case len(paths) < 2:
		return nil, fmt.Errorf("--merge: expected two traces or more, found %d", len(paths))
	case f.output == "" || isDir(f.output):
		return nil, &hinted{errors.New("one plan of several traces needs a name"), "-o PLAN.bin"}
	case f.output == "-" && f.json:
		return nil, twoWriters("-o")
	case f.mode == planfile.ModeRecorded.String():
		return nil, errors.New("--merge: a plan of several recordings is periodic; --mode recorded is of one")
	}
	return []string{f.output}, nil
}

// compileMerged compiles several recordings into one plan.
func (a *app) compileMerged(ctx context.Context, paths []string, f compileFlags, opt compile.Options) error {
	opt.Began = time.Now()
	traces, err := a.readTraces(paths)
	if err != nil {
		return err
	}
	sum, err := a.writePlan(f.output, opt, func(opt compile.Options) (*planfile.Plan, report.Compiled, error) {
		return compile.Merge(ctx, traces, opt)
	})
	if err != nil {
		return err
	}
	if f.json {
		return a.print(report.NewCompiledAll([]report.Compiled{sum}, nil), true)
	}
	return a.printCompiled(sum, f.output)
}

func (a *app) readTraces(paths []string) ([]*trace.Trace, error) {
	var traces []*trace.Trace
	for i, path := range paths {
		a.working(path, i+1, len(paths))
		t, err := a.readTrace(path, trace.Options{})
		if err != nil {
			return nil, err
		}
		traces = append(traces, t)
	}
	a.subject = fmt.Sprintf("%d recordings", len(traces))
	return traces, nil
}

// readJoined reads one trace, or several as one.
func (a *app) readJoined(paths []string) (*trace.Trace, error) {
	if len(paths) == 1 {
		return a.readTrace(paths[0], trace.Options{})
	}
	traces, err := a.readTraces(paths)
	if err != nil {
		return nil, err
	}
	return compile.Join(traces, nil)
}
