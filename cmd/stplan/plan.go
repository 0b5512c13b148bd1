package main

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
)

// planAlignment is the granularity of PyTorch's own allocator and so of every
// plan, in bytes.
const planAlignment = 512

type planOptions struct {
	mode      planfile.Mode // 0: periodic where that serves the job, else recorded
	end       planfile.EndKind
	marker    *regexp.Regexp
	timeLimit time.Duration

	noCrossStream bool
	noAdvice      bool // the plan is one that advice is worked out with
}

// plan turns a recording into a plan: the pipeline of docs/architecture.md,
// device by device.
func (a *app) plan(ctx context.Context, t *trace.Trace, opt planOptions) (*planfile.Plan, report.Compiled, error) {
	p := &planfile.Plan{Producer: "stplan " + version}
	sum := report.Compiled{Trace: t.Name, Notes: t.Notes, Devices: []report.CompiledDevice{}}
	for i := range t.Devices {
		d := &t.Devices[i]
		if !hasAllocations(d) {
			a.note("%s: device %d has no allocations and no part in the plan", t.Name, d.Ordinal)
			continue
		}
		began := time.Now()
		dev, row, err := a.planDevice(ctx, t.Name, d, opt)
		if err != nil {
			return nil, sum, err
		}
		row.Seconds = time.Since(began).Seconds()
		p.Devices = append(p.Devices, *dev)
		sum.Devices = append(sum.Devices, row)
	}
	return p, sum, nil
}

func hasAllocations(d *trace.Device) bool {
	for i := range d.Events {
		if d.Events[i].Action == trace.ActionAlloc {
			return true
		}
	}
	return false
}

func (a *app) planDevice(ctx context.Context, name string, d *trace.Device, opt planOptions) (*planfile.Device, report.CompiledDevice, error) {
	none := report.CompiledDevice{}
	tl, err := lifespan.Build(d)
	if err != nil {
		return nil, none, fmt.Errorf("%s: %w", name, err)
	}
	it, err := lifespan.FindIterations(d, tl, opt.marker)
	if err != nil {
		return nil, none, fmt.Errorf("%s: device %d: %w", name, d.Ordinal, err)
	}
	dev := describe(d, tl, it, opt)
	per, err := a.steadyState(name, dev, tl, it, opt)
	if err != nil {
		return nil, none, err
	}
	var c *circle
	var problem *packing.Problem
	var uses []packing.Use
	if per == nil {
		problem = packingProblem(tl, lifespanEnd(opt.end))
		uses, dev.Streams = packingUses(tl)
	} else {
		c = newCircle(tl, per, lifespanEnd(opt.end))
		problem, uses, dev.Streams, dev.Mode = c.problem, c.uses, c.streams.handles, planfile.ModePeriodic
	}
	placement, err := a.place(ctx, fmt.Sprintf("packing device %d", d.Ordinal), problem, uses, opt, dev.Mode)
	if err != nil {
		return nil, none, fmt.Errorf("%s: device %d: %w", name, d.Ordinal, err)
	}
	if placement.TimeLimitHit {
		a.note("%s: device %d: the time limit stopped the packing early; another run may give another plan", name, d.Ordinal)
	}
	certify(dev, placement, opt)
	if per == nil {
		fillSlots(dev, tl, uses, placement)
		dev.Waits = waits(problem, uses, placement)
		certifyWitness(dev, placement.Witness)
	} else {
		fillPeriodic(dev, tl, per, c, placement)
		if err := a.orderPeriodic(ctx, dev, opt); err != nil {
			return nil, none, fmt.Errorf("%s: device %d: %w", name, d.Ordinal, err)
		}
		bounds(dev, per.Envelope(tl, c.end))
	}
	row := compiledDevice(dev, placement, it)
	if per != nil {
		describeSteadyState(&row, dev, tl, per, c.end)
	}
	forbid(&row, opt, tl, it)
	if row.Judged, err = a.advise(ctx, name, d, tl, per, dev, opt); err != nil {
		return nil, none, err
	}
	return dev, row, nil
}

// describe is what a plan of either mode says of the recording.
func describe(d *trace.Device, tl *lifespan.Timeline, it lifespan.Iterations, opt planOptions) *planfile.Device {
	return &planfile.Device{
		Ordinal:              uint32(d.Ordinal),
		Rank:                 -1,
		Mode:                 planfile.ModeRecorded,
		End:                  opt.end,
		Fingerprint:          d.Fingerprint(),
		Events:               uint64(tl.Events),
		Alignment:            planAlignment,
		PeakAllocated:        uint64(tl.PeakAllocated.Bytes),
		PeakActive:           uint64(tl.PeakActive.Bytes),
		RecordedPeakReserved: uint64(baseline.FromRecording(d).PeakReserved),
		Iterations:           uint32(it.Count),
		SteadyStart:          uint64(it.SteadyStart),
	}
}

// certify writes how large the plan is, and the load that proves how small it
// could be.
func certify(dev *planfile.Device, pl packing.Placement, opt planOptions) {
	dev.ArenaBytes = uint64(pl.Makespan)
	dev.Certificate = planfile.Certificate{
		Kind:       boundKind(opt),
		LowerBound: uint64(pl.MaxLoad.Load),
		At:         uint64(pl.MaxLoad.At),
		Gap:        uint64(pl.Makespan - pl.MaxLoad.Load),
	}
}

// certifyWitness replaces the load by a larger bound, where the packer has a
// witness for one: slots that need so much among themselves. A witness that takes
// verify more trials than it allows itself is not used.
func certifyWitness(dev *planfile.Device, w *packing.Witness) {
	if w == nil || dev.Certificate.Kind != planfile.BoundLoad {
		return
	}
	load := dev.Certificate
	dev.Certificate = planfile.Certificate{Kind: planfile.BoundWitness, LowerBound: uint64(w.Bytes), Gap: dev.ArenaBytes - uint64(w.Bytes)}
	for _, b := range w.Buffers {
		dev.Certificate.Witness = append(dev.Certificate.Witness, uint32(b))
	}
	if len(verify.Plan(&planfile.Plan{Devices: []planfile.Device{*dev}}, nil)) > 0 {
		dev.Certificate = load
	}
}

func lifespanEnd(end planfile.EndKind) lifespan.End {
	if end == planfile.EndCompleted {
		return lifespan.EndCompleted
	}
	return lifespan.EndRequested
}

// packingProblem gives the packer integers only: buffer i is tl.Buffers[i].
func packingProblem(tl *lifespan.Timeline, end lifespan.End) *packing.Problem {
	p := &packing.Problem{Alignment: planAlignment, Buffers: make([]packing.Buffer, len(tl.Buffers))}
	for i := range tl.Buffers {
		b := &tl.Buffers[i]
		p.Buffers[i] = packing.Buffer{Start: packing.Time(b.Start), End: packing.Time(b.Until(end)), Size: packing.Bytes(b.Size)}
	}
	return p
}

// fillSlots writes one slot per buffer, in the same order.
func fillSlots(dev *planfile.Device, tl *lifespan.Timeline, uses []packing.Use, pl packing.Placement) {
	dev.Slots = make([]planfile.Slot, len(tl.Buffers))
	for i := range tl.Buffers {
		b := &tl.Buffers[i]
		slot := planfile.Slot{
			Start:        uint64(b.Start),
			RequestedEnd: uint64(b.RequestedEnd),
			CompletedEnd: uint64(b.CompletedEnd),
			Offset:       uint64(pl.Offsets[i]),
			Size:         uint64(b.Size),
			Requested:    uint64(b.Requested),
			Least:        uint64(b.Requested),
			Stream:       uint32(uses[i].Stream),
			Occurrences:  1,
			Cell:         planfile.NoCell,
		}
		if b.Resident {
			slot.Flags |= planfile.SlotResident
		}
		if b.Initial {
			slot.Flags |= planfile.SlotInitial
		}
		dev.Slots[i] = slot
	}
}

func compiledDevice(dev *planfile.Device, pl packing.Placement, it lifespan.Iterations) report.CompiledDevice {
	return report.CompiledDevice{
		Device:               int(dev.Ordinal),
		Mode:                 dev.Mode.String(),
		Buffers:              allocations(dev),
		PeakAllocated:        int64(dev.PeakAllocated),
		PeakActive:           int64(dev.PeakActive),
		RecordedPeakReserved: int64(dev.RecordedPeakReserved),
		LowerBound:           int64(dev.Certificate.LowerBound),
		LowerBoundAt:         int64(dev.Certificate.At),
		PlanBytes:            int64(dev.ArenaBytes),
		Gap:                  report.GapShare(int64(dev.ArenaBytes), int64(dev.Certificate.LowerBound)),
		Iterations:           it.Count,
		IterationSource:      it.Source,
		SteadyStart:          int64(it.SteadyStart),
		Waits:                accountWaits(dev),
		Heuristic:            pl.Heuristic,
		TimeLimitHit:         pl.TimeLimitHit,
	}
}
