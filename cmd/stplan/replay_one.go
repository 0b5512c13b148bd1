package main

import (
	"errors"
	"fmt"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/runtime/cuda"
)

type replayFlags struct {
	noPlan    bool
	learn     bool
	addresses string
	json      bool
	device    int
	move      string
	proven    bool
	inject    float64
	repeat    int
	seed      uint64
}

// demand is an error if flags have no meaning, or none together.
func (f *replayFlags) demand() error {
	if !(f.inject >= 0 && f.inject <= 1) {
		return fmt.Errorf("--inject: expected a rate from 0 to 1, found %v", f.inject)
	}
	if err := demandMove(f.move); err != nil {
		return err
	}
	switch {
	case f.addresses == "-" && f.json:
		return twoWriters("--addresses")
	case f.repeat < 0:
		return fmt.Errorf("--repeat: expected a number of iterations, found %d", f.repeat)
	case f.repeat > 0 && f.addresses != "":
		return errors.New("--addresses is of the recording's events, and --repeat makes up others: choose one")
	}
	return nil
}

// readReplayed reads a recording and its plan, nil if planPath is "".
func (a *app) readReplayed(planPath, path string, f replayFlags) (t *trace.Trace, p *planfile.Plan, err error) {
	if planPath != "" {
		if p, err = a.readPlan(planPath); err != nil {
			return nil, nil, err
		}
	}
	t, err = a.readTrace(path, trace.Options{})
	return t, p, err
}

// oneReplayed is a device's replay.
type oneReplayed struct {
	out     report.Replayed
	program *replay.Program
	result  *replay.Result
}

// overlaps is the error if blocks of a replay overlapped.
func (r *oneReplayed) overlaps(t *trace.Trace) error {
	if r.result.Overlaps == 0 {
		return nil
	}
	return &negative{fmt.Sprintf("%s: %d overlaps: %s", t.Name, r.result.Overlaps, r.result.First)}
}

// replayed replays a device of a recording, as the flags say.
func (a *app) replayed(t *trace.Trace, d *trace.Device, p *planfile.Plan, planPath string, f replayFlags) (*oneReplayed, error) {
	one := &oneReplayed{out: report.Replayed{Trace: t.Name, Device: d.Ordinal, Failure: compile.FailureOf(d)}}
	if p != nil {
		name := inputName(planPath)
		one.out.Plan = &name
	}
	played, ends := d, []trace.Time(nil)
	var err error
	if f.repeat > 0 {
		if played, ends, one.out.Repeated, err = a.repeat(t, d, f.repeat, f.seed); err != nil {
			return nil, err
		}
	}
	one.result, one.program, err = a.replayOne(t, d, played, ends, p, f, &one.out)
	return one, err
}

// replayOne replays a recorded device, or what was made of it, and fills out. ends are those
// of the iterations of what was made of it.
func (a *app) replayOne(t *trace.Trace, d, played *trace.Device, ends []trace.Time, p *planfile.Plan, f replayFlags, out *report.Replayed) (*replay.Result, *replay.Program, error) {
	tl, err := lifespan.Build(played)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", out.Trace, err)
	}
	program := replay.NewProgram(tl)
	if f.inject > 0 {
		program = program.Disturb(f.inject, f.seed)
	}
	if f.learn && ends == nil {
		if ends, err = iterationEnds(t, d, tl); err != nil {
			return nil, nil, err
		}
	}
	program.Ends = ends
	var data []byte
	ordinal := d.Ordinal
	if of := a.planFor(p, d, out.Plan); of != nil {
		ordinal = int(of.Ordinal)
		if data, err = planfile.Encode(p); err != nil {
			return nil, nil, &bug{err}
		}
	}
	device, err := simdevice.Open(data, ordinal, false)
	if err != nil {
		return nil, nil, planRefused(err)
	}
	defer device.Close()
	if f.proven && data != nil {
		device.Prove(planfile.Checksum(data))
	}
	if f.move == moveOff {
		device.StopMoving()
	}
	result, err := a.replayOn(device, program, ordinal, f, out)
	if err != nil {
		return nil, nil, unserved(fmt.Errorf("%s: device %d: %w", out.Trace, d.Ordinal, err))
	}
	if n := device.Misplaced(); n > 0 {
		return nil, nil, &bug{fmt.Errorf("%s: device %d: memory was asked for within a granule %d times", out.Trace, d.Ordinal, n)}
	}
	account(out, program, result, device.Counters())
	return result, program, nil
}

// replayOn replays a program on a device, which learns plans of it if it is told to.
func (a *app) replayOn(device *simdevice.Device, program *replay.Program, ordinal int, f replayFlags, out *report.Replayed) (*replay.Result, error) {
	if !f.learn {
		return replay.Run(program, device)
	}
	l, end, err := learn(device, ordinal)
	if err != nil {
		return nil, err
	}
	defer end()
	result, err := replay.Run(program, l)
	out.Learned = l.learned()
	return result, err
}

// unserved is a recording that the runtime could not serve: a bug, unless the recording needs
// more than a device can have.
func unserved(err error) error {
	var limit *replay.LimitError
	if errors.As(err, &limit) {
		return err
	}
	return &bug{err}
}

// planFor picks the plan's device, as a training process does: that of the same
// ordinal, or the only one; nil if the pool alone serves. Whether it was made
// from this recording is worth a note only.
func (a *app) planFor(p *planfile.Plan, d *trace.Device, name *string) *planfile.Device {
	if p == nil {
		return nil
	}
	ordinal := d.Ordinal
	if len(p.Devices) == 1 {
		ordinal = int(p.Devices[0].Ordinal)
	}
	of, err := planDeviceByOrdinal(p, ordinal, *name)
	if err != nil {
		a.note("%v; served without a plan", err)
		return nil
	}
	if of.Advice != planfile.AdviceNone {
		a.note("%s: its advice is followed: %s", *name, of.Advice)
	}
	if !d.HasFingerprint(of.Fingerprint) {
		a.note("%s: the plan was made from another recording", *name)
	}
	return of
}

// planRefused tells a runtime that was left out of this build from one that
// refuses what the Go reader accepts, which is a bug in one of the two.
func planRefused(err error) error {
	if errors.Is(err, cuda.ErrNotBuilt) {
		return err
	}
	return &bug{err}
}
