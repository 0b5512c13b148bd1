package export

import (
	"fmt"
	"io"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/trace"
)

// WriteProfile writes what was allocated at each device's instant as a pprof profile of
// the space in use. Samples have the category, the phase and, of several devices, the
// device as labels.
func WriteProfile(w io.Writer, devices []Device) error {
	b := profileBuilder{
		profile: &profile.Profile{
			SampleType:        []*profile.ValueType{{Type: "inuse_buffers", Unit: "count"}, {Type: "inuse_space", Unit: "bytes"}},
			DefaultSampleType: "inuse_space",
			PeriodType:        &profile.ValueType{Type: "space", Unit: "bytes"},
			Period:            1,
		},
		locations: map[trace.Frame]*profile.Location{},
		functions: map[function]*profile.Function{},
		samples:   map[sampleKey]*profile.Sample{},
	}
	for i := range devices {
		d := &devices[i]
		name := ""
		if len(devices) > 1 {
			name = fmt.Sprint(d.Device.Ordinal)
		}
		for k := range d.At.Live {
			if l := &d.At.Live[k]; !l.Pending {
				b.add(d.Recording, l, name)
			}
		}
	}
	if err := b.profile.CheckValid(); err != nil {
		return fmt.Errorf("pprof profile: %w", err)
	}
	return b.profile.Write(w)
}

// sampleKey is what the buffers of one sample have in common.
type sampleKey struct {
	device   string
	stack    int32
	category peak.Category
	phase    peak.Phase
}

// function is a function of a file.
type function struct{ file, name string }

type profileBuilder struct {
	profile   *profile.Profile
	locations map[trace.Frame]*profile.Location
	functions map[function]*profile.Function
	samples   map[sampleKey]*profile.Sample
}

// add counts a buffer. Buffers come in a fixed order, so the profile's bytes are fixed
// as well.
func (b *profileBuilder) add(r *peak.Recording, l *peak.Live, device string) {
	k := sampleKey{device, l.Stack, l.Category, l.Phase}
	s := b.samples[k]
	if s == nil {
		s = &profile.Sample{Value: []int64{0, 0}, Location: b.stack(r, l.Stack), Label: map[string][]string{
			"category": {l.Category.String()}, "phase": {l.Phase.Title(r.Iterations.Count)},
		}}
		if device != "" {
			s.Label["device"] = []string{device}
		}
		b.samples[k] = s
		b.profile.Sample = append(b.profile.Sample, s)
	}
	s.Value[0]++
	s.Value[1] += int64(l.Buffer.Size)
}

// stack is a stack as pprof has it, innermost first. If there is none, what is known in
// place of it is the only frame.
func (b *profileBuilder) stack(r *peak.Recording, stack int32) []*profile.Location {
	stack = stackOf(r.Trace, stack)
	if stack == trace.None {
		return []*profile.Location{b.location(trace.Frame{}, r.Line(stack).Label)}
	}
	var out []*profile.Location
	for _, f := range r.Trace.Stacks.At(stack) {
		out = append(out, b.location(r.Trace.Stacks.Frames[f], r.Function(f)))
	}
	return out
}

// location is a frame, whose function is shown by the given name.
func (b *profileBuilder) location(f trace.Frame, name string) *profile.Location {
	if l := b.locations[f]; l != nil {
		return l
	}
	l := &profile.Location{ID: uint64(len(b.profile.Location) + 1), Line: []profile.Line{{Function: b.function(f, name), Line: int64(f.Line)}}}
	b.profile.Location = append(b.profile.Location, l)
	b.locations[f] = l
	return l
}

// plainNames keeps pprof from taking Python's names for C++ templates, which it leaves
// out.
var plainNames = strings.NewReplacer("<", "(", ">", ")")

func (b *profileBuilder) function(f trace.Frame, name string) *profile.Function {
	k := function{f.File, name}
	if fn := b.functions[k]; fn != nil {
		return fn
	}
	fn := &profile.Function{ID: uint64(len(b.profile.Function) + 1), Name: plainNames.Replace(name), SystemName: f.Name, Filename: f.File}
	b.profile.Function = append(b.profile.Function, fn)
	b.functions[k] = fn
	return fn
}
