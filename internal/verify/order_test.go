package verify

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// TestWaitsOrderEveryOwner: a plan lists waits for the last owner of each byte only, and
// docs/planfile.md says why that orders the owners before it too. Here every slot of
// random plans is compared with all former owners of its bytes, by a model of what the
// streams have waited for.
func TestWaitsOrderEveryOwner(t *testing.T) {
	r := rand.New(rand.NewPCG(71, 1))
	older := 0
	for k := range 400 {
		d := &random(r, 40).Devices[0]
		m := newStreamModel(d)
		for i := range d.Slots {
			m.allocate(i)
			for e := range i {
				if !naiveShare(d, e, i) {
					continue
				}
				if !m.behind(e, i) {
					t.Fatalf("plan %d: slot %d (%+v) is not behind slot %d (%+v), with waits %v", k, i, d.Slots[i], e, d.Slots[e], d.Waits)
				}
				if !slices.ContainsFunc(d.Waits, func(w planfile.Wait) bool { return w.Later == uint32(i) && w.Earlier == uint32(e) }) {
					older++
				}
			}
		}
	}
	if older < 1000 {
		t.Errorf("expected at least 1000 former owners without a wait, found %d", older)
	}
}

// TestEveryWaitIsNeeded: without any one of its waits some slot of a plan is not behind a
// former owner of its bytes, unless the wait is for a stream that waited before.
func TestEveryWaitIsNeeded(t *testing.T) {
	r := rand.New(rand.NewPCG(72, 1))
	needed, all := 0, 0
	for range 200 {
		d := &random(r, 25).Devices[0]
		for w := range d.Waits {
			all++
			without := *d
			without.Waits = slices.Delete(slices.Clone(d.Waits), w, w+1)
			m := newStreamModel(&without)
			later := int(d.Waits[w].Later)
			for i := range later + 1 {
				m.allocate(i)
			}
			if !m.behind(int(d.Waits[w].Earlier), later) {
				needed++
			}
		}
	}
	if needed*2 < all || needed < 500 {
		t.Errorf("expected most waits to be needed, found %d of %d", needed, all)
	}
}

// naiveShare says whether two slots share bytes.
func naiveShare(d *planfile.Device, i, k int) bool {
	a, b := &d.Slots[i], &d.Slots[k]
	return a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size
}

// streamModel is what each stream of a recorded plan is behind, if it makes the plan's
// waits. Time is the event, and a stream is given work for its slots from their start to
// their requested end.
type streamModel struct {
	d       *planfile.Device
	all     []uint64       // of each stream: it is behind all that any stream was given before this time
	settled []map[int]bool // of each stream: slots whose other streams it is behind
}

func newStreamModel(d *planfile.Device) *streamModel {
	m := &streamModel{d: d, all: make([]uint64, len(d.Streams))}
	for range d.Streams {
		m.settled = append(m.settled, map[int]bool{})
	}
	return m
}

// allocate makes the stream of slot i wait as the plan says.
func (m *streamModel) allocate(i int) {
	s := m.d.Slots[i].Stream
	for _, w := range m.d.Waits {
		if w.Later != uint32(i) {
			continue
		}
		if w.Kind&planfile.WaitCrossStream != 0 {
			m.all[s] = max(m.all[s], m.d.Slots[w.Earlier].RequestedEnd)
		} else {
			m.settled[s][int(w.Earlier)] = true
		}
	}
}

// behind says whether work for slot i may touch the memory of slot e, which was freed
// before: on its own stream behind the streams that the free was waiting for, on another
// only behind all that the device had been given by the free.
func (m *streamModel) behind(e, i int) bool {
	earlier, later := &m.d.Slots[e], &m.d.Slots[i]
	if m.all[later.Stream] >= earlier.RequestedEnd {
		return true
	}
	settled := cmp.Compare(earlier.CompletedEnd, later.Start) <= 0 || m.settled[later.Stream][e]
	return earlier.Stream == later.Stream && settled
}
