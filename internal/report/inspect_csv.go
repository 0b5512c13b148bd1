package report

import (
	"bufio"
	"io"
	"strconv"

	"github.com/stplan/stplan/internal/planfile"
)

// DefaultRounds is how many rounds of its bodies a periodic plan is unrolled by if
// nobody says otherwise: two show every seam.
const DefaultRounds = 2

// SlotRows is the most rows that WriteSlots prints for a periodic plan: residents,
// strays and slots that share a place are counted.
func SlotRows(d *planfile.Device, rounds int) uint64 {
	rows := d.Phases[0].SlotCount
	for i := range d.Phases[1:] {
		rows += uint64(rounds) * d.Phases[i+1].Length
	}
	return rows
}

// WriteSlots prints the planned allocations of one device as CSV, one row each:
// id,lower,upper,size,offset. A periodic plan is unrolled by that many rounds of its
// bodies. A shared place has one row, from the start of its holder to the end of the last
// slot in it, since the plan does not say where each of them lies.
func WriteSlots(out io.Writer, d *planfile.Device, rounds int) error {
	w := &slotWriter{out: bufio.NewWriterSize(out, 1<<16), d: d}
	requested, completed := d.KeptEnds()
	if w.ends = requested; d.End == planfile.EndCompleted {
		w.ends = completed
	}
	w.out.WriteString("id,lower,upper,size,offset\n")
	if d.Mode == planfile.ModePeriodic {
		w.unroll(rounds)
	} else {
		for i := range d.Slots {
			w.row(d.Slots[i].Start, w.ends[i], &d.Slots[i])
		}
	}
	return w.out.Flush()
}

// slotWriter prints rows with ascending numbers.
type slotWriter struct {
	out  *bufio.Writer
	d    *planfile.Device
	ends []uint64 // by slot: when its place may be reused
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

// unroll prints the prologue and that many rounds of the bodies, in their order,
// on one timeline: after the events of the prologue, every allocation of every
// pass is one step.
func (w *slotWriter) unroll(repeat int) {
	bodies := len(w.d.Phases) - 1
	last := w.d.Phases[0].Length
	for i := range bodies {
		last += uint64(repeat) * w.d.Phases[1+i].Length
	}
	frees := make([]map[uint32]uint64, len(w.d.Phases))
	for i := range frees {
		frees[i] = w.d.EnteringEnds(i, w.d.SlotEnd)
	}
	base := uint64(0)
	for pass := range 1 + repeat*bodies {
		phase := 0
		if pass > 0 {
			phase = 1 + (pass-1)%bodies
		}
		// The next pass that is not an interlude frees the cells. If there is none,
		// they stay filled to the end of the timeline.
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

// pass prints the allocations of one pass, or of the prologue, that begins at
// base. freed tells when the pass at seam frees the cells; nil if there is none.
func (w *slotWriter) pass(phase int, base, seam, last uint64, freed map[uint32]uint64) {
	p := &w.d.Phases[phase]
	for i := p.FirstSlot; i < p.FirstSlot+p.SlotCount; i++ {
		s, end := &w.d.Slots[i], base+min(p.Length, w.ends[i])
		switch {
		case s.Flags&(planfile.SlotEntering|planfile.SlotStray|planfile.SlotShares) != 0:
			continue
		case s.Flags&planfile.SlotResident != 0 || s.Flags&planfile.SlotLeaving != 0 && freed == nil:
			end = last
		case s.Flags&planfile.SlotLeaving != 0:
			end = seam + freed[s.Cell]
		}
		w.row(base+s.Start, end, s)
	}
}
