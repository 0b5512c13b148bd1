package compile

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
)

var resnet = filepath.Join("..", "..", "examples", "resnet50", "resnet50.pickle.gz")

// TestAdvice: a plan that leaves as much free as it takes is advised against.
func TestAdvice(t *testing.T) {
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime to try a plan with")
	}
	recording, err := trace.ReadFile(resnet, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{Producer: "test", Serve: simdevice.Serve}
	p, sum, err := Compile(context.Background(), recording, opt)
	if err != nil {
		t.Fatal(err)
	}
	dev, judged := &p.Devices[0], sum.Devices[0].Judged
	if dev.Advice != planfile.AdviceNone || !judged.Pays || judged.Unseen || uint64(judged.Planned) != dev.ArenaBytes || judged.Pool <= judged.Planned {
		t.Errorf("the plan as it is: advice %d, %+v", dev.Advice, judged)
	}

	twiceAsLarge(dev)
	c := compiler{Options: opt, ctx: context.Background(), trace: "resnet50", device: &recording.Devices[0], stacks: &recording.Stacks}
	if c.timeline, err = lifespan.Build(c.device); err != nil {
		t.Fatal(err)
	}
	if judged, err = c.advise(dev, nil); err != nil {
		t.Fatal(err)
	}
	if dev.Advice != planfile.AdvicePool || judged.Pays || judged.Planned <= judged.Pool {
		t.Errorf("the plan that leaves as much free as it takes: advice %d, %+v", dev.Advice, judged)
	}

	for _, forbid := range []Options{{NoReusePending: true, Serve: simdevice.Serve}, {NoCrossStream: true, Serve: simdevice.Serve}, {}} {
		unadvised := *dev
		unadvised.Advice = planfile.AdviceNone
		c.Options = forbid
		judged, err := c.advise(&unadvised, nil)
		if err != nil || judged != nil || unadvised.Advice != planfile.AdviceNone {
			t.Errorf("waits are forbidden, or there is no Server: expected no advice, found %d, %+v, %v", unadvised.Advice, judged, err)
		}
	}
}

// twiceAsLarge spreads a plan over twice the memory.
func twiceAsLarge(dev *planfile.Device) {
	dev.ArenaBytes *= 2
	for i := range dev.Slots {
		dev.Slots[i].Offset *= 2
	}
	for i := range dev.Phases {
		dev.Phases[i].Makespan *= 2
	}
	dev.Certificate.Gap = dev.ArenaBytes - dev.Certificate.LowerBound
}

// TestAdviceOfTheUnseen: if optional slots are all over a body, the plan that is
// judged has not seen the last pass; if they are one stretch, it is the plan
// itself.
func TestAdviceOfTheUnseen(t *testing.T) {
	body := func(optional func(i int) bool) *planfile.Device {
		d := &planfile.Device{Mode: planfile.ModePeriodic, Phases: []planfile.Phase{{Kind: planfile.PhaseBody, Occurrences: 3, Length: 6000, SlotCount: 6000}}}
		for i := range 6000 {
			s := planfile.Slot{Occurrences: 3}
			if optional(i) {
				s.Occurrences = 2
			}
			d.Slots = append(d.Slots, s)
		}
		return d
	}
	if !differ(body(func(i int) bool { return i%50 == 0 })) {
		t.Error("120 optional slots, one at a time: expected that data decides")
	}
	if differ(body(func(i int) bool { return i < 300 })) {
		t.Error("one stretch of 300 optional slots: expected that it does not")
	}
}

// TestPays: what a plan reserves beyond the pool, it has to spare in memory moved, unless it has to
// reserve less.
func TestPays(t *testing.T) {
	pool := replay.Cost{Reserved: 1000, Moved: 100}
	for _, c := range []struct {
		planned replay.Cost
		slack   int64
		want    bool
	}{
		{replay.Cost{Reserved: 1000, Moved: 500}, 0, true},
		{replay.Cost{Reserved: 1000, Moved: 500}, 5, true},
		{replay.Cost{Reserved: 1001, Moved: 0}, 0, false},
		{replay.Cost{Reserved: 1005, Moved: 49}, 5, true},
		{replay.Cost{Reserved: 1005, Moved: 50}, 5, false},
		{replay.Cost{Reserved: 1006, Moved: 0}, 5, false},
		{replay.Cost{Reserved: 998, Moved: 500}, -2, true},
		{replay.Cost{Reserved: 999, Moved: 0}, -2, false},
	} {
		if got := pays(c.planned, pool, c.slack); got != c.want {
			t.Errorf("%+v beside %+v, slack %d: pays %v, expected %v", c.planned, pool, c.slack, got, c.want)
		}
	}
}
