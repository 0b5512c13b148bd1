package fit

import (
	"math"
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// A size that falls, or grows faster than the square of the job's, is of no tensor: it is taken
// to grow in proportion from the nearest recording, and counts as not known.
func TestLawOfWhatIsNoTensor(t *testing.T) {
	for _, c := range []struct {
		name     string
		p, q     point
		x, bytes float64
		known    bool
	}{
		{"in proportion", point{64, 100}, point{128, 200}, 256, 400, true},
		{"a square", point{64, 100}, point{128, 400}, 256, 1600, true},
		{"the same", point{64, 100}, point{128, 100}, 256, 100, true},
		{"from nothing", point{64, 0}, point{128, 100}, 256, 300, true},
		{"a workspace of another algorithm", point{64, 1 << 20}, point{128, 300 << 20}, 256, 600 << 20, false},
		{"the same below", point{64, 1 << 20}, point{128, 300 << 20}, 32, 1 << 19, false},
		{"a workspace that falls", point{64, 24 << 20}, point{128, 1 << 20}, 16, 6 << 20, false},
		{"the same above", point{64, 24 << 20}, point{128, 1 << 20}, 256, 2 << 20, false},
		{"the same between, nearer to the smaller", point{64, 24 << 20}, point{128, 1 << 20}, 80, 30 << 20, false},
		{"the same between, nearer to the larger", point{64, 24 << 20}, point{128, 1 << 20}, 96, 3 << 18, false},
		{"as recorded", point{64, 24 << 20}, point{128, 1 << 20}, 64, 24 << 20, false},
	} {
		got, known := lawAt([]point{c.p, c.q}, c.x)
		if math.Abs(got-c.bytes) > 1e-6*max(1, c.bytes) || known != c.known {
			t.Errorf("%s: found %.0f B at %g, known %v, expected %.0f, %v", c.name, got, c.x, known, c.bytes, c.known)
		}
	}
}

// workspaces is a job whose tensor takes 100 MiB for each unit of size, with a workspace.
func workspaces(t *testing.T, size, workspace trace.Bytes) *Job {
	t.Helper()
	d := trace.Device{AddressesInvented: true}
	for step := range 3 {
		addr := uint64(2*step+1) << 40
		for _, e := range []trace.Event{
			{Action: trace.ActionAlloc, Addr: addr, Size: size * 100 << 20},
			{Action: trace.ActionAlloc, Addr: 2 * addr, Size: workspace},
			{Action: trace.ActionFreeCompleted, Addr: 2 * addr, Size: workspace},
			{Action: trace.ActionFreeCompleted, Addr: addr, Size: size * 100 << 20},
		} {
			e.Stack = trace.None
			d.Events = append(d.Events, e)
		}
	}
	tl, err := lifespan.Build(&d)
	if err != nil {
		t.Fatal(err)
	}
	tr := &trace.Trace{Name: "made up", Devices: []trace.Device{d}}
	return &Job{Trace: tr, Device: &tr.Devices[0], Timeline: tl}
}

// The error bar holds a job whose library takes any of the workspaces that were recorded, below
// the recordings, between them and above.
func TestErrorBarHoldsAnotherAlgorithm(t *testing.T) {
	const small, large = 1 << 20, 60 << 20
	l := &Laws{Jobs: []*Job{workspaces(t, 4, large), workspaces(t, 8, small)}, Sizes: []float64{4, 8}, Given: true}
	l.matches = make([][][]int32, 2)
	for k := range l.Jobs {
		l.matches[k] = make([][]int32, 2)
		l.matches[k][1-k] = lifespan.Match(l.Jobs[1-k].Timeline, l.Jobs[k].Timeline)
	}
	for _, x := range []trace.Bytes{1, 2, 5, 7, 12, 16} {
		for _, workspace := range []trace.Bytes{small, large} {
			predicted, _ := lawAt([]point{{4, 4 * 100 << 20}, {8, 8 * 100 << 20}}, float64(x))
			w, _ := lawAt([]point{{4, large}, {8, small}}, float64(x))
			predicted += w
			share := float64(l.doubtful(float64(x))) / predicted
			found := float64(x*100<<20 + workspace)
			if math.Abs(predicted-found) > share*predicted {
				t.Errorf("size %d, a workspace of %d B: predicted %.0f B ±%.1f %%, found %.0f B", x, workspace, predicted, 100*share, found)
			}
			if most := 1.01 * float64(max(x, 4)) / 4 * large / predicted; share > most { // the workspace alone, grown
				t.Errorf("size %d: ±%.1f %%, expected at most %.1f %%", x, 100*share, 100*most)
			}
		}
	}
}
