package baseline

import (
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// TestFollowSeesThePeak: the largest value that Follow tells of is the peak, events do not
// go back, and the result is that of Simulate.
func TestFollowSeesThePeak(t *testing.T) {
	for _, name := range []string{"lora-oom", "resnet50", "gpt2-xl-ckpt"} {
		tr, err := trace.ReadFile("../../examples/"+name+"/"+name+".pickle.gz", trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := &tr.Devices[0]
		recorded, err := RecordedConfig(tr.Settings)
		if err != nil {
			t.Fatal(err)
		}
		program, err := ReadProgram(d, recorded)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range Allocators(recorded) {
			want, err := Simulate(program, a, nil)
			if err != nil {
				t.Fatal(err)
			}
			var most trace.Bytes
			last := trace.Time(-1)
			got, err := Follow(program, a, nil, func(at trace.Time, reserved trace.Bytes) {
				if at < last {
					t.Fatalf("%s: %s: event %d after %d", name, a.Title, at, last)
				}
				most, last = max(most, reserved), at
			})
			if err != nil || most != want.PeakReserved || got.PeakReserved != want.PeakReserved || last < trace.Time(len(d.Events))/2 {
				t.Errorf("%s: %s: saw at most %d up to event %d, %v, expected %d", name, a.Title, most, last, err, want.PeakReserved)
			}
		}
	}
}
