package main

import (
	"cmp"
	"slices"

	"github.com/stplan/stplan/internal/synth"
	"github.com/stplan/stplan/internal/trace"
)

// madeUpTraining is a recording of a made-up training job with sequences of a length,
// or of any if it is 0. It has no segments, as a history has none.
func madeUpTraining(length int64) *trace.Trace {
	buffers, _ := synth.Training{Layers: 6, MicroBatches: [2]int{2, 2}, Steps: 6, Length: length, Lengths: length == 0}.Generate(1)
	type act struct {
		at    int64
		event trace.Event
	}
	var acts []act
	add := func(at int64, action trace.Action, i int) {
		acts = append(acts, act{at, trace.Event{
			Action: action, Addr: uint64(i+1) << 32, Size: trace.Bytes(buffers[i].Size),
			Stack: trace.None, UserMetadata: trace.None, CompileContext: trace.None, Pool: -1,
		}})
	}
	for i, b := range buffers {
		add(b.Start, trace.ActionAlloc, i)
		if b.End != synth.Never {
			add(b.End, trace.ActionFreeRequested, i)
			add(b.End, trace.ActionFreeCompleted, i)
		}
	}
	slices.SortStableFunc(acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
	d := trace.Device{AddressesInvented: true}
	for _, a := range acts {
		d.Events = append(d.Events, a.event)
	}
	return &trace.Trace{Name: "made up", Devices: []trace.Device{d}}
}
