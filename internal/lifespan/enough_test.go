package lifespan

import "testing"

// TestEnough: once there is no time, iterations are aligned in no further way, and what was found by then is the steady state.
func TestEnough(t *testing.T) {
	j := job{layers: 10, micro: 1, steps: 24, variableSizes: true, paddedFrom: 700, evaluateEvery: 4, evaluations: 4, lean: true}
	d := j.record(16).d
	tl := build(t, d)
	it := find(t, d, tl)
	asked, costs := 0, []float64{}
	for ways := range 6 {
		it.Enough = func() bool {
			asked++
			return asked > ways
		}
		asked = 0
		p, why := findPeriodic(tl, it, EndRequested)
		if p == nil {
			t.Fatal(why)
		}
		checkPeriodic(t, tl, p, EndRequested)
		if want := min(ways+1, 5); asked != want {
			t.Errorf("time for %d more ways: asked %d times, expected %d", ways, asked, want)
		}
		costs = append(costs, p.cost(tl, EndRequested).total())
	}
	for i := 1; i < len(costs); i++ {
		if costs[i] > costs[i-1] {
			t.Errorf("%d more ways cost %g, and %d cost %g", i, costs[i], i-1, costs[i-1])
		}
	}
	if costs[0] <= costs[len(costs)-1] {
		t.Errorf("one way costs %g, all cost %g; expected less", costs[0], costs[len(costs)-1])
	}
}
