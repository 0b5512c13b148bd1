//go:build cgo

package compile

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
)

// runWithin serves a run by a plan, or from the pool alone if it is nil, with limit bytes to have. at is the
// event that finds no memory, -1 if the run goes to its end.
func runWithin(t *testing.T, rec *trace.Trace, p *planfile.Plan, limit int64) (at int) {
	t.Helper()
	tl, err := lifespan.Build(&rec.Devices[0])
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	if p != nil {
		if data, err = planfile.Encode(p); err != nil {
			t.Fatal(err)
		}
	}
	_, err = simdevice.ServeWithin(replay.NewProgram(tl), data, rec.Devices[0].Ordinal, limit)
	var full *replay.LimitError
	if errors.As(err, &full) {
		return int(full.At)
	}
	if err != nil {
		t.Fatal(err)
	}
	return -1
}

// endingAt is the history of a run that ran out of memory at an event, with `had` bytes to have in all.
func endingAt(rec *trace.Trace, at int, had int64) *trace.Trace {
	d := rec.Devices[0]
	failed := d.Events[at]
	failed.Action, failed.Addr = trace.ActionOOM, uint64(had)
	d.Events, d.AddressesInvented = append(slices.Clone(d.Events[:at]), failed), true
	d.Annotations = slices.DeleteFunc(slices.Clone(d.Annotations), func(n trace.Annotation) bool { return n.At > trace.Time(at) })
	return &trace.Trace{Name: rec.Name + " cut off", Devices: []trace.Device{d}}
}

// compiledServed is the plan that `stplan compile` makes of a recording.
func compiledServed(t *testing.T, rec *trace.Trace) *planfile.Plan {
	t.Helper()
	p, _, err := Compile(t.Context(), rec, Options{Producer: "test", Serve: simdevice.Serve})
	if err != nil {
		t.Fatalf("%s: %v", rec.Name, err)
	}
	return p
}

// TestARunThatRanOutOfMemoryRunsTheNextTime: a batch that is longer than all before runs out of memory, which
// what comes before would not need. The plan of the run up to there serves the whole run with hardly more memory than it
// allocates, although it saw only a part of that batch. Without the failed request it does not know of any.
func TestARunThatRanOutOfMemoryRunsTheNextTime(t *testing.T) {
	const seeds = 120
	var failed, again, without int
	for seed := range uint64(seeds) {
		run := newLengthJob(seed).record(fmt.Sprintf("seed %d", seed), []trace.Bytes{700, 400, 1000, 650, 800, 1500, 900, 1500})
		tl, err := lifespan.Build(&run.Devices[0])
		if err != nil {
			t.Fatal(err)
		}
		limit := int64(tl.PeakAllocated.Bytes+2<<20-1) / (2 << 20) * (2 << 20)
		at := runWithin(t, run, nil, limit)
		if at < 0 {
			continue // the pool does
		}
		failed++
		ended := endingAt(run, at, limit)
		p := compiledServed(t, ended)
		if p.Devices[0].Advice != planfile.AdviceNone {
			t.Errorf("%s: the pool has run out of memory, and the plan leaves the next run to it", run.Name)
		}
		if runWithin(t, run, p, limit) < 0 {
			again++
		}
		last := &ended.Devices[0]
		last.Events = last.Events[:at]
		if runWithin(t, run, compiledServed(t, ended), limit) < 0 {
			without++
		}
	}
	if failed < seeds/10 || again < failed*9/10 || without > again/2 {
		t.Errorf("of %d runs %d ran out of memory; %d of them run by the plan of that, %d if it does not know of the failure", seeds, failed, again, without)
	}
}

// mostRuns is how many runs one is given to go to its end. Each that does not leaves a plan for the next one.
const mostRuns = 6

// runsWithin is how far each run gets, in per cent of the events, until one goes to its end: the first one without a
// plan, each later one by the plan of the one before.
func runsWithin(t *testing.T, rec *trace.Trace, limit int64) (ended []string, fits bool) {
	var p *planfile.Plan
	for len(ended) < mostRuns {
		at := runWithin(t, rec, p, limit)
		if at < 0 {
			return append(ended, "to its end"), true
		}
		ended = append(ended, fmt.Sprintf("%d %%", 100*at/len(rec.Devices[0].Events)))
		p = compiledServed(t, endingAt(rec, at, limit))
	}
	return ended, false
}

// TestRunsThatRanOut runs every recording with little more memory than it allocates, again and again until it goes to its
// end. STPLAN_TRACES names the folders with the recordings; without it they are those of examples. What
// other seeds, other ranks and other allocators record is left out.
func TestRunsThatRanOut(t *testing.T) {
	again, first := 0, 0
	var seen []string
	for _, path := range recordings(t) {
		name := strings.TrimSuffix(filepath.Base(path), ".pickle.gz")
		job := sameJob.ReplaceAllString(name, "")
		if slices.Contains(seen, job) {
			continue
		}
		seen = append(seen, job)
		rec, err := trace.ReadFile(path, trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tl, err := lifespan.Build(&rec.Devices[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, spare := range []float64{0.003, 0.006} {
			const granule = 2 << 20
			limit := int64(float64(tl.PeakAllocated.Bytes)*(1+spare)+granule-1) / granule * granule
			ended, fits := runsWithin(t, rec, limit)
			t.Logf("| %s | %.1f %% | %s |", name, 100*spare, strings.Join(ended, ", "))
			if len(ended) == 1 {
				first++
			} else if fits {
				again++
			}
			// With less to spare, jobs of 2 GiB have a granule or two for the ends of their blocks.
			if !fits && spare > 0.005 {
				t.Errorf("%s: %.1f %% to spare: the last of %d runs ended at %s", name, 100*spare, mostRuns, ended[len(ended)-1])
			}
		}
	}
	t.Logf("%d run at once, %d by the plan of a run that ran out of memory", first, again)
	if again == 0 {
		t.Error("no run ran out of memory and went on the next time")
	}
}

// TestWhatAProcessCouldHave: of a history it is known; of a snapshot it is what was reserved and what the driver had
// free, or, if that was enough for the request and so a limit was in the way, what had been reserved at most.
func TestWhatAProcessCouldHave(t *testing.T) {
	rec, err := trace.ReadFile("../../examples/gpt2-xl-ckpt/gpt2-xl-ckpt.pickle.gz", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &rec.Devices[0]
	at := len(d.Events) * 9 / 10
	for d.Events[at].Action != trace.ActionAlloc {
		at++
	}
	reserved, most := int64(baseline.ReservedAt(d, trace.Time(at))), int64(5<<40)
	for _, c := range []struct {
		free    int64
		history bool
		want    int64
	}{{3 << 20, true, 3 << 20}, {1 << 40, true, 1 << 40}, {0, false, reserved}, {512, false, reserved + 512}, {1 << 40, false, most}} {
		ended := &endingAt(rec, at, c.free).Devices[0]
		ended.AddressesInvented = c.history
		if got := (&compiler{device: ended, reserved: trace.Bytes(most)}).had(); got != c.want {
			t.Errorf("%d B, of a history %v: %d, expected %d", c.free, c.history, got, c.want)
		}
	}
}
