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
)

// planAlignment is the granularity of PyTorch's own allocator and so of every
// plan, in bytes.
const planAlignment = 512

type planOptions struct {
	end       planfile.EndKind
	marker    *regexp.Regexp
	timeLimit time.Duration
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
	problem := packingProblem(tl, lifespanEnd(opt.end))
	placement, err := a.pack(ctx, fmt.Sprintf("packing device %d", d.Ordinal), problem, packing.Options{TimeLimit: opt.timeLimit})
	if err != nil {
		return nil, none, fmt.Errorf("%s: device %d: %w", name, d.Ordinal, err)
	}
	if placement.TimeLimitHit {
		a.note("%s: device %d: the time limit stopped the packing early; another run may give another plan", name, d.Ordinal)
	}
	recorded := baseline.FromRecording(d)
	dev := &planfile.Device{
		Ordinal:              uint32(d.Ordinal),
		Rank:                 -1,
		Mode:                 planfile.ModeRecorded,
		End:                  opt.end,
		Fingerprint:          d.Fingerprint(),
		Events:               uint64(tl.Events),
		Alignment:            planAlignment,
		ArenaBytes:           uint64(placement.Makespan),
		PeakAllocated:        uint64(tl.PeakAllocated.Bytes),
		PeakActive:           uint64(tl.PeakActive.Bytes),
		RecordedPeakReserved: uint64(recorded.PeakReserved),
		Iterations:           uint32(it.Count),
		SteadyStart:          uint64(it.SteadyStart),
		Certificate: planfile.Certificate{
			Kind:       planfile.BoundLoad,
			LowerBound: uint64(placement.MaxLoad.Load),
			At:         uint64(placement.MaxLoad.At),
			Gap:        uint64(placement.Makespan - placement.MaxLoad.Load),
		},
	}
	fillSlots(dev, tl, placement)
	dev.Waits = waits(dev, packing.Reuses(problem, placement))
	return dev, compiledDevice(dev, placement, it), nil
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

// fillSlots writes one slot per buffer, in the same order, and the streams in
// order of first use.
func fillSlots(dev *planfile.Device, tl *lifespan.Timeline, pl packing.Placement) {
	index := map[uint64]uint32{}
	dev.Slots = make([]planfile.Slot, len(tl.Buffers))
	for i := range tl.Buffers {
		b := &tl.Buffers[i]
		s, ok := index[b.Stream]
		if !ok {
			s = uint32(len(dev.Streams))
			index[b.Stream] = s
			dev.Streams = append(dev.Streams, b.Stream)
		}
		slot := planfile.Slot{
			Start:        uint64(b.Start),
			RequestedEnd: uint64(b.RequestedEnd),
			CompletedEnd: uint64(b.CompletedEnd),
			Offset:       uint64(pl.Offsets[i]),
			Size:         uint64(b.Size),
			Requested:    uint64(b.Requested),
			Stream:       s,
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

// waits keeps those reuses that the device must order: the earlier owner ran
// on another stream, or its free was still pending when the later one began.
func waits(dev *planfile.Device, reuses []packing.Reuse) []planfile.Wait {
	var out []planfile.Wait
	for _, r := range reuses {
		earlier, later := &dev.Slots[r.Earlier], &dev.Slots[r.Later]
		var kind planfile.WaitKind
		if earlier.Stream != later.Stream {
			kind |= planfile.WaitCrossStream
		}
		if earlier.CompletedEnd > later.Start {
			kind |= planfile.WaitPending
		}
		if kind != 0 {
			out = append(out, planfile.Wait{Later: uint32(r.Later), Earlier: uint32(r.Earlier), Kind: kind})
		}
	}
	return out
}

func compiledDevice(dev *planfile.Device, pl packing.Placement, it lifespan.Iterations) report.CompiledDevice {
	return report.CompiledDevice{
		Device:               int(dev.Ordinal),
		Mode:                 dev.Mode.String(),
		Buffers:              len(dev.Slots),
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
		Waits:                len(dev.Waits),
		Heuristic:            pl.Heuristic,
		TimeLimitHit:         pl.TimeLimitHit,
	}
}
