package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/runtime/cuda"
)

// advise serves the recording with the plan and without, and writes into the plan
// whether it pays. Where data decides what an iteration allocates, a plan that
// knows all iterations says little: there one that was made without the last one has
// to pay as well, and neither may reserve more than the pool. Where the options forbid waits nothing is said, since the pool
// makes what they forbid; nor by a build without the runtime.
func (a *app) advise(ctx context.Context, name string, d *trace.Device, tl *lifespan.Timeline, per *lifespan.Periodic, dev *planfile.Device, opt planOptions) (*report.Judged, error) {
	if opt.noAdvice || opt.noCrossStream || opt.end != planfile.EndRequested {
		return nil, nil
	}
	program := replay.NewProgram(tl)
	pool, err := trial(program, nil)
	if errors.Is(err, cuda.ErrNotBuilt) {
		return nil, nil
	}
	if err != nil {
		return nil, &bug{fmt.Errorf("%s: device %d: %w", name, d.Ordinal, err)}
	}
	served := &report.Judged{Pool: pool.reserved, PoolMoved: pool.moved}
	planned, err := trial(program, dev)
	if err != nil {
		return nil, &bug{fmt.Errorf("%s: device %d: %w", name, d.Ordinal, err)}
	}
	slack := pool.reserved / paysWithin
	if differ(dev) {
		slack = 0 // what the next iterations add is not known
	}
	if pays(planned, pool, slack) {
		judged, err := a.withoutLast(ctx, name, d, per, dev, opt)
		if err != nil {
			return nil, err
		}
		if judged != nil {
			served.Unseen = true
			if planned, err = trial(program, judged); err != nil {
				return nil, &bug{fmt.Errorf("%s: device %d: %w", name, d.Ordinal, err)}
			}
		}
	}
	served.Planned, served.PlannedMoved = planned.reserved, planned.moved
	if served.Pays = pays(planned, pool, slack); !served.Pays {
		dev.Advice = planfile.AdvicePool
	}
	return served, nil
}

// cost is what serving a recording takes, in bytes: the most that is reserved, and
// what is given back and taken again to keep that low, for which the host waits.
type cost struct{ reserved, moved int64 }

// paysWithin is the share of the pool's bytes, as a divisor, that a plan may reserve
// more where data does not decide what an iteration allocates.
const paysWithin = 200

// pays says whether a plan reserves no more than the pool, or so many bytes more at
// most while it spares half of what the pool moves.
func pays(planned, pool cost, slack int64) bool {
	return planned.reserved <= pool.reserved ||
		planned.reserved <= pool.reserved+slack && planned.moved < pool.moved/2
}

// trial serves a program by a plan, or without where dev is nil.
func trial(program *replay.Program, dev *planfile.Device) (cost, error) {
	var data []byte
	ordinal := 0
	if dev != nil {
		var err error
		if data, err = planfile.Encode(&planfile.Plan{Producer: "stplan " + version, Devices: []planfile.Device{*dev}}); err != nil {
			return cost{}, err
		}
		ordinal = int(dev.Ordinal)
	}
	device, err := simulate(data, ordinal, true)
	if err != nil {
		return cost{}, err
	}
	defer device.Close()
	if err := replay.Drive(program, runtimeAllocator{device}); err != nil {
		return cost{}, err
	}
	c := device.Counters()
	return cost{int64(c.PeakReserved), int64(c.MovedBytes)}, nil
}

// withoutLast is the plan of a recording that ends before its last pass, or nil
// where data does not decide what passes allocate, or there are too few.
func (a *app) withoutLast(ctx context.Context, name string, d *trace.Device, per *lifespan.Periodic, dev *planfile.Device, opt planOptions) (*planfile.Device, error) {
	if per == nil || len(per.Passes) < 3 || !differ(dev) {
		return nil, nil
	}
	end := per.Passes[len(per.Passes)-1].First
	short := *d
	short.Events = d.Events[:end]
	later := slices.IndexFunc(d.Annotations, func(n trace.Annotation) bool { return n.At > end })
	if later >= 0 {
		short.Annotations = d.Annotations[:later]
	}
	quiet := &app{stdin: a.stdin, stdout: io.Discard, stderr: io.Discard, quiet: true}
	opt.mode, opt.noAdvice = planfile.ModePeriodic, true
	made, _, err := quiet.planDevice(ctx, name, &short, opt)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, nil // there is no plan of so little, and nothing to learn from it
	}
	return made, nil
}

// steadyStretch: data decides what a job allocates where optional slots begin more
// often than once in so many. In the recordings of mixtures of experts that is once
// in 26 to 57, in others never above once in 965.
const steadyStretch = 256

// differ says whether data decides what the passes of a plan allocate.
func differ(dev *planfile.Device) bool {
	for i := range dev.Phases {
		p := &dev.Phases[i]
		stretches, inside := uint64(0), false
		for _, s := range phaseSlots(dev, p) {
			optional := s.Flags&planfile.SlotEntering == 0 && s.Occurrences < p.Occurrences
			if optional && !inside {
				stretches++
			}
			inside = optional
		}
		if stretches*steadyStretch > p.Length {
			return true
		}
	}
	return false
}
