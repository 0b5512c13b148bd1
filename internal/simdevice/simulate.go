package simdevice

import (
	"errors"

	"github.com/stplan/stplan/internal/replay"
)

// Simulated is what the runtime did with a program, for a comparison with other allocators.
type Simulated struct {
	replay.Cost
	// PeakAt is the event at which Cost.Reserved was first reserved, -1 for before the
	// recording.
	PeakAt int64
	// Out is the request that could not be served, nil if there is none.
	Out *Out
}

// Out is a request that ran out of memory. Sizes are bytes.
type Out struct {
	Event     int64 // of the request, -1 for a buffer from before the recording
	Requested int64
	Reserved  int64
}

// Simulate serves a program as Serve does, on a device with so many bytes of memory; 0 is
// no limit. It stops if they are not enough.
func Simulate(program *replay.Program, plan []byte, ordinal int, memory uint64) (Simulated, error) {
	if memory == 0 {
		memory = capacity
	}
	d, err := open(plan, ordinal, true, memory, 0)
	if err != nil {
		return Simulated{}, err
	}
	defer d.Close()
	w := watched{Device: d, requests: program.Requests, out: Simulated{PeakAt: -1}}
	err = replay.Drive(program, &w)
	var limit *replay.LimitError
	if err != nil && (w.out.Out == nil || !errors.As(err, &limit)) {
		return Simulated{}, err
	}
	c := d.Counters()
	w.out.Cost = replay.Cost{Reserved: int64(c.PeakReserved), Moved: int64(c.MovedBytes)}
	return w.out, nil
}

// watched notes when memory is reserved. Requests are allocated in their order.
type watched struct {
	*Device
	requests []replay.Request
	next     int
	peak     uint64
	out      Simulated
}

func (w *watched) Malloc(size, stream uint64) (address uint64, source int, err error) {
	event := int64(w.requests[w.next].Event)
	w.next++
	address, source, err = w.Device.Malloc(size, stream)
	c := w.Counters()
	if c.PeakReserved > w.peak {
		w.peak, w.out.PeakAt = c.PeakReserved, event
	}
	if err != nil {
		w.out.Out = &Out{Event: event, Requested: int64(size), Reserved: int64(c.ReservedBytes)}
	}
	return address, source, err
}
