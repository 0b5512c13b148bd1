package compile

import (
	"bytes"
	"context"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
)

// elsewhere is what a recording would be if another process had made it, on another device:
// its addresses lie elsewhere and in another order, and its streams have other handles.
func elsewhere(t *trace.Trace, ordinal int) *trace.Trace {
	other := *t
	other.Name, other.Devices = "elsewhere", append([]trace.Device{}, t.Devices...)
	for i := range other.Devices {
		d := &other.Devices[i]
		d.Ordinal = ordinal + i
		d.Events = append([]trace.Event{}, d.Events...)
		for k := range d.Events {
			e := &d.Events[k]
			if e.Action != trace.ActionOOM {
				e.Addr = 1<<50 - e.Addr
			}
			if e.Stream != 0 {
				e.Stream = 1<<48 - e.Stream
			}
			e.TimeUS += 1e9
		}
		d.Final = nil
	}
	return &other
}

func readExample(t *testing.T, path string) *trace.Trace {
	t.Helper()
	tr, err := trace.ReadFile("../../examples/"+path, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// TestIdentity: a process that does the same has the same identity and the same plan, byte
// by byte but for the device; verify takes the plan for either recording.
func TestIdentity(t *testing.T) {
	for _, path := range []string{"llama7b-pp4-VR/llama7b-pp4-VR.pickle.gz", "evaluation/evaluation.pickle.gz"} {
		here := readExample(t, path)
		there := elsewhere(here, 3)
		opt := Options{Producer: "test"}
		if Identity(here, opt) != Identity(there, opt) {
			t.Fatalf("%s: two identities", path)
		}
		p, _, err := Compile(context.Background(), here, opt)
		if err != nil {
			t.Fatal(err)
		}
		q, _, err := Compile(context.Background(), there, opt)
		if err != nil {
			t.Fatal(err)
		}
		shared, err := WithOrdinals(p, Ordinals(there))
		if err != nil {
			t.Fatal(err)
		}
		if v := append(verify.Plan(shared, nil), verify.AgainstTrace(shared, there)...); len(v) > 0 {
			t.Errorf("%s: the shared plan does not verify: %v", path, v[0])
		}
		a, err := planfile.Encode(shared)
		if err != nil {
			t.Fatal(err)
		}
		b, err := planfile.Encode(q)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s: the shared plan is not the one that the recording itself compiles to", path)
		}
	}
}

// TestIdentityDiffers: whatever changes the plan changes the identity.
func TestIdentityDiffers(t *testing.T) {
	here := readExample(t, "evaluation/evaluation.pickle.gz")
	opt := Options{Producer: "test"}
	base := Identity(here, opt)
	for name, change := range map[string]func(t *trace.Trace, o *Options){
		"size":        func(t *trace.Trace, _ *Options) { t.Devices[0].Events[20].Size += 512 },
		"annotations": func(t *trace.Trace, _ *Options) { t.Devices[0].Annotations = nil },
		"exchanges": func(t *trace.Trace, _ *Options) {
			d := &t.Devices[0]
			e := trace.Exchange{Begins: 10, Awaits: []trace.Await{{Stream: d.Events[0].Stream, At: 20}}}
			d.Annotations = append(d.Annotations, e.Annotations(1)...)
		},
		"settings": func(t *trace.Trace, _ *Options) { t.Settings.ExpandableSegments = !t.Settings.ExpandableSegments },
		"live before": func(t *trace.Trace, _ *Options) {
			t.Devices[0].Initial = []trace.Segment{{Address: 1 << 30, Size: 512, Blocks: []trace.Block{{Address: 1 << 30, Size: 512, Requested: 512, State: trace.BlockAllocated}}}}
		},
		"parts of an iteration": func(t *trace.Trace, _ *Options) {
			t.Stacks = trace.Stacks{Frames: []trace.Frame{{File: "train.py", Line: 1, Name: "f"}}, Index: []int32{0}, Bounds: []int32{0, 1}}
		},
		"mode":     func(_ *trace.Trace, o *Options) { o.Mode = planfile.ModeRecorded },
		"pending":  func(_ *trace.Trace, o *Options) { o.NoReusePending = true },
		"cross":    func(_ *trace.Trace, o *Options) { o.NoCrossStream = true },
		"limit":    func(_ *trace.Trace, o *Options) { o.TimeLimit = 1 },
		"producer": func(_ *trace.Trace, o *Options) { o.Producer = "other" },
	} {
		other, changed := elsewhere(here, 0), opt
		change(other, &changed)
		if Identity(other, changed) == base {
			t.Errorf("the identity does not depend on: %s", name)
		}
	}
	if _, err := WithOrdinals(&planfile.Plan{}, []int{1}); err == nil {
		t.Error("a plan of no device serves one")
	}
}
