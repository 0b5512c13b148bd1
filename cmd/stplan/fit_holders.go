package main

import (
	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/report"
)

// peakHolders says what is at the peak of the job that needs the most.
func peakHolders(j *fit.Job, top int) (*report.PeakHolders, error) {
	h, err := fit.FindHolders(j, top)
	if err != nil {
		return nil, err
	}
	out := &report.PeakHolders{
		Trace: j.Trace.Name, Device: j.Device.Ordinal, Event: int64(h.At), Allocated: int64(h.Peak),
		Groups: []report.PeakHolder{}, Total: h.Total, Listed: int64(h.Listed), All: int64(h.All),
	}
	for i := range h.Groups {
		out.Groups = append(out.Groups, peakHolder(&h.Groups[i]))
	}
	return out, nil
}

func peakHolder(g *fit.Holder) report.PeakHolder {
	out := report.PeakHolder{
		From: g.Line.From, Category: g.Category.String(), Bytes: int64(g.Bytes), Buffers: g.Buffers,
		LifeEvents: g.Events,
	}
	if without := int64(g.Without); g.Idle() {
		out.Without = &without
	}
	if g.Size > 0 {
		each := int64(g.Size)
		out.Each = &each
	} else {
		out.Line = &g.Line.Label
	}
	if g.MicroSeconds > 0 {
		out.LifeMicroseconds = &g.MicroSeconds
	}
	return out
}
