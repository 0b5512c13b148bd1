package verify

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// TestRandomPeriodic: right plans pass, and are the same after Encode and Decode.
func TestRandomPeriodic(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for n := range 1500 {
		p, tr := randomPeriodic(r)
		if v := append(Plan(p, nil), AgainstTrace(p, tr)...); len(v) > 0 {
			t.Fatalf("plan %d: %s\n%+v", n, v[0].Message, p.Devices[0])
		}
		data, err := planfile.Encode(p)
		if err != nil {
			t.Fatalf("plan %d: %v", n, err)
		}
		if again, err := planfile.Decode(data); err != nil || !reflect.DeepEqual(again, p) {
			t.Fatalf("plan %d is another one as a file (%v)", n, err)
		}
	}
}

func TestPeriodicSample(t *testing.T) {
	p := periodicSample()
	if v := append(Plan(p, nil), AgainstTrace(p, periodicRecording())...); v != nil {
		t.Errorf("violations %v", v)
	}
	if _, err := planfile.Encode(p); err != nil {
		t.Error(err)
	}
}

// periodicRules break one rule of the sample at a time.
var periodicRules = []struct {
	name   string
	change func(d *planfile.Device)
}{
	{"kind of phase", phase(1, func(p *planfile.Phase) { p.Kind = planfile.PhasePrologue })},
	{"no length", phase(1, func(p *planfile.Phase) { p.Length = 0 })},
	{"slots apart", phase(1, func(p *planfile.Phase) { p.FirstSlot++ })},
	{"too many slots", phase(2, func(p *planfile.Phase) { p.SlotCount++ })},
	{"too few slots", phase(2, func(p *planfile.Phase) { p.SlotCount-- })},
	{"prologue of another length", phase(0, func(p *planfile.Phase) { p.Length-- })},
	{"body of another length", phase(1, func(p *planfile.Phase) { p.Length++ })},

	{"entering in the prologue", slot(1, func(s *planfile.Slot) { s.Flags, s.Cell = planfile.SlotEntering, 0 })},
	{"resident in a body", slot(4, func(s *planfile.Slot) { s.Flags = planfile.SlotResident })},
	{"stray that leaves", slot(6, func(s *planfile.Slot) { s.Flags |= planfile.SlotStray })},
	{"cell of none", slot(4, func(s *planfile.Slot) { s.Cell = 0 })},
	{"no cell", slot(6, func(s *planfile.Slot) { s.Cell = planfile.NoCell })},
	{"least", slot(7, func(s *planfile.Slot) { s.Least = 513 })},
	{"occurrences in the prologue", slot(1, func(s *planfile.Slot) { s.Occurrences = 2 })},

	{"empty", slot(4, func(s *planfile.Slot) { s.RequestedEnd = 0 })},
	{"ends", slot(4, func(s *planfile.Slot) { s.CompletedEnd = 1 })},
	{"late", slot(4, func(s *planfile.Slot) { s.RequestedEnd, s.CompletedEnd = 5, 5 })},
	{"pending too long", slot(4, func(s *planfile.Slot) { s.CompletedEnd = 9 })},
	{"entering late", slot(3, func(s *planfile.Slot) { s.Start, s.RequestedEnd = 1, 2 })},
	{"resident freed", slot(0, func(s *planfile.Slot) { s.RequestedEnd = 9 })},
	{"leaving early", slot(6, func(s *planfile.Slot) { s.RequestedEnd = 3 })},
	{"ordinal", slot(4, func(s *planfile.Slot) { s.Start = 1 })},

	{"cell in two places", slot(6, func(s *planfile.Slot) { s.Offset = 1536 })},
	{"cell of two sizes", slot(8, func(s *planfile.Slot) { s.Size = 512 })},
	{"cell not filled", slot(10, func(s *planfile.Slot) { s.Flags, s.Cell = 0, planfile.NoCell })},
	{"cell filled twice", func(d *planfile.Device) {
		s := &d.Slots[7]
		s.Flags, s.Cell, s.Offset, s.Size = planfile.SlotLeaving, 0, 1024, 1024
	}},
	{"stray with a place", slot(5, func(s *planfile.Slot) { s.Size = 512 })},

	{"steady end", func(d *planfile.Device) { d.SteadyEnd = 41 }},
	{"first pass", pass(0, func(p *planfile.Pass) { p.FirstEvent = 11 })},
	{"pass order", pass(2, func(p *planfile.Pass) { p.FirstEvent = 22 })},
	{"pass of the prologue", pass(2, func(p *planfile.Pass) { p.Phase = 0 })},
	{"presence", pass(1, func(p *planfile.Pass) { p.Present = []uint64{7} })},
	{"occurrences", pass(2, func(p *planfile.Pass) { p.Present = []uint64{0b110} })},
	{"passes of a body", phase(2, func(p *planfile.Phase) { p.Occurrences = 2 })},
	{"entering too often", slot(8, func(s *planfile.Slot) { s.Occurrences = 2 })},

	{"overlap in a body", slot(7, func(s *planfile.Slot) { s.Offset = 1024 })},
	{"overlap with a resident", slot(4, func(s *planfile.Slot) { s.Offset = 512 })},
	{"overlap over the seam", slot(3, func(s *planfile.Slot) { s.RequestedEnd, s.CompletedEnd = 3, 3 })},

	{"wait missing", func(d *planfile.Device) { d.Waits = d.Waits[1:] }},
	{"wait over the seam missing", func(d *planfile.Device) { d.Waits = append(d.Waits[:1:1], d.Waits[2:]...) }},
	{"wait for itself missing", func(d *planfile.Device) { d.Waits = append(d.Waits[:4:4], d.Waits[5:]...) }},
	{"wait not over the seam", wait(0, func(w *planfile.Wait) { w.Kind &^= planfile.WaitSeam })},
	{"wait of a stray", wait(1, func(w *planfile.Wait) { w.Later = 5 })},
	{"wait behind the last", wait(5, func(w *planfile.Wait) { w.Earlier = 9 })},

	{"makespan of a phase", phase(1, func(p *planfile.Phase) { p.Makespan = 3584 })},
	{"bound of a phase", phase(1, func(p *planfile.Phase) { p.LowerBound = 2560 })},
	{"bound elsewhere", phase(1, func(p *planfile.Phase) { p.BoundAt = 1 })},
	{"certificate", func(d *planfile.Device) { d.Certificate.LowerBound, d.Certificate.Gap = 3072, 1024 }},
	{"certificate elsewhere", func(d *planfile.Device) { d.Certificate.At = 15 }},
	{"gap", func(d *planfile.Device) { d.Certificate.Gap = 512 }},
	{"kind of bound", func(d *planfile.Device) { d.Certificate.Kind = 2 }},
	{"stray bytes", func(d *planfile.Device) { d.StrayBytes = 1024 }},
}

func slot(i int, f func(s *planfile.Slot)) func(*planfile.Device) {
	return func(d *planfile.Device) { f(&d.Slots[i]) }
}

func phase(i int, f func(p *planfile.Phase)) func(*planfile.Device) {
	return func(d *planfile.Device) { f(&d.Phases[i]) }
}

func pass(i int, f func(p *planfile.Pass)) func(*planfile.Device) {
	return func(d *planfile.Device) { f(&d.Passes[i]) }
}

func wait(i int, f func(w *planfile.Wait)) func(*planfile.Device) {
	return func(d *planfile.Device) { f(&d.Waits[i]) }
}

// periodicTraceRules make the sample differ from its recording in one respect at a time.
var periodicTraceRules = []struct {
	name   string
	change func(d *planfile.Device)
}{
	{"not right alone", slot(3, func(s *planfile.Slot) { s.Cell = 1 })},
	{"fingerprint", func(d *planfile.Device) { d.Fingerprint[0]++ }},
	{"peak", func(d *planfile.Device) { d.PeakActive-- }},
	{"stray bytes", func(d *planfile.Device) { d.StrayBytes = 0 }},
	{"prologue slot of another time", slot(1, func(s *planfile.Slot) { s.Start = 3 })},
	{"prologue slot of another size", slot(1, func(s *planfile.Slot) { s.Requested, s.Least = 1000, 1000 })},
	{"prologue slot of another stream", slot(1, func(s *planfile.Slot) { s.Stream = 1 })},
	{"pending too short", slot(1, func(s *planfile.Slot) { s.CompletedEnd = 11 })},
	{"no resident", slot(0, func(s *planfile.Slot) { s.Flags = planfile.SlotInitial })},
	{"resident that is freed", slot(1, func(s *planfile.Slot) { s.Flags, s.RequestedEnd, s.CompletedEnd = planfile.SlotResident, 10, 10 })},
	{"not crossing", func(d *planfile.Device) {
		d.Slots[2].Flags, d.Slots[2].Cell = 0, planfile.NoCell
	}},
	{"crossing", func(d *planfile.Device) {
		s := &d.Slots[1]
		s.Flags, s.Cell, s.RequestedEnd, s.Offset = planfile.SlotLeaving, 0, 10, 1024
		d.Slots[2].Flags, d.Slots[2].Cell = 0, planfile.NoCell
	}},
	{"another slot of the pass", func(d *planfile.Device) {
		d.Passes[2].Present[0], d.Slots[4].Occurrences, d.Slots[7].Occurrences = 0b0111, 2, 1
	}},
	{"a slot too many", func(d *planfile.Device) { d.Passes[2].Present[0], d.Slots[4].Occurrences = 0b1111, 2 }},
	{"a pass that begins later", pass(1, func(p *planfile.Pass) { p.FirstEvent = 24 })},
	{"a pass that ends earlier", func(d *planfile.Device) { d.SteadyEnd = 34 }},
	{"size", slot(9, func(s *planfile.Slot) { s.Requested, s.Least = 2001, 2001 })},
	{"least", slot(7, func(s *planfile.Slot) { s.Least = 399 })},
	{"stream", slot(7, func(s *planfile.Slot) { s.Stream = 1 })},
	{"end", slot(4, func(s *planfile.Slot) { s.RequestedEnd = 1 })},
	{"completed end", slot(4, func(s *planfile.Slot) { s.CompletedEnd = 4 })},
	{"entering end", slot(3, func(s *planfile.Slot) { s.RequestedEnd = 2 })},
	{"entering never", slot(3, func(s *planfile.Slot) { s.Occurrences = 0 })},
	{"nothing enters", func(d *planfile.Device) {
		d.Slots, d.Waits = slices.Delete(d.Slots, 8, 9), nil
		d.Phases[2].SlotCount--
	}},
	{"an ordinary slot outlives its pass", func(d *planfile.Device) {
		for _, i := range []int{2, 6, 10} {
			d.Slots[i].Flags, d.Slots[i].Cell = 0, planfile.NoCell
		}
		d.Slots, d.Waits = slices.Delete(slices.Delete(d.Slots, 8, 9), 3, 4), nil
		d.Phases[1].SlotCount, d.Phases[2].FirstSlot, d.Phases[2].SlotCount = 4, 7, 2
	}},
}

// TestPeriodicRules compares the messages for each broken rule with the golden file.
func TestPeriodicRules(t *testing.T) {
	var got strings.Builder
	for _, c := range periodicRules {
		p := periodicSample()
		c.change(&p.Devices[0])
		fmt.Fprintf(&got, "%s\n\t%s\n", c.name, strings.Join(texts(t, Plan(p, nil)), "\n\t"))
	}
	got.WriteString("\nagainst the trace\n\n")
	for _, c := range periodicTraceRules {
		p := periodicSample()
		c.change(&p.Devices[0])
		fmt.Fprintf(&got, "%s\n\t%s\n", c.name, strings.Join(texts(t, AgainstTrace(p, periodicRecording())), "\n\t"))
	}
	demandGolden(t, "testdata/periodic.golden", got.String())
	if strings.Contains(got.String(), "\n\t\n") {
		t.Errorf("a broken rule is not noticed:\n%s", got.String())
	}
}

// demandGolden compares text with a file, which -update writes instead.
func demandGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; if that is meant, run with -update and read the difference", file)
	}
}

// TestUnseenCell: a body needs an entering slot for a cell that no recorded pass of it
// began with.
func TestUnseenCell(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	for found := 0; found < 20; {
		p, tr := randomPeriodic(r)
		d := &p.Devices[0]
		i := slices.IndexFunc(d.Slots, func(s planfile.Slot) bool { return s.Occurrences == 0 })
		if i < 0 {
			continue
		}
		found++
		body, cell := phaseOf(d, i), d.Slots[i].Cell
		d.Slots, d.Waits = slices.Delete(d.Slots, i, i+1), nil
		for k := range d.Slots {
			if s := &d.Slots[k]; s.Flags == planfile.SlotShares && int(s.Cell) > i {
				s.Cell--
			}
		}
		d.Phases[body].SlotCount--
		for k := body + 1; k < len(d.Phases); k++ {
			d.Phases[k].FirstSlot--
		}
		want := fmt.Sprintf("device 0: cell: body %d has no slot for what enters it in cell %d, and no pass shows that it is freed before the first allocation", body, cell)
		if got := texts(t, AgainstTrace(p, tr)); len(got) != 1 || got[0] != want {
			t.Fatalf("violations %q, expected %q", got, want)
		}
	}
}

// TestPeriodicOverlaps moves slots of right plans and compares with a check of all pairs.
func TestPeriodicOverlaps(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	meet := 0
	for range 1000 {
		p, _ := randomPeriodic(r)
		d := &p.Devices[0]
		i := r.IntN(len(d.Slots))
		if d.Slots[i].Size == 0 || d.Slots[i].Size > d.ArenaBytes {
			continue
		}
		offset := r.Uint64N((d.ArenaBytes-d.Slots[i].Size)/d.Alignment+1) * d.Alignment
		for k := range d.Slots {
			if holderOf(d, k) == holderOf(d, i) || inACell(d, k) && inACell(d, i) && d.Slots[k].Cell == d.Slots[i].Cell {
				d.Slots[k].Offset = offset
			}
		}
		got := slices.ContainsFunc(Plan(p, nil), func(v Violation) bool { return v.Rule == RuleOverlap })
		want := anyMeet(d)
		if got != want {
			t.Fatalf("slot %d moved to %d: overlap %v, expected %v\n%+v", i, offset, got, want, d)
		}
		if want {
			meet++
		}
	}
	if meet < 100 || meet > 900 {
		t.Errorf("%d of 1000 plans have an overlap, expected some of both", meet)
	}
}
