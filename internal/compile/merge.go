package compile

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"strings"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// joinedDevice is a device of several recordings that were joined.
type joinedDevice struct {
	lifespan.Joined
	names    []string    // of the recordings
	reserved trace.Bytes // the most that any of them held
}

// leastShared is the share of the allocations of a recording's steady iterations that have
// to be in slots that another recording has as well. Runs of one program share nearly all,
// and four fifths if data decides what experts allocate. With less the plan would be two
// plans in one, each in the way of the other.
const leastShared = 1. / 2

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
		it, err := lifespan.FindIterations(d, tl, opt.Marker)
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

// analyseJoined finds the steady state that all recordings share.
func (c *compiler) analyseJoined() error {
	c.iterations = c.joined.Iterations
	per, why := lifespan.FindPeriodic(c.timeline, c.iterations, c.end())
	if per == nil {
		return fmt.Errorf("%s: device %d: the recordings do not fit together: %s", c.trace, c.device.Ordinal, why)
	}
	for k, shared := range sharedSlots(per, c.joined.Begins) {
		if shared < leastShared {
			return fmt.Errorf("%s: device %d: does not fit to the other recordings: %.0f %% of its steady allocations have a slot in common with them, expected at least %.0f %%",
				c.joined.names[k], c.device.Ordinal, 100*shared, 100*leastShared)
		}
	}
	if bound, limit := envelope(c.timeline, per, c.end()), max(c.worthwhile(), c.joined.reserved); bound > limit && c.Mode != planfile.ModePeriodic {
		return fmt.Errorf("%s: device %d: the recordings do not fit together: one plan for all takes at least %s, and beyond %s it is not worth it (--mode periodic makes it)",
			c.trace, c.device.Ordinal, report.Bytes(int64(bound)), report.Bytes(int64(limit)))
	}
	c.periodic = per
	return nil
}

// until is the device up to an event, without the iteration that lies there.
func (j *joinedDevice) until(end trace.Time) *joinedDevice {
	if j == nil {
		return nil
	}
	out := *j
	it := &out.Iterations
	for it.Count > 0 && it.Starts[it.Count] > end {
		it.Starts = it.Starts[:it.Count]
		it.Count, it.SteadyCount = it.Count-1, it.SteadyCount-1
	}
	return &out
}

// sharedSlots is, for each recording, the share of the allocations of its passes that are in
// slots that a pass of another recording has. begins are where their passes begin.
func sharedSlots(per *lifespan.Periodic, begins []trace.Time) []float64 {
	of := func(pass *lifespan.Pass) int {
		k := 0
		for k+1 < len(begins) && begins[k+1] <= pass.First {
			k++
		}
		return k
	}
	has := map[int]map[int][]uint64{} // by recording and body: the slots that its passes have
	for i := range per.Passes {
		pass := &per.Passes[i]
		k := of(pass)
		if has[k] == nil {
			has[k] = map[int][]uint64{}
		}
		if has[k][pass.Body] == nil {
			has[k][pass.Body] = make([]uint64, len(pass.Present))
		}
		for w, bits := range pass.Present {
			has[k][pass.Body][w] |= bits
		}
	}
	all, shared := make([]int, len(begins)), make([]int, len(begins))
	for i := range per.Passes {
		pass := &per.Passes[i]
		k := of(pass)
		for w, word := range pass.Present {
			var others uint64
			for r, bodies := range has {
				if r != k && bodies[pass.Body] != nil {
					others |= bodies[pass.Body][w]
				}
			}
			all[k] += bits.OnesCount64(word)
			shared[k] += bits.OnesCount64(word & others)
		}
	}
	out := make([]float64, len(begins))
	for k := range out {
		if out[k] = 1; all[k] > 0 {
			out[k] = float64(shared[k]) / float64(all[k])
		}
	}
	return out
}

// reservedBy is the most that the recorded allocator held.
func reservedBy(d *trace.Device) trace.Bytes { return baseline.FromRecording(d).PeakReserved }
