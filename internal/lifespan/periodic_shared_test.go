package lifespan

import (
	"strings"
	"testing"
	"time"

	"github.com/stplan/stplan/internal/trace"
)

// TestSharedPeriodic finds the steady state of real recordings. If the program does the
// same in every iteration, the envelope costs nothing, even if sizes vary. For a mixture
// of experts it costs less than 1.15; without weights (meanWeight 0) it costs up to 1.20.
func TestSharedPeriodic(t *testing.T) {
	forShared(t, func(t *testing.T, r recording, d *trace.Device) {
		tl := build(t, d)
		it := find(t, d, tl)
		for _, end := range bothEnds {
			if end == EndCompleted && testing.Short() {
				continue
			}
			began := time.Now()
			p, why := FindPeriodic(tl, it, end)
			took := time.Since(began)
			if p == nil {
				t.Fatal(why)
			}
			checkPeriodic(t, tl, p, end)
			logPeriodic(t, tl, p, end, took)
			// The one recording with evaluations has them in iterations and at its end.
			if want := 1 + 2*strings.Count(r.File, "-eval."); len(p.Bodies) != want || p.Bodies[want-1].Interlude != (want > 1) {
				t.Errorf("%d bodies, expected %d", len(p.Bodies), want)
			}
			envelope, recorded := largest(p.Envelope(tl, end)), p.PeakRecorded(tl, end).Bytes
			if float64(envelope) > 1.15*float64(recorded) {
				t.Errorf("envelope %d, recorded %d", envelope, recorded)
			}
			if envelope < recorded || r.Kind != "moe" && end == EndRequested && envelope > recorded {
				t.Errorf("envelope %d, recorded %d", envelope, recorded)
			}
		}
	})
}

// logPeriodic prints a row of the table in docs/steady-state.md.
func logPeriodic(t *testing.T, tl *Timeline, p *Periodic, end End, took time.Duration) {
	var crossing, resident trace.Bytes
	for _, c := range p.Cells {
		crossing += c.Size
	}
	for _, s := range p.Prologue {
		if s.Resident {
			resident += tl.Buffers[s.Buffer].Size
		}
	}
	const mib = 1 << 20
	for x, b := range p.Bodies {
		t.Logf("end %d, body %d: %d passes, %d slots, %d optional", end, x, b.Occurrences, b.Length, optional(b))
	}
	envelope, recorded := p.Envelope(tl, end), p.PeakRecorded(tl, end)
	t.Logf("end %d: cut %d, end %d; %d cells, %.1f MiB crossing, %d B of strays, %.1f MiB resident; envelope %v, recorded %d, ratio %.4f; %v",
		end, p.Cut, p.End, len(p.Cells), float64(crossing)/mib, p.StrayBytes, float64(resident)/mib,
		envelope, recorded.Bytes, float64(largest(envelope))/float64(recorded.Bytes), took.Round(time.Millisecond))
}
