package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/runtime/cuda"
)

// provenMost is what a plan that an earlier run has followed may reserve at most when the run
// suddenly differs, compared with the same plan that none has.
const provenMost = 1.03

// provenOnPlan is how much of the share on plan, from 0 to 1, a run may lose at most by it.
const provenOnPlan = 0.05

// provenSeeds are those of the disturbances.
const provenSeeds = 3

// Sizes that a run turns to in the middle, as factors of those before: another batch.
var turns = []float64{0.5, 0.8, 1.25}

// TestProvenPlans serves runs by plans that an earlier run has followed, and by the same ones
// that none has: the plan's own run, the same one disturbed, one that turns to other sizes in the
// middle, and runs of other jobs. STPLAN_TRACES is as in TestForeignPlans. Of plans whose granules
// are the same either way nothing is listed.
func TestProvenPlans(t *testing.T) {
	if testing.Short() {
		t.Skip("serves many runs, which takes seconds, and minutes under the race detector")
	}
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	runs := foreignRuns(t)
	var own, foreign []twice
	large := 0
	for i := range runs {
		plan := &runs[i]
		if plan.plan == nil {
			continue
		}
		undisturbed := serveTwice(t, plan, plan, plan.program, "as recorded")
		if undisturbed.growths[0] == undisturbed.growths[1] {
			continue // its granules are of the least size
		}
		large++
		own = append(own, undisturbed)
		for _, rate := range []float64{0.001, 0.01} {
			for seed := range uint64(provenSeeds) {
				own = append(own, serveTwice(t, plan, plan, plan.program.Disturb(rate, seed+1), fmt.Sprintf("%g of the requests disturbed", rate)))
			}
		}
		for _, factor := range turns {
			if turned := turn(t, plan, factor); turned != nil {
				own = append(own, serveTwice(t, plan, plan, turned, fmt.Sprintf("sizes times %g from the middle on", factor)))
			}
		}
		for j := range runs {
			if runs[j].job != plan.job {
				foreign = append(foreign, serveTwice(t, plan, &runs[j], runs[j].program, "of another job"))
			}
		}
	}
	t.Logf("%d plans with larger granules", large)
	if large == 0 {
		t.Fatal("no plan has larger granules")
	}
	kinds := []string{}
	for _, o := range own {
		if !slices.Contains(kinds, o.kind) {
			kinds = append(kinds, o.kind)
		}
	}
	for _, kind := range append(kinds, "of another job") {
		demandLittle(t, kind, slices.DeleteFunc(slices.Concat(own, foreign), func(o twice) bool { return o.kind != kind }))
	}
}

// twice is a run with a plan, and again with the plan as one that an earlier run has followed.
type twice struct {
	kind, plan, serves string
	pool               float64    // reserved / allocated without a plan
	ratio, onPlan      [2]float64 // reserved / allocated, and the share of the bytes on plan
	growths            [2]uint64
}

func (o *twice) costs() float64 { return o.ratio[1] / o.ratio[0] }

func serveTwice(t *testing.T, plan, of *run, program *replay.Program, kind string) twice {
	o := twice{kind: kind, plan: plan.name, serves: of.name}
	var pool cuda.Counters
	for i, proven := range []bool{false, true} {
		c := serveProven(t, program, plan.plan, plan.ordinal, proven)
		o.ratio[i] = float64(c.PeakReserved) / float64(c.PeakAllocated)
		o.onPlan[i] = float64(c.PlannedBytes) / float64(max(1, c.AllocationBytes))
		o.growths[i] = c.Growths
	}
	if pool = serveProven(t, program, nil, 0, false); pool.PeakAllocated > 0 {
		o.pool = float64(pool.PeakReserved) / float64(pool.PeakAllocated)
	}
	return o
}

func serveProven(t *testing.T, program *replay.Program, plan []byte, ordinal int, proven bool) cuda.Counters {
	d, err := simdevice.Open(plan, ordinal, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if proven {
		d.Prove(planfile.Checksum(plan))
	}
	if err := replay.Drive(program, d); err != nil {
		t.Fatal(err)
	}
	return d.Counters()
}

// turn is the run of a plan, for more iterations, all of whose sizes change in the middle; nil
// if it cannot be made longer. What is live then stays as it is.
func turn(t *testing.T, of *run, factor float64) *replay.Program {
	if of.long == nil {
		return nil
	}
	p := *of.long
	p.Requests = slices.Clone(p.Requests)
	middle := p.Requests[len(p.Requests)/2].Event
	for i := range p.Requests {
		if r := &p.Requests[i]; r.Event >= middle {
			r.Requested = trace.Bytes(max(1, float64(r.Requested)*factor))
		}
	}
	return &p
}

// demandLittle prints what the runs of a kind cost, the worst ones first, and fails if one
// costs too much or leaves its plan.
func demandLittle(t *testing.T, kind string, got []twice) {
	slices.SortStableFunc(got, func(a, b twice) int { return cmp.Compare(b.costs(), a.costs()) })
	dearer, above, left := 0, 0, 0
	for _, o := range got {
		if o.costs() > 1.001 {
			dearer++
		}
		if o.ratio[1]/o.pool > foreignMost && o.ratio[0]/o.pool <= foreignMost {
			above++
		}
		if o.onPlan[1] < o.onPlan[0]-provenOnPlan {
			left++
			t.Errorf("%s: plan of %s, serving %s: %.4f of the bytes on plan, %.4f if it is not proven", kind, o.plan, o.serves, o.onPlan[1], o.onPlan[0])
		}
		if o.costs() > provenMost {
			t.Errorf("%s: plan of %s, serving %s: reserves %.4f of what it does if it is not proven", kind, o.plan, o.serves, o.costs())
		}
	}
	var table strings.Builder
	for _, o := range got[:min(8, len(got))] {
		fmt.Fprintf(&table, "\n| %s | %s | %.4f | %.4f | %.4f | %.2f %% | %.2f %% |", o.plan, o.serves, o.pool, o.ratio[0], o.ratio[1], 100*o.onPlan[0], 100*o.onPlan[1])
	}
	t.Logf("%s: %d runs, %d reserve more than 1.001 of what they do without, %d more that are above %g of no plan, %d left the plan\n"+
		"| plan of | serves | no plan | plan | proven | on plan | proven |\n|---|---|---|---|---|---|---|%s", kind, len(got), dearer, above, foreignMost, left, table.String())
}
