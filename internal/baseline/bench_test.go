package baseline

import (
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// longRecording makes a recording with at least the given number of entries.
func longRecording(t testing.TB, entries int) (*trace.Device, Config) {
	t.Helper()
	d, c := readFixture(t, "default", "")
	// The fixture's program again and again. What it leaves live is freed each time.
	long := &trace.Device{}
	for len(long.Events) < entries {
		long.Events = append(long.Events, d.Events...)
		live := make(map[uint64]trace.Event)
		for i := range d.Events {
			switch e := d.Events[i]; e.Action {
			case trace.ActionAlloc:
				live[e.Addr] = e
			case trace.ActionFreeCompleted:
				delete(live, e.Addr)
			}
		}
		for i := range d.Events {
			if e, ok := live[d.Events[i].Addr]; ok {
				delete(live, e.Addr)
				for _, a := range []trace.Action{trace.ActionFreeRequested, trace.ActionFreeCompleted} {
					e.Action = a
					long.Events = append(long.Events, e)
				}
			}
		}
	}
	return long, c
}

func BenchmarkSimulate(b *testing.B) {
	d, c := longRecording(b, 500_000)
	for _, c := range []Config{Native(c), Expandable(c)} {
		b.Run("allocator="+c.Kind(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := simulate(d, c, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(d.Events))*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func BenchmarkSelfCheck(b *testing.B) {
	d, c := longRecording(b, 500_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := selfCheck(d, c, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(d.Events))*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkCollect(b *testing.B) {
	const n = 20_000
	for b.Loop() {
		a := crowd(b, n)
		miss(b, a, n)
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "misses/s")
}
