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

// What a plan that an earlier run has followed may reserve at most, compared with the same plan that
// none has: a share of that, or a number of its granules in a job that is small beside the plan.
const (
	provenMost     = 1.03
	provenGranules = 8
)

// provenLeft is the share of the runs of a kind, from 0 to 1, that may leave their plan because it is
// proven, and leftBelow how much of the share on plan tells that. Runs with one request in a hundred
// disturbed do so without it, too.
const (
	provenLeft = 0.05
	leftBelow  = 0.05
)

// provenSeeds are those of the disturbances.
const provenSeeds = 3

// Sizes that a run turns to in the middle, as factors of those before: another batch.
var turns = []float64{0.5, 0.8, 1.25}

// TestProvenPlans serves runs by plans that an earlier run has followed, and by the same ones
// that none has: the plan's own run, the same one disturbed, one that turns to other sizes in the
// middle, and runs of other jobs. STPLAN_TRACES is as in TestForeignPlans. Of plans whose granules
// are the same either way nothing is listed.
func TestProvenPlans(t *testing.T) {
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
			continue // its granules are of the least size: places that follow sizes, or a small plan
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
	var table strings.Builder
	for _, kind := range kinds {
		demandLittle(t, &table, kind, slices.DeleteFunc(slices.Clone(own), func(o twice) bool { return o.kind != kind }), true)
	}
	demandLittle(t, &table, "of another job", foreign, false)
	t.Logf("\n| runs | number | mean, proven / not | worst | above 1.001 | above %g of no plan, proven / not | left the plan |\n|---|---|---|---|---|---|---|%s", foreignMost, table.String())
}

// twice is a run with a plan, and again with the plan as one that an earlier run has followed.
type twice struct {
	kind, plan, serves string
	pool               float64 // reserved / allocated without a plan
	allocated, granule uint64  // the most bytes allocated, and those of a granule of the proven plan
	reserved, growths  [2]uint64
	onPlan             [2]float64 // the share of the bytes
}

func (o *twice) ratio(i int) float64 { return float64(o.reserved[i]) / float64(o.allocated) }

// above says whether more is reserved than a plan of another job may.
func (o *twice) above(i int) bool { return o.ratio(i)/o.pool > foreignMost }

// costs is what is reserved with the plan proven, of what is otherwise.
func (o *twice) costs() float64 { return float64(o.reserved[1]) / float64(o.reserved[0]) }

func serveTwice(t *testing.T, plan, of *run, program *replay.Program, kind string) twice {
	o := twice{kind: kind, plan: plan.name, serves: of.name}
	for i, proven := range []bool{false, true} {
		c := serveProven(t, program, plan.plan, plan.ordinal, proven)
		o.allocated, o.granule = c.PeakAllocated, c.PlanGranuleBytes
		o.reserved[i], o.growths[i] = c.PeakReserved, c.Growths
		o.onPlan[i] = float64(c.PlannedBytes) / float64(max(1, c.AllocationBytes))
	}
	o.pool = float64(serveProven(t, program, nil, 0, false).PeakReserved) / float64(o.allocated)
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

// demandLittle adds what the runs of a kind cost to a table, prints the worst ones, and fails if
// one costs too much, or, if that is demanded, too many leave their plan.
func demandLittle(t *testing.T, to *strings.Builder, kind string, got []twice, demandPlan bool) {
	slices.SortStableFunc(got, func(a, b twice) int { return cmp.Compare(b.costs(), a.costs()) })
	dearer, left, mean := 0, 0, 0.0
	var above [2]int
	for _, o := range got {
		mean += o.costs() / float64(len(got))
		if o.costs() > 1.001 {
			dearer++
		}
		for i := range above {
			if o.above(i) {
				above[i]++
			}
		}
		if o.onPlan[1] < o.onPlan[0]-leftBelow {
			left++
			t.Logf("left: %s: plan of %s, serving %s: %.2f %% of the bytes on plan, %.2f %% if it is not proven", kind, o.plan, o.serves, 100*o.onPlan[1], 100*o.onPlan[0])
		}
		if o.costs() > provenMost && o.reserved[1] > o.reserved[0]+provenGranules*o.granule {
			t.Errorf("%s: plan of %s, serving %s: reserves %.4f of what it does if it is not proven", kind, o.plan, o.serves, o.costs())
		}
	}
	if demandPlan && float64(left) > provenLeft*float64(len(got)) {
		t.Errorf("%s: %d of %d runs leave their plan if it is proven", kind, left, len(got))
	}
	fmt.Fprintf(to, "\n| %s | %d | %.4f | %.4f | %d | %d / %d | %d |", kind, len(got), mean, got[0].costs(), dearer, above[1], above[0], left)
	var table strings.Builder
	for _, o := range got[:min(6, len(got))] {
		fmt.Fprintf(&table, "\n| %s | %s | %.2f | %d | %.4f | %.4f | %.4f | %.2f %% | %.2f %% |", o.plan, o.serves, float64(o.allocated)/(1<<30), o.granule>>20, o.pool, o.ratio(0), o.ratio(1), 100*o.onPlan[0], 100*o.onPlan[1])
	}
	t.Logf("%s\n| plan of | serves | GiB allocated | granules, MiB | no plan | plan | proven | on plan | proven |\n|---|---|---|---|---|---|---|---|---|%s", kind, table.String())
}
