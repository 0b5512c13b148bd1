package replay

import (
	"math/rand/v2"

	"github.com/stplan/stplan/internal/trace"
)

// Disturb returns the program with some of its requests left out, doubled, followed by an
// additional one of another size, or swapped with their successor. rate is the share of
// requests that are disturbed, from 0 to 1; each of the four ways is equally likely. A
// request is changed together with its free. Resident and initial requests stay as they
// are. The same seed gives the same program.
func (p *Program) Disturb(rate float64, seed uint64) *Program {
	d := disturber{rng: rand.New(rand.NewPCG(seed, 0)), spans: p.spans()}
	d.requests = append(d.requests, p.Requests...)
	d.dropped = make([]bool, len(p.Requests))
	for i := range p.Requests {
		if d.rng.Float64() < rate && d.spans[i].end.event != never && p.Requests[i].Event >= 0 {
			d.disturb(i, len(p.Requests))
		}
	}
	var requests []Request
	var spans []span
	for i := range d.requests {
		if i >= len(d.dropped) || !d.dropped[i] {
			requests, spans = append(requests, d.requests[i]), append(spans, d.spans[i])
		}
	}
	return order(requests, spans, p.exchanges)
}

// spans is when each request lives: the inverse of order.
func (p *Program) spans() []span {
	spans := make([]span, len(p.Requests))
	for i := range spans {
		spans[i].end, spans[i].completed = instant{never, 0}, instant{never, 0}
	}
	for _, s := range p.steps {
		switch s.kind {
		case stepAlloc:
			spans[s.request].start = s.at
		case stepFree:
			spans[s.request].end = s.at
			if !p.Requests[s.request].Pending {
				spans[s.request].completed = s.at
			}
		case stepComplete:
			spans[s.request].completed = s.at
		}
	}
	return spans
}

// disturber collects the requests of a disturbed program.
type disturber struct {
	rng      *rand.Rand
	requests []Request
	spans    []span
	dropped  []bool // by request of the original program
}

// disturb disturbs request i. n is the number of requests of the original program.
func (d *disturber) disturb(i, n int) {
	switch d.rng.IntN(4) {
	case 0:
		d.dropped[i] = true
	case 1: // one more, of another size, that lives as long
		extra := d.requests[i]
		extra.Requested = d.requests[d.rng.IntN(n)].Requested
		d.add(extra, d.spans[i])
	case 2:
		d.add(d.requests[i], d.spans[i])
	case 3:
		if j := i + 1; j < n && d.spans[j].end.event != never {
			d.spans[i], d.spans[j] = d.spans[j], d.spans[i]
		}
	}
}

// add injects a request that is made, and freed, right after one that lives in s.
func (d *disturber) add(q Request, s span) {
	q.Original, q.Event, q.Pending = false, trace.Time(-1), false
	s.start.sub++
	s.end.sub++
	s.completed = s.end
	d.requests, d.spans = append(d.requests, q), append(d.spans, s)
}
