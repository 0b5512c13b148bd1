package compile

import (
	"context"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/trace"
)

// TestWholeRun: of a whole run whose iterations have no plan that pays there is a plan of the run itself, unless an earlier one shows that runs
// differ. A plan that serves other runs too is kept if it is clearly better than the pool.
func TestWholeRun(t *testing.T) {
	recording, err := trace.ReadFile(resnet, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	encoded := func(mode planfile.Mode) []byte {
		p, _, err := Compile(context.Background(), recording, Options{Producer: "before", Mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		data, err := planfile.Encode(p)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	ofRun, ofIterations := encoded(planfile.ModeRecorded), encoded(planfile.ModePeriodic)
	const pool = 1 << 30
	for what, c := range map[string]struct {
		opt    Options
		before replay.Cost
		mode   planfile.Mode
		kept   bool
	}{
		"any recording":                          {Options{}, replay.Cost{}, planfile.ModePeriodic, false},
		"a whole run":                            {Options{WholeRun: true}, replay.Cost{}, planfile.ModeRecorded, false},
		"of its iterations":                      {Options{WholeRun: true, Mode: planfile.ModePeriodic}, replay.Cost{}, planfile.ModePeriodic, false},
		"behind a shorter one":                   {Options{WholeRun: true, Against: ofRun}, replay.Cost{Reserved: pool / 2, Planned: 1 << 20}, planfile.ModeRecorded, false},
		"behind one that does something else":    {Options{WholeRun: true, Against: ofRun}, replay.Cost{Reserved: pool}, planfile.ModePeriodic, false},
		"beside a plan for all runs":             {Options{WholeRun: true, Against: ofIterations}, replay.Cost{Reserved: pool / 2}, planfile.ModeRecorded, true},
		"beside one for all that serves no more": {Options{WholeRun: true, Against: ofIterations}, replay.Cost{Reserved: pool}, planfile.ModeRecorded, false},
	} {
		c.opt.Producer = "test"
		c.opt.Serve = func(_ *replay.Program, plan []byte, _ int) (replay.Cost, error) {
			if plan == nil {
				return replay.Cost{Reserved: pool}, nil
			}
			p, err := planfile.Decode(plan)
			switch {
			case err != nil:
				return replay.Cost{}, err
			case p.Producer == "before":
				return c.before, nil
			case p.Devices[0].Mode == planfile.ModeRecorded:
				return replay.Cost{Reserved: pool / 4 * 3}, nil
			}
			return replay.Cost{Reserved: pool * 2}, nil
		}
		p, sum, err := Compile(context.Background(), recording, c.opt)
		if err != nil {
			t.Fatal(err)
		}
		d, pays := &p.Devices[0], c.mode == planfile.ModeRecorded
		if d.Mode != c.mode || sum.Devices[0].Judged.Pays != pays || (d.Advice == planfile.AdviceNone) != pays || sum.Kept != c.kept {
			t.Errorf("%s: mode %d, %+v, kept %t; expected mode %d, kept %t", what, d.Mode, sum.Devices[0].Judged, sum.Kept, c.mode, c.kept)
		}
	}
}
