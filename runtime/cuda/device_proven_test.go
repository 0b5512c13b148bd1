//go:build cgo

package cuda

import (
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// fine is a granularity of the device, in bytes: with it a plan of some megabytes can have larger
// granules, as plans of real jobs have.
const fine = 4096

// granules is the size of the granules that an encoded plan's memory comes in, with the checksum
// that the runtime is told is that of a plan which an earlier run has followed.
func granules(t *testing.T, plan []byte, first, checksum uint64, still bool) uint64 {
	t.Helper()
	d, err := Open(plan, 0, Options{Capacity: 1 << 40, Granularity: fine, Partial: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if still {
		d.StopMoving()
	}
	d.Prove(checksum)
	if c := d.Counters(); c.PlanGranuleBytes != 0 {
		t.Errorf("granules of %d B before there is memory", c.PlanGranuleBytes)
	}
	if _, source, err := d.Malloc(first, 0); err != nil || source != FromPlan {
		t.Fatalf("the first request is from source %v, error %v", source, err)
	}
	return d.Counters().PlanGranuleBytes
}

// TestAProvenPlanHasLargeGranules: only the plan with the checksum that was told, and only if
// its places stay where they are and memory moves.
func TestAProvenPlanHasLargeGranules(t *testing.T) {
	of := planOf(8, iteration)
	plan := encode(t, of)
	sum := planfile.Checksum(plan)
	if got := granules(t, plan, 4*mib, sum, false); got <= fine || got > of.ArenaBytes/2048 || got%fine != 0 {
		t.Errorf("granules of %d B, expected more than %d, and at most 1/2048 of %d", got, fine, of.ArenaBytes)
	}
	for name, other := range map[string]uint64{"none": 0, "another plan": sum ^ 1} {
		if got := granules(t, plan, 4*mib, other, false); got != fine {
			t.Errorf("%s is proven: granules of %d B, expected %d", name, got, fine)
		}
	}
	if got := granules(t, plan, 4*mib, sum, true); got < of.ArenaBytes || got >= of.ArenaBytes+fine {
		t.Errorf("memory does not move: granules of %d B, expected one for all of %d", got, of.ArenaBytes)
	}
	follows := encode(t, lengths{layers: 6}.plan(3, 4, 9))
	if got := granules(t, follows, 64*mib, planfile.Checksum(follows), false); got != fine {
		t.Errorf("places follow sizes: granules of %d B, expected %d", got, fine)
	}
}

// TestHowAPlanIsFollowedIsCounted: from the beginning if it was found, and from the second pass on
// if it comes in the run, be it put in place or not.
func TestHowAPlanIsFollowedIsCounted(t *testing.T) {
	found := planOf(3, iteration)
	j := beginJob(t, 3, found)
	for range 4 {
		j.iterate(iteration)
	}
	c := j.device.Counters()
	if c.FollowedPlan != planfile.Checksum(encode(t, found)) || c.FollowedBytes != c.AllocationBytes || c.FittingBytes != c.AllocationBytes {
		t.Errorf("of the plan that was found: %+v", c)
	}
	for range 40 { // another program
		j.iterate([]uint64{7 * mib, 9 * mib, 33 * mib})
	}
	if c := j.device.Counters(); c.FollowedBytes != c.AllocationBytes || c.FittingBytes != c.PlannedBytes || c.FittingBytes > c.FollowedBytes/2 {
		t.Errorf("after the run has left the plan: %+v", c)
	}

	waits := beginJob(t, 100) // nothing moves, so its plan is not put in place
	even := []uint64{8 * mib, 8 * mib, 8 * mib}
	waits.install(planOf(100, even))
	waits.iterate(even)
	if c := waits.device.Counters(); c.FollowedPlan != 0 || c.FollowedBytes != 0 {
		t.Errorf("in the first pass: %+v", c)
	}
	for range 20 {
		waits.iterate(even)
	}
	c = waits.device.Counters()
	if sum := planfile.Checksum(encode(t, planOf(100, even))); c.Installs != 0 || c.FollowedPlan != sum || c.FollowedBytes < 19*24*mib || c.FittingBytes != c.FollowedBytes {
		t.Errorf("of a plan that follows the run: %+v", c)
	}

	comes := beginJob(t, 3)
	comes.install(found)
	for range 10 {
		comes.iterate(iteration)
	}
	c = comes.device.Counters()
	if c.Installs != 1 || c.FollowedPlan != planfile.Checksum(encode(t, found)) || c.FittingBytes != c.FollowedBytes || c.FollowedBytes < c.PlannedBytes {
		t.Errorf("of a plan that was put in place: %+v", c)
	}
}

// TestAProcessTellsThatAPlanIsProven: by its settings.
func TestAProcessTellsThatAPlanIsProven(t *testing.T) {
	t.Parallel()
	execute(t, compile(t, memorySanitizers, "proven.c"), planFile(t, planOf(8, iteration)))
}
