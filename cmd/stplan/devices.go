package main

import (
	"fmt"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// traceDevice is the device of that number, nil if the recording has none.
func traceDevice(t *trace.Trace, ordinal int) *trace.Device {
	for i := range t.Devices {
		if t.Devices[i].Ordinal == ordinal {
			return &t.Devices[i]
		}
	}
	return nil
}

// allocatingDevices are the devices that allocated anything, or the one that was asked
// for.
func allocatingDevices(t *trace.Trace, ordinal int, one bool) ([]*trace.Device, error) {
	var found []*trace.Device
	have := ""
	for i := range t.Devices {
		d := &t.Devices[i]
		if !compile.HasAllocations(d) {
			continue
		}
		have += fmt.Sprintf(" %d", d.Ordinal)
		if !one || d.Ordinal == ordinal {
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: no device %d with allocations; it has%s", t.Name, ordinal, have)
	}
	return found, nil
}

// planDeviceByOrdinal finds a device of the plan. If there is none of that number,
// the error names those that there are.
func planDeviceByOrdinal(p *planfile.Plan, ordinal int, name string) (*planfile.Device, error) {
	var have string
	for i := range p.Devices {
		if int64(p.Devices[i].Ordinal) == int64(ordinal) {
			return &p.Devices[i], nil
		}
		have += fmt.Sprintf(" %d", p.Devices[i].Ordinal)
	}
	if have == "" {
		return nil, fmt.Errorf("%s: the plan has no devices", name)
	}
	return nil, fmt.Errorf("%s: no device %d in the plan; it has%s", name, ordinal, have)
}
