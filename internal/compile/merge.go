package compile

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// Merge makes one plan of several recordings of the same program. The first one gives the
// prologue, and the steady iterations of all of them are passes of the same bodies: a slot
// is as large as the largest pass of any recording needs, and optional if some lack it. The
// plan is always periodic. It is an error, which says why, if the recordings do not fit
// together: see lifespan.Join, and leastShared.
func Merge(ctx context.Context, ts []*trace.Trace, opt Options) (*planfile.Plan, report.Compiled, error) {
	if opt.Mode == planfile.ModeRecorded {
		return nil, report.Compiled{}, errors.New("a plan of several recordings is periodic, not of one recorded process")
	}
	joined, devices, err := join(ts, opt)
	if err != nil {
		return nil, report.Compiled{}, err
	}
	return compileJoined(ctx, joined, devices, opt)
}

// Join makes one trace of several, as Merge does: a plan that Merge makes of them is the
// plan of this trace.
func Join(ts []*trace.Trace, marker *regexp.Regexp) (*trace.Trace, error) {
	t, _, err := join(ts, Options{Marker: marker})
	return t, err
}

func join(ts []*trace.Trace, opt Options) (*trace.Trace, []joinedDevice, error) {
	out := &trace.Trace{Stacks: ts[0].Stacks, Strings: ts[0].Strings, Settings: ts[0].Settings}
	var names []string
	for _, t := range ts {
		names = append(names, t.Name)
		out.Notes = append(out.Notes, t.Notes...)
	}
	out.Name = strings.Join(names, " + ")
	var devices []joinedDevice
	for i := range ts[0].Devices {
		if !HasAllocations(&ts[0].Devices[i]) {
			continue
		}
		d, err := joinDevice(ts, ts[0].Devices[i].Ordinal, opt)
		if err != nil {
			return nil, nil, err
		}
		devices = append(devices, *d)
		out.Devices = append(out.Devices, *d.Device)
	}
	for _, t := range ts[1:] {
		if n := allocating(t); n != len(devices) {
			return nil, nil, fmt.Errorf("%s: does not fit to %s: expected allocations on %d devices, found them on %d", t.Name, ts[0].Name, len(devices), n)
		}
	}
	return out, devices, nil
}

// allocating is the number of devices with allocations.
func allocating(t *trace.Trace) int {
	n := 0
	for i := range t.Devices {
		if HasAllocations(&t.Devices[i]) {
			n++
		}
	}
	return n
}

func joinDevice(ts []*trace.Trace, ordinal int, opt Options) (*joinedDevice, error) {
	out := &joinedDevice{}
	var parts []lifespan.Part
	for _, t := range ts {
		p, err := partOf(t, ordinal, opt)
		if err != nil {
			return nil, fmt.Errorf("%s: device %d: %w", t.Name, ordinal, err)
		}
		parts = append(parts, *p)
		out.names = append(out.names, t.Name)
		out.reserved = max(out.reserved, reservedBy(p.Device))
	}
	joined, err := lifespan.Join(parts)
	if err != nil {
		return nil, err
	}
	out.Joined = *joined
	notePrologues(parts, opt)
	return out, nil
}

// partOf analyses the device of a trace.
func partOf(t *trace.Trace, ordinal int, opt Options) (*lifespan.Part, error) {
	for i := range t.Devices {
		d := &t.Devices[i]
		if d.Ordinal != ordinal || !HasAllocations(d) {
			continue
		}
		tl, err := lifespan.Build(d)
		if err != nil {
			return nil, err
		}
		it, err := lifespan.FindIterations(&t.Stacks, d, tl, opt.Marker)
		return &lifespan.Part{Name: t.Name, Device: d, Timeline: tl, Iterations: it}, err
	}
	return nil, errors.New("expected allocations, as in the first recording, found none")
}

// notePrologues says if the recordings begin in different ways: the plan has the prologue
// of the first.
func notePrologues(parts []lifespan.Part, opt Options) {
	if opt.Note == nil {
		return
	}
	first := parts[0].Prologue()
	for _, p := range parts[1:] {
		if n := p.Prologue(); n != first {
			opt.Note(fmt.Sprintf("%s: device %d: %s allocations before the steady iterations, %s in %s, whose beginning the plan has",
				p.Name, p.Device.Ordinal, report.Count(n), report.Count(first), parts[0].Name))
		}
	}
}

// reservedBy is the most that the recorded allocator held.
func reservedBy(d *trace.Device) trace.Bytes { return baseline.FromRecording(d).PeakReserved }
