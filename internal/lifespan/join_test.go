package lifespan

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

func partOf(t testing.TB, name string, d *trace.Device) Part {
	tl := build(t, d)
	return Part{Name: name, Device: d, Timeline: tl, Iterations: find(t, d, tl)}
}

// TestJoin joins two runs of one program. All steady iterations of both are passes, and
// nothing else becomes of them than in a recording of one run: as many cells, and no more
// strays. The envelope is that of the larger run.
func TestJoin(t *testing.T) {
	for _, j := range []job{
		{name: "dense", layers: 8, micro: 2},
		{name: "inputs made ahead", layers: 8, micro: 2, prefetched: 1, inputSize: 1 << 20},
		{name: "inputs on a stream of their own", layers: 8, micro: 2, prefetched: 1, copyStream: true, late: 3},
		{name: "losses", layers: 8, micro: 2, keepLosses: true},
		{name: "lengths", layers: 8, micro: 2, variableSizes: true, prefetched: 1},
		{name: "gradients kept", layers: 8, micro: 2, keepGradients: true, late: 2},
	} {
		t.Run(j.name, func(t *testing.T) {
			short, long := j, j
			short.steps, long.steps = 4, 6
			a, b := partOf(t, "a", short.record(1).d), partOf(t, "b", long.record(2).d)
			joined, err := Join([]Part{a, b})
			if err != nil {
				t.Fatal(err)
			}
			tl := build(t, joined.Device)
			it := joined.Iterations
			if want := 3 + 5; it.SteadyCount != want || it.Count != want+1 || len(it.Starts) != want+2 || it.Starts[want+1] != tl.Events {
				t.Fatalf("iterations %+v of %d events, expected %d steady ones", it, tl.Events, want)
			}
			p, why := FindPeriodic(tl, it, EndRequested)
			if p == nil {
				t.Fatal(why)
			}
			checkPeriodic(t, tl, p, EndRequested)
			single, why := FindPeriodic(b.Timeline, b.Iterations, EndRequested)
			if single == nil {
				t.Fatal(why)
			}
			if len(p.Bodies) != len(single.Bodies) || len(p.Cells) != len(single.Cells) || p.Bodies[0].Length != single.Bodies[0].Length || p.StrayBytes > single.StrayBytes {
				t.Errorf("%d bodies of %d slots, %d cells, %d B of strays; of one recording %d of %d, %d, %d", len(p.Bodies), p.Bodies[0].Length, len(p.Cells), p.StrayBytes,
					len(single.Bodies), single.Bodies[0].Length, len(single.Cells), single.StrayBytes)
			}
			if len(p.Passes) < len(single.Passes)+2 {
				t.Errorf("%d passes, %d of the longer recording alone", len(p.Passes), len(single.Passes))
			}
			if joined, one := largest(p.Envelope(tl, EndRequested)), largest(single.Envelope(b.Timeline, EndRequested)); joined < one || !j.variableSizes && joined > one {
				t.Errorf("envelope %d, of the longer recording alone %d", joined, one)
			}
		})
	}
}

// TestJoinKeepsEvents: the first part is as recorded, and every allocation of the steady
// iterations of the second is there with its size and stream, in order.
func TestJoinKeepsEvents(t *testing.T) {
	j := job{layers: 6, micro: 2, steps: 4, variableSizes: true, late: 2}
	a, b := partOf(t, "a", j.record(1).d), partOf(t, "b", j.record(2).d)
	joined, err := Join([]Part{a, b})
	if err != nil {
		t.Fatal(err)
	}
	end := int(a.end())
	for i, e := range joined.Device.Events[:end] {
		if e != a.Device.Events[i] {
			t.Fatalf("event %d is %+v, in the first part %+v", i, e, a.Device.Events[i])
		}
	}
	var want []trace.Event
	for _, e := range b.Device.Events[b.Iterations.SteadyStart:b.end()] {
		if e.Action == trace.ActionAlloc {
			want = append(want, e)
		}
	}
	for _, e := range joined.Device.Events[end:] {
		if e.Action != trace.ActionAlloc {
			continue
		}
		if len(want) == 0 || e.Size != want[0].Size || e.Stream != want[0].Stream {
			t.Fatalf("%+v, expected the next of %d allocations", e, len(want))
		}
		want = want[1:]
	}
	if len(want) > 0 {
		t.Errorf("%d allocations are missing", len(want))
	}
}

// TestJoinRefuses names the recording and what does not fit.
func TestJoinRefuses(t *testing.T) {
	usual := job{layers: 8, micro: 2, steps: 4}
	for _, c := range []struct {
		name, want string
		change     func(*job)
	}{
		{"another model", "bytes live before the first steady iteration", func(j *job) { j.layers = 16 }},
		{"another stream", "streams: expected 1, found 2", func(j *job) { j.prefetched, j.copyStream = 1, true }},
		{"one step", "steady iterations: expected at least 1, found 0", func(j *job) { j.steps = 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			other := usual
			c.change(&other)
			_, err := Join([]Part{partOf(t, "a", usual.record(1).d), partOf(t, "b", other.record(1).d)})
			if err == nil || !strings.HasPrefix(err.Error(), "b: device 0: does not fit to a: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, expected one with %q", err, c.want)
			}
		})
	}
	d := usual.record(1).d
	bare := withoutAnnotations(d)
	_, err := Join([]Part{partOf(t, "a", d), partOf(t, "b", bare)})
	if err == nil || !regexp.MustCompile("iterations: expected from annotation .*, found from periodicity").MatchString(err.Error()) {
		t.Errorf("error %v if only one has annotations", err)
	}
}

// BenchmarkJoin joins two recordings of two sizes. The time of an event should be the same.
func BenchmarkJoin(b *testing.B) {
	for _, steps := range []int{10, 40} {
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			j := job{layers: 32, micro: 4, steps: steps}
			one, other := partOf(b, "one", j.record(0).d), partOf(b, "other", j.record(1).d)
			for b.Loop() {
				if _, err := Join([]Part{one, other}); err != nil {
					b.Fatal(err)
				}
			}
			events := float64(len(one.Device.Events) + len(other.Device.Events))
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
		})
	}
}
