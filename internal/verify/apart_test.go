package verify

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// keepApart gives each stream its own part of the arena.
func keepApart(d *planfile.Device) {
	part := d.ArenaBytes
	d.ArenaBytes = 0
	for i := range d.Slots {
		s := &d.Slots[i]
		if s.Flags&planfile.SlotStray == 0 {
			s.Offset += uint64(s.Stream) * part
		}
		d.ArenaBytes = max(d.ArenaBytes, s.Offset+s.Size)
	}
	if d.Mode == planfile.ModePeriodic {
		for p := range d.Phases {
			d.Phases[p].Makespan = 0
		}
		naiveFigures(d)
		d.Waits = naivePeriodicWaits(d)
	} else {
		d.Waits = naiveWaits(d)
	}
	sum, at := naiveStreamLoads(d)
	d.Certificate = planfile.Certificate{Kind: planfile.BoundApart, LowerBound: sum, At: at, Gap: d.ArenaBytes - sum}
}

// naiveStreamLoads is the reference for streamLoads: it looks at all slots at every time.
func naiveStreamLoads(d *planfile.Device) (sum, at uint64) {
	largest := uint64(0)
	for s := range uint32(len(d.Streams)) {
		own := *d
		own.Slots = slices.Clone(d.Slots)
		for i := range own.Slots {
			if own.Slots[i].Stream != s {
				own.Slots[i].Flags |= planfile.SlotStray // has no place
			}
		}
		if d.Mode == planfile.ModeRecorded {
			own.Phases = []planfile.Phase{{Length: d.Events, SlotCount: uint64(len(d.Slots))}}
		}
		most, first, base := uint64(0), uint64(0), uint64(0)
		for p := range own.Phases {
			for t := range own.Phases[p].Length {
				if load := naiveLoadIn(&own, p, t); load > most {
					most, first = load, base+t
				}
			}
			base += own.Phases[p].Length
		}
		if sum += most; most > largest {
			largest, at = most, first
		}
	}
	return sum, at
}

// TestStreamsApart: a plan that keeps streams apart is right only with the sum of the
// streams' max loads as its bound. A slot in another stream's memory is found.
func TestStreamsApart(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 1))
	several, foreign := 0, 0
	for k := range 200 {
		p := random(r, 12)
		if k%2 == 1 {
			p, _ = randomPeriodic(r)
		}
		d := &p.Devices[0]
		keepApart(d)
		if v := Plan(p, nil); v != nil {
			t.Fatalf("plan %d: violations %v", k, v)
		}
		c := d.Certificate
		for _, wrong := range []planfile.Certificate{
			{Kind: c.Kind, LowerBound: c.LowerBound - 512, At: c.At, Gap: c.Gap + 512},
			{Kind: c.Kind, LowerBound: c.LowerBound + 512, At: c.At, Gap: c.Gap - 512},
			{Kind: c.Kind, LowerBound: c.LowerBound, At: c.At + 1, Gap: c.Gap},
			{Kind: c.Kind, LowerBound: c.LowerBound, At: c.At, Gap: c.Gap + 512},
		} {
			d.Certificate = wrong
			if !blames(Plan(p, nil), RuleCertificate) {
				t.Fatalf("plan %d: %+v passes for %+v", k, wrong, c)
			}
		}
		d.Certificate = c
		if len(d.Streams) > 1 {
			several++
		}
		i := r.IntN(len(d.Slots))
		stream := (d.Slots[i].Stream + 1) % uint32(len(d.Streams))
		for _, m := range members(d, holderOf(d, i)) { // whoever shares a place is on one stream
			d.Slots[m].Stream = stream
		}
		if !naiveApart(d) {
			if foreign++; !blames(Plan(p, nil), RuleApart) {
				t.Fatalf("plan %d: slot %d shares bytes with another stream, and passes", k, i)
			}
		}
	}
	if several < 50 || foreign < 50 {
		t.Errorf("expected more plans of several streams, found %d, with %d that share bytes", several, foreign)
	}
}

func blames(all []Violation, rule string) bool {
	return slices.ContainsFunc(all, func(v Violation) bool { return v.Rule == rule })
}

// naiveApart is the reference for sharedByStreams: it compares all pairs of slots.
func naiveApart(d *planfile.Device) bool {
	for _, a := range d.Slots {
		for _, b := range d.Slots {
			if a.Stream != b.Stream && a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size {
				return false
			}
		}
	}
	return true
}

func TestStreamsApartMessages(t *testing.T) {
	p := sample()
	d := &p.Devices[0]
	d.Certificate.Kind = planfile.BoundApart
	demand(t, p,
		"device 0: apart: slot 3 (live [8, 10), 2560 B at offset 1024, stream 0x0) and slot 4 (live [12, 20), 512 B at offset 1024, stream 0x7f00) share bytes on two streams",
		"device 0: certificate: lower bound of 4096 B at 3, but the streams apart need 4608 B, the largest of them at 8",
	)
}
