package compile

import (
	"bytes"
	"context"
	"testing"

	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
)

// TestKeeps: what was there before is kept if it serves clearly better than the plan that is made, or than the pool if that plan does not pay.
func TestKeeps(t *testing.T) {
	row := func(before *report.Against, planned, moved int64, pays bool) report.CompiledDevice {
		return report.CompiledDevice{Against: before, Judged: &report.Judged{Planned: planned, PlannedMoved: moved, Pool: 1020, PoolMoved: 400, Pays: pays}}
	}
	for what, c := range map[string]struct {
		rows []report.CompiledDevice
		want bool
	}{
		"much less memory":          {[]report.CompiledDevice{row(&report.Against{Reserved: 1000, Moved: 500}, 1010, 0, true)}, true},
		"hardly less":               {[]report.CompiledDevice{row(&report.Against{Reserved: 1006, Moved: 500}, 1010, 0, true)}, false},
		"less moves":                {[]report.CompiledDevice{row(&report.Against{Reserved: 1012, Moved: 20}, 1010, 60, true)}, true},
		"less moves for more":       {[]report.CompiledDevice{row(&report.Against{Reserved: 1018, Moved: 20}, 1010, 60, true)}, false},
		"the other does not pay":    {[]report.CompiledDevice{row(&report.Against{Reserved: 1010, Moved: 100}, 900, 0, false)}, true},
		"neither does this":         {[]report.CompiledDevice{row(&report.Against{Reserved: 1020, Moved: 400}, 900, 0, false)}, false},
		"better on one of two":      {[]report.CompiledDevice{row(&report.Against{Reserved: 1000}, 1010, 0, true), row(&report.Against{Reserved: 1010}, 1010, 0, true)}, true},
		"and worse on the other":    {[]report.CompiledDevice{row(&report.Against{Reserved: 1000}, 1010, 0, true), row(&report.Against{Reserved: 1020}, 1010, 0, true)}, false},
		"it cannot serve one":       {[]report.CompiledDevice{row(&report.Against{Reserved: 1000}, 1010, 0, true), row(nil, 1010, 0, true)}, false},
		"nothing was tried":         {[]report.CompiledDevice{{Against: &report.Against{Reserved: 1000}}}, false},
		"there is nothing to serve": {nil, false},
	} {
		if got := keeps(c.rows); got != c.want {
			t.Errorf("%s: kept %v, expected %v", what, got, c.want)
		}
	}
}

// TestAgainst: the plan that was there before serves the recording, on the device that is compiled. One that the runtime refuses is no choice.
func TestAgainst(t *testing.T) {
	recording, err := trace.ReadFile(resnet, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := []byte("the plan before")
	cost := replay.Cost{Reserved: 1 << 20, Moved: 3}
	serve := func(_ *replay.Program, plan []byte, ordinal int) (replay.Cost, error) {
		if ordinal != recording.Devices[0].Ordinal {
			t.Errorf("device %d, expected %d", ordinal, recording.Devices[0].Ordinal)
		}
		if bytes.Equal(plan, before) {
			return cost, nil
		}
		return replay.Cost{Reserved: 1 << 40}, nil
	}
	_, sum, err := Compile(context.Background(), recording, Options{Producer: "test", Against: before, Serve: serve})
	if err != nil {
		t.Fatal(err)
	}
	if a := sum.Devices[0].Against; a == nil || a.Reserved != cost.Reserved || a.Moved != cost.Moved || !sum.Kept {
		t.Errorf("served by the plan before: %+v, kept %v; expected %+v, which is kept", a, sum.Kept, cost)
	}
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime that refuses a plan")
	}
	_, sum, err = Compile(context.Background(), recording, Options{Producer: "test", Against: before, Serve: simdevice.Serve})
	if err != nil || sum.Devices[0].Against != nil || sum.Kept {
		t.Errorf("no plan at all: %+v, kept %v, %v; expected nothing, not kept", sum.Devices[0].Against, sum.Kept, err)
	}
}
