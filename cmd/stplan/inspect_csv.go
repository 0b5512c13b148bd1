package main

import (
	"bufio"
	"fmt"
	"strconv"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
)

// Limits of --repeat: two rounds show every seam, and what is printed stays
// within what a file of some gigabytes holds.
const (
	defaultRepeat = 2
	maxRepeat     = 1000
	maxRows       = 50_000_000
)

func checkRepeat(f inspectFlags) error {
	if f.repeat < 1 || f.repeat > maxRepeat {
		return fmt.Errorf("--repeat: expected 1 to %d rounds, found %d", maxRepeat, f.repeat)
	}
	if !f.csv {
		return &hinted{fmt.Errorf("--repeat says how far --csv unrolls a plan"), "--csv --repeat " + strconv.Itoa(f.repeat)}
	}
	return nil
}

// writeSlots prints the planned allocations of one device. A repeat of 0 was not
// asked for.
func (a *app) writeSlots(name string, d *planfile.Device, repeat int) error {
	w := &slotWriter{out: bufio.NewWriterSize(a.stdout, 1<<16), d: d}
	if d.Mode == planfile.ModePeriodic {
		if repeat == 0 {
			repeat = defaultRepeat
		}
		if err := checkRows(name, d, repeat); err != nil {
			return err
		}
	} else if repeat > 0 {
		return &hinted{fmt.Errorf("%s: device %d: a plan of mode recorded has no rounds to unroll", name, d.Ordinal), "leave --repeat out"}
	}
	w.out.WriteString("id,lower,upper,size,offset\n")
	if d.Mode == planfile.ModePeriodic {
		w.unroll(repeat)
	} else {
		for i := range d.Slots {
			w.row(d.Slots[i].Start, d.SlotEnd(i), &d.Slots[i])
		}
	}
	return w.out.Flush()
}

// checkRows bounds what unrolling prints.
func checkRows(name string, d *planfile.Device, repeat int) error {
	rows := d.Phases[0].SlotCount
	for i := range d.Phases[1:] {
		rows += uint64(repeat) * d.Phases[i+1].Length
	}
	if rows > maxRows {
		return &hinted{fmt.Errorf("%s: device %d: %d rounds would be %s rows, expected %s at most", name, d.Ordinal, repeat, report.Count(rows), report.Count(uint64(maxRows))), "--repeat 1"}
	}
	return nil
}

// slotWriter prints rows with ascending numbers.
type slotWriter struct {
	out  *bufio.Writer
	d    *planfile.Device
	line []byte
	rows int64
}

func (w *slotWriter) row(lower, upper uint64, s *planfile.Slot) {
	w.line = strconv.AppendInt(w.line[:0], w.rows, 10)
	for _, v := range [...]uint64{lower, upper, s.Size, s.Offset} {
		w.line = append(w.line, ',')
		w.line = strconv.AppendUint(w.line, v, 10)
	}
	w.line = append(w.line, '\n')
	w.out.Write(w.line)
	w.rows++
}

// unroll prints the prologue and so many rounds of the bodies, in their order,
// on one timeline: that of the prologue goes on with a step for every
// allocation of every pass.
func (w *slotWriter) unroll(repeat int) {
	bodies := len(w.d.Phases) - 1
	last := w.d.Phases[0].Length
	for i := range bodies {
		last += uint64(repeat) * w.d.Phases[1+i].Length
	}
	frees := make([]map[uint32]uint64, len(w.d.Phases))
	for i := range frees {
		frees[i] = w.freed(i)
	}
	base := uint64(0)
	for pass := range 1 + repeat*bodies {
		phase := 0
		if pass > 0 {
			phase = 1 + (pass-1)%bodies
		}
		// The next pass frees the cells that is no interlude. Without one nothing is
		// freed any more: what is left ends last.
		next, seam := pass, base+w.d.Phases[phase].Length
		for next < repeat*bodies && w.d.Phases[1+next%bodies].Kind == planfile.PhaseInterlude {
			seam += w.d.Phases[1+next%bodies].Length
			next++
		}
		var freed map[uint32]uint64
		if next < repeat*bodies {
			freed = frees[1+next%bodies]
		}
		w.pass(phase, base, seam, last, freed)
		base += w.d.Phases[phase].Length
	}
}

// freed is when a body frees the cells that it finds filled. Those it has no
// entering slot for are freed before its first allocation, at time 0.
func (w *slotWriter) freed(phase int) map[uint32]uint64 {
	all := map[uint32]uint64{}
	p := &w.d.Phases[phase]
	for i := p.FirstSlot; i < p.FirstSlot+p.SlotCount; i++ {
		if s := &w.d.Slots[i]; s.Flags&planfile.SlotEntering != 0 {
			all[s.Cell] = w.d.SlotEnd(int(i))
		}
	}
	return all
}

// pass prints the allocations of one pass, or of the prologue, that begins at
// base. freed tells when the pass at seam frees the cells; nil if there is none.
func (w *slotWriter) pass(phase int, base, seam, last uint64, freed map[uint32]uint64) {
	p := &w.d.Phases[phase]
	for i := p.FirstSlot; i < p.FirstSlot+p.SlotCount; i++ {
		s, end := &w.d.Slots[i], base+min(p.Length, w.d.SlotEnd(int(i)))
		switch {
		case s.Flags&(planfile.SlotEntering|planfile.SlotStray) != 0:
			continue
		case s.Flags&planfile.SlotResident != 0 || s.Flags&planfile.SlotLeaving != 0 && freed == nil:
			end = last
		case s.Flags&planfile.SlotLeaving != 0:
			end = seam + freed[s.Cell]
		}
		w.row(base+s.Start, end, s)
	}
}
