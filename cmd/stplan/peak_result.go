package main

import (
	"strings"

	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// peakedDevice is what peak says of one device. Lists have at most top elements.
func peakedDevice(r *peak.Recording, p *peak.Peak, top int) report.PeakedDevice {
	whole := r.Iterations.Count
	d := report.PeakedDevice{
		Device: r.Device.Ordinal, Event: int64(p.Moment.At), ChosenBy: p.Moment.Why,
		PeakedPhase: peakedPhase(p.Moment.Phase, whole), Iterations: whole,
		Allocated: int64(p.Allocated), Pending: int64(p.Pending), Reserved: int64(p.Memory.Reserved),
		HasStacks: p.HasStacks, Marked: p.Marked,
	}
	for i := range p.Live {
		if !p.Live[i].Pending {
			d.Buffers++
		}
	}
	line := r.Line(p.Moment.Stack)
	d.Line, d.From = line.Label, line.From
	if p.Moment.Twin != "" {
		d.From = peak.AsLargeAs + p.Moment.Twin
	}
	d.Failed = peakedRequest(r, p)
	share := func(n trace.Bytes, count int) report.PeakedShare {
		return report.PeakedShare{Bytes: int64(n), Fraction: shareOf(n, p.Allocated), Buffers: count}
	}
	d.Lines, d.LinesTotal = limited(r.ByLine(p), top, func(g *peak.Group[peak.Line]) report.PeakedLine {
		return report.PeakedLine{Line: g.Key.Label, From: g.Key.From, File: g.Key.File, PeakedShare: share(g.Bytes, g.Count),
			Largest: int64(g.Largest), Category: g.Main().String(), Stack: notNil(r.Stack(g.Stack))}
	})
	modules := r.ByModule(p)
	if len(modules) == 1 && modules[0].Key == "" {
		modules = nil // no stack shows a module
	}
	d.Modules, d.ModulesTotal = limited(modules, top, func(g *peak.Group[string]) report.PeakedModule {
		m := report.PeakedModule{Calls: []string{}, PeakedShare: share(g.Bytes, g.Count), Category: g.Main().String()}
		if g.Key != "" {
			m.Calls = strings.Split(g.Key, "\n")
		}
		return m
	})
	d.Phases, d.PhasesTotal = limited(p.ByPhase(), top, func(g *peak.Group[peak.Phase]) report.PeakedPhaseRow {
		return report.PeakedPhaseRow{PeakedPhase: peakedPhase(g.Key, whole), PeakedShare: share(g.Bytes, g.Count)}
	})
	byRule := p.ByRule()
	d.Categories, _ = limited(p.ByCategory(), len(peak.Categories()), func(g *peak.Group[peak.Category]) report.PeakedCategory {
		c := report.PeakedCategory{Category: g.Key.String(), PeakedShare: share(g.Bytes, g.Count), Sure: shareOf(g.Sure, g.Bytes)}
		for _, v := range byRule {
			if v.Key.Category == g.Key {
				c.Rules = append(c.Rules, report.PeakedRule{Rule: v.Key.Rule.String(), Sure: v.Key.Sure, Bytes: int64(v.Bytes)})
			}
		}
		return c
	})
	d.Memory = peakedMemory(r, p, top)
	return d
}

func peakedPhase(ph peak.Phase, whole int) report.PeakedPhase {
	return report.PeakedPhase{Iteration: ph.Iteration, Part: ph.Part.String(), Phase: ph.Title(whole)}
}

// limited converts the first top elements, and says how many there are.
func limited[From, To any](all []From, top int, convert func(*From) To) ([]To, int) {
	out := make([]To, min(top, len(all)))
	for i := range out {
		out[i] = convert(&all[i])
	}
	return out, len(all)
}

func notNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// shareOf is a share of 1, 0 if there is nothing to share.
func shareOf(n, of trace.Bytes) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

var causeNames = map[peak.Cause]string{
	peak.CauseShort: "short", peak.CauseFragmented: "fragmented",
	peak.CauseLimit: "limit", peak.CauseFragmentedLimit: "fragmented by a limit",
}

func peakedRequest(r *peak.Recording, p *peak.Peak) *report.PeakedRequest {
	q := p.Moment.Failed
	if q == nil {
		return nil
	}
	cause, missing := p.Why(q)
	failures := r.Device.Failures()
	return &report.PeakedRequest{
		Failure: report.Failure{
			Event: int64(q.At), Requested: int64(q.Size), Stream: q.Stream, DriverFree: int64(q.DriverFree),
			Fatal: q.Fatal, Count: len(failures.At),
		},
		Stack: notNil(r.Stack(q.Stack)),
		Cause: causeNames[cause], Missing: int64(missing),
	}
}

// mostBlocks is the number of blocks that the JSON names of a segment: those that are
// mostly free hold few.
const mostBlocks = 5

func peakedMemory(r *peak.Recording, p *peak.Peak, top int) report.PeakedMemory {
	size, stream := kindOfRequest(p)
	free := p.Memory.FreeFor(size, stream)
	m := report.PeakedMemory{
		Segments: len(p.Memory.Segments), Stream: stream, Usable: int64(free.Usable), Pieces: free.Pieces, Largest: int64(free.Largest), Empty: int64(free.Empty),
		OtherStream: int64(free.OtherStream), OtherClass: int64(free.OtherClass), Private: int64(free.Private), Slack: int64(free.Slack),
	}
	inTheWay := p.Memory.InTheWay(stream)
	for _, s := range inTheWay {
		m.MostlyFreeHold += int64(s.FreeBytes())
	}
	m.InTheWay, m.MostlyFree = limited(inTheWay, top, func(s **peak.Segment) report.PeakedSegment { return peakedSegment(r, p, *s) })
	m.Holders, m.HoldersTotal = limited(r.Holders(p, inTheWay), top, func(h *peak.Holder) report.PeakedHolder {
		return report.PeakedHolder{Line: h.Line.Label, From: h.Line.From, Category: h.Category.String(), Blocks: h.Blocks, Bytes: int64(h.Bytes),
			Segments: h.Segments, Free: int64(h.Free), Oldest: int64(h.Since), Age: h.Oldest}
	})
	return m
}

// kindOfRequest is the size and stream of the request that failed, or else of a large
// request on the stream that holds the most.
func kindOfRequest(p *peak.Peak) (trace.Bytes, uint64) {
	if q := p.Moment.Failed; q != nil {
		return q.Size, q.Stream
	}
	held := map[uint64]trace.Bytes{}
	var stream uint64
	for i := range p.Memory.Segments {
		s := &p.Memory.Segments[i]
		held[s.Stream] += s.Size
		if held[s.Stream] > held[stream] {
			stream = s.Stream
		}
	}
	return peak.LargeRequest, stream
}

func peakedSegment(r *peak.Recording, p *peak.Peak, s *peak.Segment) report.PeakedSegment {
	out := report.PeakedSegment{Address: s.Address, Size: int64(s.Size), Free: int64(s.FreeBytes()), Largest: int64(s.Largest()), Count: len(s.Blocks)}
	blocks := p.LargestOf(s, mostBlocks)
	for _, l := range blocks {
		at := int64(l.Buffer.Start)
		if l.Buffer.Initial {
			at = -1
		}
		out.Blocks = append(out.Blocks, report.PeakedBlock{Address: l.Buffer.Addr, Bytes: int64(l.Buffer.Size), Allocated: at,
			Age: l.Age, Category: l.Category.String(), Line: r.Line(l.Stack).Label})
	}
	return out
}
