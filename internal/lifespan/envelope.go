package lifespan

import "github.com/stplan/stplan/internal/trace"

// PhasePeak is the largest load of one phase, in aligned bytes, and the first time of the
// phase that has it.
type PhasePeak struct {
	Bytes trace.Bytes
	At    int
}

// Envelope is the largest load of each phase, the prologue first, with every slot present
// at its largest size, and places that are shared as a whole. No plan with these places can be smaller. Strays do not count,
// because a plan has no place for them.
func (p *Periodic) Envelope(tl *Timeline, end End) []PhasePeak {
	load := make(Profile, p.Cut+1)
	var resident trace.Bytes
	kept := p.keptInPrologue(end)
	for i, s := range p.Prologue {
		size := s.Size
		switch {
		case int(s.Holder) != i:
			continue
		case s.Resident:
			resident += size
		case s.Cell >= 0:
			size = p.Cells[s.Cell].Size
		}
		load[tl.Buffers[s.Buffer].Start] += size
		load[kept[i]] -= size
	}
	var cells trace.Bytes
	for _, c := range p.Cells {
		cells += c.Size
	}
	peaks := []PhasePeak{load.phasePeak()}
	for x := range p.Bodies {
		peak := p.Bodies[x].load(end).phasePeak()
		peak.Bytes += resident
		if p.Bodies[x].Interlude {
			peak.Bytes += cells
		}
		peaks = append(peaks, peak)
	}
	return peaks
}

// Until is the end of the slot's live range within the prologue.
func (s *PrologueSlot) Until(end End, cut trace.Time) trace.Time {
	if s.Resident || s.Cell >= 0 {
		return cut
	}
	if end == EndCompleted {
		return min(s.CompletedEnd, cut)
	}
	return s.RequestedEnd
}

// Until is the end of the slot's live range within a body of the given length.
func (s *Slot) Until(end End, length int) int {
	if end == EndCompleted {
		return min(s.CompletedEnd, length)
	}
	return s.RequestedEnd
}

// load has the changes of the load at each time of the body (see accumulate).
func (b *Body) load(end End) Profile {
	load, kept := make(Profile, b.Length+1), b.kept(end)
	for i := range b.Entering {
		s := &b.Entering[i]
		load[s.Start] += s.Size
		load[s.Until(end, b.Length)] -= s.Size
	}
	for i := range b.Slots {
		if s := &b.Slots[i]; !s.Stray && s.Holder == i {
			load[i] += s.Size
			load[kept[i]] -= s.Size
		}
	}
	return load
}

// kept is until when the place of each slot is kept: the last end of those that share it.
func (b *Body) kept(end End) []int {
	out := make([]int, len(b.Slots))
	for i := range b.Slots {
		s := &b.Slots[i]
		out[s.Holder] = max(out[s.Holder], s.Until(end, b.Length))
	}
	return out
}

// keptInPrologue is likewise, of the slots of the prologue.
func (p *Periodic) keptInPrologue(end End) []trace.Time {
	out := make([]trace.Time, len(p.Prologue))
	for i := range p.Prologue {
		s := &p.Prologue[i]
		out[s.Holder] = max(out[s.Holder], s.Until(end, p.Cut))
	}
	return out
}

// phasePeak is the peak of a profile that still holds the changes of the load. The
// last entry, at the end of the phase, does not count.
func (p Profile) phasePeak() PhasePeak {
	p.accumulate()
	peak := p[:len(p)-1].Peak()
	return PhasePeak{Bytes: peak.Bytes, At: int(peak.At)}
}

// PeakRecorded is the largest load of the recording up to End without strays. The
// envelope is compared with it.
func (p *Periodic) PeakRecorded(tl *Timeline, end End) Peak {
	without := Timeline{Events: tl.Events}
	first := len(p.Prologue)
	without.Buffers = append(without.Buffers, tl.Buffers[:first]...)
	at := first
	for _, pass := range p.Passes {
		for i, s := range p.Bodies[pass.Body].Slots {
			if pass.Present[i/64]>>(i%64)&1 == 0 {
				continue
			}
			if !s.Stray {
				without.Buffers = append(without.Buffers, tl.Buffers[at])
			}
			at++
		}
	}
	return without.Load(end)[:max(1, p.End)].Peak()
}
