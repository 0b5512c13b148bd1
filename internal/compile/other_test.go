package compile

import (
	"context"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/synth"
)

// TestOtherIsJudged: outputs are held until the next ones exist, so two steps are one body. If the plan of that does not pay, that of each
// step by itself is judged, and is the plan if it pays.
func TestOtherIsJudged(t *testing.T) {
	rec := training(synth.Training{Layers: 6, MicroBatches: [2]int{1}, Steps: 12, HoldOutputs: true}.Generate(1))
	body := func(p *planfile.Plan) uint64 { return p.Devices[0].Phases[1].Length }
	pair, _, err := Compile(context.Background(), rec, Options{Producer: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		pair, each int64 // bytes reserved by the plan of two steps and of one; the pool reserves 1,000
		want       uint64
		pays       bool
	}{
		"both pay":         {1000, 1000, body(pair), true},
		"each alone pays":  {1008, 1004, body(pair) / 2, true},
		"neither pays":     {1008, 1006, body(pair), false},
		"only the pair":    {1004, 1008, body(pair), true},
		"each much better": {1004, 980, body(pair) / 2, true},
	} {
		serve := func(_ *replay.Program, data []byte, _ int) (replay.Cost, error) {
			if data == nil {
				return replay.Cost{Reserved: 1000, Moved: 100}, nil
			}
			p, err := planfile.Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			if body(p) == body(pair) {
				return replay.Cost{Reserved: c.pair}, nil
			}
			return replay.Cost{Reserved: c.each}, nil
		}
		p, sum, err := Compile(context.Background(), rec, Options{Producer: "test", Serve: serve})
		if err != nil {
			t.Fatal(err)
		}
		if got := body(p); got != c.want || sum.Devices[0].Judged.Pays != c.pays || (p.Devices[0].Advice == planfile.AdviceNone) != c.pays {
			t.Errorf("%s: a body of %d slots, %+v; expected %d, pays %v", what, got, sum.Devices[0].Judged, c.want, c.pays)
		}
	}
}
