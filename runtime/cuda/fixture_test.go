package cuda

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// encode is the plan as a file.
func encode(t testing.TB, d planfile.Device) []byte {
	t.Helper()
	data, err := planfile.Encode(&planfile.Plan{Producer: "test", Devices: []planfile.Device{d}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// planFile writes a plan of a device, and returns its path.
func planFile(t testing.TB, d planfile.Device) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plan.bin")
	if err := os.WriteFile(path, encode(t, d), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func up(n uint64) uint64 { return max(512, (n+511)/512*512) }

// stack lays requests of these sizes out one above the other, from an offset on, as slots
// of a phase that all live to its end, at `length`. The starts are `stride` apart. It returns
// the offset behind them too.
func stack(sizes []uint64, offset, stride, length uint64) ([]planfile.Slot, uint64) {
	slots := make([]planfile.Slot, len(sizes))
	for i, n := range sizes {
		slots[i] = planfile.Slot{
			Start: uint64(i) * stride, RequestedEnd: length, CompletedEnd: length, Offset: offset, Size: up(n),
			Requested: n, Least: n, Occurrences: 1, Cell: planfile.NoCell,
		}
		offset += up(n)
	}
	return slots, offset
}

// recorded is a recorded plan of requests of these sizes, which all live to the end.
func recorded(sizes []uint64) planfile.Device {
	d := planfile.Device{
		Rank: -1, Mode: planfile.ModeRecorded, End: planfile.EndRequested, Events: uint64(len(sizes)), Alignment: 512,
		Streams: []uint64{0}, Certificate: planfile.Certificate{Kind: planfile.BoundLoad},
	}
	d.Slots, d.ArenaBytes = stack(sizes, 0, 1, d.Events)
	d.Certificate.Gap = d.ArenaBytes
	d.PeakAllocated, d.PeakActive = d.ArenaBytes, d.ArenaBytes
	return d
}

// periodic is a periodic plan: a prologue and bodies, each with requests of these sizes,
// which all live to the end of theirs. passes are the bodies, from 1, in recorded order.
func periodic(prologue []uint64, bodies [][]uint64, passes []uint32) planfile.Device {
	d := recorded(prologue)
	d.Mode, d.SteadyStart = planfile.ModePeriodic, d.Events
	d.Phases = []planfile.Phase{{Kind: planfile.PhasePrologue, Occurrences: 1, Length: d.Events, SlotCount: uint64(len(prologue))}}
	for i := range d.Slots {
		d.Slots[i].Flags = planfile.SlotResident
	}
	base := d.ArenaBytes
	occurrences := make([]uint32, len(bodies)+1)
	for i, body := range passes {
		occurrences[body]++
		n := len(bodies[body-1])
		present := make([]uint64, (n+63)/64)
		for k := range n {
			present[k/64] |= 1 << (k % 64)
		}
		d.Passes = append(d.Passes, planfile.Pass{FirstEvent: d.SteadyStart + uint64(i), Phase: body, Present: present})
	}
	d.SteadyEnd = d.SteadyStart + uint64(len(passes))
	d.Events = d.SteadyEnd
	for b, sizes := range bodies {
		slots, end := stack(sizes, base, 1, uint64(len(sizes)))
		for i := range slots {
			slots[i].Occurrences = occurrences[b+1]
		}
		d.Phases = append(d.Phases, planfile.Phase{
			Kind: planfile.PhaseBody, Occurrences: occurrences[b+1], Length: uint64(len(sizes)), FirstSlot: uint64(len(d.Slots)), SlotCount: uint64(len(slots)),
		})
		d.Slots = append(d.Slots, slots...)
		d.ArenaBytes = max(d.ArenaBytes, end)
	}
	d.Certificate.Gap = d.ArenaBytes
	d.PeakAllocated, d.PeakActive = d.ArenaBytes, d.ArenaBytes
	return d
}

// brief has every block of the bodies freed before the next request, so that a run which
// holds few of them at a time follows the plan.
func brief(d planfile.Device) planfile.Device {
	for i := d.Phases[0].SlotCount; i < uint64(len(d.Slots)); i++ {
		s := &d.Slots[i]
		s.RequestedEnd, s.CompletedEnd = s.Start+1, s.Start+1
	}
	return d
}

// cycle are the sizes that ctest/stress.c and ctest/pair.c ask for, in their order.
var cycle = []uint64{4096, 65536, 1 << 20, 300000, 4096, 2 << 20, 512, 131072}

// stressPlan has bodies of 16 cycles.
func stressPlan() planfile.Device {
	var body []uint64
	for range 16 {
		body = append(body, cycle...)
	}
	return periodic(cycle, [][]uint64{body}, []uint32{1})
}
