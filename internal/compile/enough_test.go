//go:build cgo

package compile

import (
	"errors"
	"fmt"
	"slices"
	"testing"

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

// endingAt is the history of a run that ran out of memory at an event, with `had` bytes reserved.
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
