package fit

import (
	"math"
	"testing"
)

// A size that grows faster than the square of the job's grows in a line beyond the
// recordings.
func TestLawOfWhatIsNoTensor(t *testing.T) {
	for _, c := range []struct {
		name     string
		p, q     point
		x, bytes float64
	}{
		{"in proportion", point{64, 100}, point{128, 200}, 256, 400},
		{"a square", point{64, 100}, point{128, 400}, 256, 1600},
		{"a workspace of another algorithm", point{64, 1 << 20}, point{128, 300 << 20}, 256, 898 << 20},
		{"the same below", point{64, 1 << 20}, point{128, 300 << 20}, 32, 0},
	} {
		if got := lawAt([]point{c.p, c.q}, c.x); math.Abs(got-c.bytes) > 1e-6*max(1, c.bytes) {
			t.Errorf("%s: found %.0f B at %g, expected %.0f", c.name, got, c.x, c.bytes)
		}
	}
}
