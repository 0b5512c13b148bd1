//go:build cgo

package cuda

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

const (
	mib     = 1 << 20
	granule = 2 * mib
)

// pausedJob serves passes of a job with a plan: parameters that stay, and 60 blocks of 5 to
// 64 MiB that come and go. It returns the device, the bytes that stay, and a pass, which
// returns the offsets of its blocks, or the error of its first request that fails.
func pausedJob(t *testing.T, capacity uint64) (*Device, uint64, func() ([]int64, error)) {
	t.Helper()
	const parameters = 100*mib + 512
	body := make([]uint64, 60)
	for i := range body {
		body[i] = uint64(5+i) * mib
	}
	d := open(t, periodic([]uint64{parameters}, [][]uint64{body}, []uint32{1, 1}), Options{Capacity: capacity, Granularity: granule, Partial: true})
	if _, _, err := d.Malloc(parameters, 0); err != nil {
		t.Fatal(err)
	}
	pass := func() ([]int64, error) {
		d.Mark()
		var blocks []uint64
		defer func() {
			for _, at := range blocks {
				if err := d.Free(at, 0); err != nil {
					t.Error(err)
				}
			}
		}()
		offsets := make([]int64, len(body))
		for i, n := range body {
			at, source, err := d.Malloc(n, 0)
			if err != nil {
				return nil, err
			}
			blocks = append(blocks, at)
			offsets[i] = -1
			if source == FromPlan {
				offsets[i] = int64(at - Base)
			}
		}
		return offsets, nil
	}
	return d, parameters, pass
}

// passed is a pass in which every request is served.
func passed(t *testing.T, pass func() ([]int64, error)) []int64 {
	t.Helper()
	offsets, err := pass()
	if err != nil {
		t.Fatal(err)
	}
	return offsets
}

// paused gives memory away, and checks the bytes against the survey.
func paused(t *testing.T, d *Device) uint64 {
	t.Helper()
	before, reserved := d.Survey(), d.Counters().ReservedBytes
	given, err := d.Pause()
	after := d.Survey()
	if err != nil || given != before.Idle || after.Idle != 0 || d.Counters().ReservedBytes != reserved-given {
		t.Fatalf("%d B given, %v; before %+v, after %+v", given, err, before, after)
	}
	return given
}

// TestPauseKeepsThePlan pauses between passes. All but what parameters lie in is given, the
// next pass is served at the same places, and after a resume it takes nothing from the device.
func TestPauseKeepsThePlan(t *testing.T) {
	d, parameters, pass := pausedJob(t, 1<<40)
	passed(t, pass)
	places := passed(t, pass)
	if slices.Contains(places, -1) {
		t.Fatalf("requests are off plan before the pause: %d", places)
	}
	for _, resumed := range []bool{false, true, true} {
		before := d.Counters()
		given := paused(t, d)
		if left := before.ReservedBytes - given; left > parameters+granule {
			t.Errorf("%d B stay for %d of parameters", left, parameters)
		}
		if now := d.Survey(); now.Given != given || now.Live != parameters || now.Live+now.Beside+now.Plan != d.Counters().ReservedBytes {
			t.Errorf("%d B given: %+v", given, now)
		}
		growths := before.Growths
		if resumed {
			if half, err := d.Resume(given / 2); err != nil || half < given/2 || half > given/2+granule {
				t.Errorf("half of %d B: %d taken, %v", given, half, err)
			}
			if _, err := d.Resume(math.MaxUint64); err != nil || d.Counters().ReservedBytes != before.ReservedBytes || d.Survey().Given != 0 {
				t.Errorf("%v, %d B are reserved, %d were; %+v", err, d.Counters().ReservedBytes, before.ReservedBytes, d.Survey())
			}
			growths = d.Counters().Growths
		}
		if now := passed(t, pass); !slices.Equal(now, places) {
			t.Errorf("resumed %v: places %d, before %d", resumed, now, places)
		}
		after := d.Counters()
		if after.State != Body || after.PeakReserved != before.PeakReserved || resumed && after.Growths != growths {
			t.Errorf("resumed %v: %+v, before %+v", resumed, after, before)
		}
	}
	if taken, err := d.Resume(math.MaxUint64); taken != 0 || err != nil {
		t.Errorf("%d B taken, %v, although all is back", taken, err)
	}
}

// TestPauseTakesWhatIsNeeded asks for a fifth of the plan between pause and resume: no more
// than that is taken, and resume takes the rest.
func TestPauseTakesWhatIsNeeded(t *testing.T) {
	d, parameters, pass := pausedJob(t, 1<<40)
	passed(t, pass)
	passed(t, pass)
	before := d.Counters().ReservedBytes
	given := paused(t, d)
	d.Mark()
	var need uint64
	for i := range uint64(25) {
		at, _, err := d.Malloc((5+i)*mib, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Free(at, 0)
		need += (5 + i) * mib
	}
	now := d.Counters().ReservedBytes
	if now > parameters+need+2*granule || now < need {
		t.Errorf("%d B are reserved for %d", now, parameters+need)
	}
	if taken, err := d.Resume(math.MaxUint64); err != nil || taken != before-now || d.Survey().Given != 0 || taken >= given {
		t.Errorf("%d of %d B taken, %v; %d were missing", taken, given, err, before-now)
	}
}

// TestMemoryThatAnotherProcessHas: what was given is taken by another process. Resume takes
// what is left, requests fail once nothing is, the plan stays, and when the memory is back
// the run goes on at its places.
func TestMemoryThatAnotherProcessHas(t *testing.T) {
	const capacity = 4 << 30
	for _, theirs := range []uint64{capacity, 3 << 30} {
		d, _, pass := pausedJob(t, capacity)
		passed(t, pass)
		places := passed(t, pass)
		before := d.Counters().ReservedBytes
		given := paused(t, d)
		d.Occupy(theirs)
		if taken, err := d.Resume(math.MaxUint64); !errors.Is(err, ErrNoMemory) || taken > given || d.Survey().Given != given-taken {
			t.Errorf("%d of %d B taken, %v", taken, given, err)
		}
		for range 3 {
			if _, err := pass(); !errors.Is(err, ErrNoMemory) {
				t.Errorf("a pass without memory: %v", err)
			}
		}
		if c := d.Counters(); c.State != Body || c.Failed != 3 {
			t.Errorf("%+v", c)
		}
		d.Occupy(0)
		if _, err := d.Resume(math.MaxUint64); err != nil {
			t.Error(err)
		}
		passed(t, pass)
		// After a pass that broke off, the matcher finds its place within three requests.
		if now := passed(t, pass); !slices.Equal(now[3:], places[3:]) || d.Counters().ReservedBytes > before+before/100 {
			t.Errorf("places %d, before %d; %d B reserved, before %d", now, places, d.Counters().ReservedBytes, before)
		}
	}
}

// TestPressureTakesNoMoreThanItNeeds has another process take a quarter of what was given,
// and all that the device has left besides. A request off plan gets what it needs of the
// plan's idle memory, and the rest is not given away, where the other process would take it.
// Then memory follows the requests from place to place.
func TestPressureTakesNoMoreThanItNeeds(t *testing.T) {
	const besides = 200 * mib
	d, _, pass := pausedJob(t, 4<<30)
	passed(t, pass)
	places := passed(t, pass)
	given := paused(t, d)
	if _, err := d.Resume(given / 4 * 3); err != nil {
		t.Fatal(err)
	}
	before := d.Counters()
	d.Occupy(math.MaxUint64)
	at, source, err := d.Malloc(besides, 7)
	now := d.Counters()
	if err != nil || now.ReservedBytes != before.ReservedBytes || now.MovedBytes-before.MovedBytes > besides+granule {
		t.Fatalf("from %d, %v; %d B reserved, before %d; %d moved", source, err, now.ReservedBytes, before.ReservedBytes, now.MovedBytes-before.MovedBytes)
	}
	if err := d.Free(at, 7); err != nil {
		t.Fatal(err)
	}
	body := make([]uint64, len(places))
	for i := range body {
		body[i] = uint64(5+i) * mib
	}
	d.Mark()
	if again := serve(t, d, body); !slices.Equal(again, places) || d.Counters().ReservedBytes+granule < before.ReservedBytes || d.Counters().State != Body {
		t.Errorf("places %d, before %d; %+v", again, places, d.Counters())
	}
}

// TestPausesAtRandom drives requests, pins, pauses and resumes at random. What is reserved is
// what the survey adds up to; pauses give what it says; resumes never take more than was
// reserved before.
func TestPausesAtRandom(t *testing.T) {
	type block struct{ at, size uint64 }
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 9))
		d, err := Open(nil, 0, Options{Capacity: 1 << 40, Granularity: granule, Partial: seed%4 != 3, Silent: true})
		if err != nil {
			t.Fatal(err)
		}
		if seed%4 == 2 {
			d.StopMoving()
		}
		var live []block
		var most uint64 // reserved, before the first pause that has not been made up for
		for range 3000 {
			switch kind := rng.IntN(100); {
			case kind < 3:
				reserved := d.Counters().ReservedBytes
				if d.Survey().Given == 0 {
					most = reserved
				}
				most = max(most, reserved)
				paused(t, d)
			case kind < 6:
				given := d.Survey().Given
				taken, err := d.Resume(rng.Uint64N(200 * mib))
				if err != nil || taken > given+granule || taken > 0 && d.Counters().ReservedBytes > most+granule {
					t.Fatalf("%d of %d B taken, %v; %d B reserved, before %d", taken, given, err, d.Counters().ReservedBytes, most)
				}
			case kind < 8 && len(live) > 0:
				b := live[rng.IntN(len(live))]
				if err := d.Pin(b.at, 1+rng.Uint64N(b.size)); err != nil {
					t.Fatal(err)
				}
			case kind < 50 && len(live) > 0 || len(live) > 60:
				i := rng.IntN(len(live))
				if err := d.Free(live[i].at, 0); err != nil {
					t.Fatal(err)
				}
				live = slices.Delete(live, i, i+1)
			default:
				size := 1 + rng.Uint64N(uint64(1)<<(9+rng.IntN(17)))
				at, _, err := d.Malloc(size, rng.Uint64N(3))
				if err != nil {
					t.Fatal(err)
				}
				live = append(live, block{at, size})
			}
			m, c := d.Survey(), d.Counters()
			if m.Idle+m.Live+m.Beside+m.Pinned+m.Plan != c.ReservedBytes || m.Live != c.AllocatedBytes {
				t.Fatalf("%+v of %d B reserved, %d allocated", m, c.ReservedBytes, c.AllocatedBytes)
			}
		}
		d.Close()
	}
}
