//go:build cgo

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

var resnet = filepath.Join("..", "..", "examples", "resnet50", "resnet50.pickle.gz")

// TestAdvice: a plan that leaves as much free as it takes is advised against, and
// served without by whoever reads it.
func TestAdvice(t *testing.T) {
	a := &app{quiet: true}
	recording, err := trace.ReadFile(resnet, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	opt := planOptions{end: planfile.EndRequested}
	p, sum, err := a.plan(context.Background(), recording, opt)
	if err != nil {
		t.Fatal(err)
	}
	dev, served := &p.Devices[0], sum.Devices[0].Judged
	if dev.Advice != planfile.AdviceNone || !served.Pays || served.Unseen || uint64(served.Planned) != dev.ArenaBytes || served.Pool <= served.Planned {
		t.Errorf("the plan as it is: advice %d, %+v", dev.Advice, served)
	}

	dev.ArenaBytes *= 2
	for i := range dev.Slots {
		dev.Slots[i].Offset *= 2
	}
	for i := range dev.Phases {
		dev.Phases[i].Makespan *= 2
	}
	dev.Certificate.Gap = dev.ArenaBytes - dev.Certificate.LowerBound
	tl, err := lifespan.Build(&recording.Devices[0])
	if err != nil {
		t.Fatal(err)
	}
	if served, err = a.advise(context.Background(), "resnet50", &recording.Devices[0], tl, nil, dev, opt); err != nil {
		t.Fatal(err)
	}
	if dev.Advice != planfile.AdvicePool || served.Pays || served.Planned <= served.Pool {
		t.Errorf("the plan that leaves as much free as it takes: advice %d, %+v", dev.Advice, served)
	}

	for _, forbid := range []planOptions{{end: planfile.EndCompleted}, {end: planfile.EndRequested, noCrossStream: true}} {
		unadvised := *dev
		unadvised.Advice = planfile.AdviceNone
		served, err := a.advise(context.Background(), "resnet50", &recording.Devices[0], tl, nil, &unadvised, forbid)
		if err != nil || served != nil || unadvised.Advice != planfile.AdviceNone {
			t.Errorf("%+v: the pool makes the waits that are forbidden: expected no advice, found %d, %+v, %v", forbid, unadvised.Advice, served, err)
		}
	}

	data, err := planfile.Encode(p)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "plan.bin")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ command, stdout, stderr string }{
		{"inspect " + path, "serve without the plan: the pool alone costs less", ""},
		{"inspect --json " + path, `"advice": "serve without`, ""},
		{"replay --json " + path + " " + resnet, `"planned_allocations": 0,`, "its advice is followed: serve without the plan"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(strings.Fields(c.command), strings.NewReader(""), &stdout, &stderr); code != exitOK {
			t.Errorf("%s: exit code %d: %s", c.command, code, stderr.String())
		}
		if !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("%s: stdout %q, stderr %q", c.command, stdout.String(), stderr.String())
		}
	}
}

// TestAdviceOfTheUnseen: where optional slots are all over a body, the plan that
// is judged has not seen the last pass; where they are one stretch, it is the plan
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

// TestPays: what a plan reserves beyond the pool, it has to spare in memory moved.
func TestPays(t *testing.T) {
	pool := cost{reserved: 1000, moved: 100}
	for _, c := range []struct {
		planned cost
		slack   int64
		want    bool
	}{
		{cost{1000, 500}, 0, true},
		{cost{1000, 500}, 5, true},
		{cost{1001, 0}, 0, false},
		{cost{1005, 49}, 5, true},
		{cost{1005, 50}, 5, false},
		{cost{1006, 0}, 5, false},
	} {
		if got := pays(c.planned, pool, c.slack); got != c.want {
			t.Errorf("%+v beside %+v, slack %d: pays %v, expected %v", c.planned, pool, c.slack, got, c.want)
		}
	}
}
