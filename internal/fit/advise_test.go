package fit_test

import (
	"testing"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/trace"
)

// exampleJob is the job of an example.
func exampleJob(t *testing.T, name string) *fit.Job {
	t.Helper()
	return readJob(t, "../../examples/"+name+"/"+name+".pickle.gz")
}

// readJob is the job of a recording's first device.
func readJob(t *testing.T, path string) *fit.Job {
	t.Helper()
	tr, err := trace.ReadFile(path, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := baseline.RecordedConfig(tr.Settings)
	if err != nil {
		t.Fatal(err)
	}
	j, err := fit.NewJob(tr, &tr.Devices[0], recorded)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestAdvise: what is advised takes no more than PyTorch's defaults, than expandable
// segments and than any one setting that was tried alone, but for what does not count as
// better, and simulating the printed value gives what was said.
func TestAdvise(t *testing.T) {
	for _, name := range []string{"resnet50", "lora-oom"} {
		j := exampleJob(t, name)
		for _, b := range []*fit.Budget{nil, {Device: j.Allocated() + j.Allocated()/32}} {
			got, err := fit.Advise(j, b, func(int) {})
			if err != nil {
				t.Fatal(err)
			}
			usable, config := trace.Bytes(1<<50), j.Recorded
			if b != nil {
				usable, config.DeviceMemory = b.Usable(), b.Device
			}
			try := func(conf string) fit.Answer {
				c, err := config.Apply(conf)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := fit.Simulated(baseline.Caching("", conf, c)).Try(t.Context(), j, usable, config.DeviceMemory)
				if err != nil {
					t.Fatal(err)
				}
				return answer
			}
			if same := try("expandable_segments:False," + got.Conf); same != got.Trial {
				t.Errorf("%s: %s takes %+v, expected %+v", name, got.Conf, same, got.Trial)
			}
			for _, conf := range []string{"expandable_segments:False", "expandable_segments:True", "max_split_size_mb:64", "max_split_size_mb:512", "roundup_power2_divisions:8"} {
				other := try(conf)
				if other.Fits && !got.Trial.Fits || other.Fits == got.Trial.Fits && float64(other.Reserved) < 0.99*float64(got.Trial.Reserved) {
					t.Errorf("%s, %+v: %s gives %+v, which is better than %q: %+v", name, b, conf, other, got.Conf, got.Trial)
				}
			}
			if got.Tried > fit.MostAdvised {
				t.Errorf("%s: %d settings were tried", name, got.Tried)
			}
		}
	}
}
