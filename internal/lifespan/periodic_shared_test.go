package lifespan

import (
	"testing"
	"time"

	"github.com/stplan/stplan/internal/trace"
)

// sharedBodies is the number of bodies of the recordings that have more than one. With an
// interlude in it, the recording ends in an evaluation.
var sharedBodies = map[string]struct {
	bodies    int
	interlude bool
}{
	"gpt345-eval.pickle.gz": {3, true},
	"sft.pickle.gz":         {2, false},
	"pyg.pickle.gz":         {2, false},
}

// TestSharedPeriodic finds the steady state of real recordings. If the program does the
// same in every iteration, the envelope costs nothing, even if sizes vary, but for a
// thousandth if sizes follow several quantities that do not grow together. For a mixture
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
			want := sharedBodies[r.File]
			if n := max(1, want.bodies); len(p.Bodies) != n || p.Bodies[n-1].Interlude != want.interlude {
				t.Errorf("%d bodies, expected %d; interlude expected: %v", len(p.Bodies), n, want.interlude)
			}
			envelope, recorded := largest(p.Envelope(tl, end)), p.PeakRecorded(tl, end).Bytes
			if float64(envelope) > 1.15*float64(recorded) {
				t.Errorf("envelope %d, recorded %d", envelope, recorded)
			}
			allowed := recorded
			if r.foreign {
				allowed += recorded / 1000
			}
			if envelope < recorded || r.Kind != "moe" && end == EndRequested && envelope > allowed {
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
