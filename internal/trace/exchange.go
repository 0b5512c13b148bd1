package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The names of annotations that tell of exchanges: point-to-point calls of torch.distributed,
// such as a receive. The first tells that one begins, by its start, and the second, by its end, that the
// program has made a stream wait for it. Exchanges are told apart by a number, and streams by their handles.
const (
	exchangePrefix = "stplan.exchange#"
	awaitedPrefix  = "stplan.awaited#"
)

// Exchange is a send or a receive that the program makes streams wait for.
type Exchange struct {
	Begins Time // the first event after it began
	Awaits []Await
}

// Await is a stream that waits for an exchange from the event At on.
type Await struct {
	Stream uint64
	At     Time
}

// Exchanges finds the exchanges that the device's annotations tell of, in the order in which they
// begin. One that no stream is ever made to wait for is left out, since nothing says when it
// is over.
func (d *Device) Exchanges() []Exchange {
	var all []Exchange
	numbers, awaited := map[string]int{}, map[string]bool{}
	for _, a := range d.Annotations {
		if number, ok := strings.CutPrefix(a.Name, exchangePrefix); ok && !a.End {
			numbers[number] = len(all)
			all = append(all, Exchange{Begins: a.At})
			continue
		}
		rest, ok := strings.CutPrefix(a.Name, awaitedPrefix)
		if !ok || !a.End {
			continue
		}
		number, handle, _ := strings.Cut(rest, "@")
		i, known := numbers[number]
		stream, err := strconv.ParseUint(handle, 10, 64)
		if known && err == nil && !awaited[rest] { // a stream may wait again, which changes nothing
			awaited[rest] = true
			all[i].Awaits = append(all[i].Awaits, Await{Stream: stream, At: a.At})
		}
	}
	return slices.DeleteFunc(all, func(e Exchange) bool { return len(e.Awaits) == 0 })
}

// OfExchange says whether an annotation tells of an exchange.
func (a *Annotation) OfExchange() bool {
	return strings.HasPrefix(a.Name, exchangePrefix) || strings.HasPrefix(a.Name, awaitedPrefix)
}

// Annotations are those that tell of an exchange, for Exchanges to find. Each exchange of a device
// needs another number.
func (e *Exchange) Annotations(number int) []Annotation {
	out := []Annotation{{Name: fmt.Sprint(exchangePrefix, number), At: e.Begins}}
	for _, w := range e.Awaits {
		out = append(out, Annotation{Name: fmt.Sprintf("%s%d@%d", awaitedPrefix, number, w.Stream), End: true, At: w.At})
	}
	return out
}

// Passes says when streams can be made to wait for what the device had been given.
type Passes struct {
	byStream map[uint64][]passing // by begins
}

// passing is an exchange as one stream sees it. latest is when it has waited for this one and those
// before it.
type passing struct{ begins, latest Time }

// NewPasses needs exchanges by Begins.
func NewPasses(exchanges []Exchange) Passes {
	p := Passes{byStream: map[uint64][]passing{}}
	for _, e := range exchanges {
		for _, w := range e.Awaits {
			list := p.byStream[w.Stream]
			latest := w.At
			if len(list) > 0 {
				latest = max(latest, list[len(list)-1].latest)
			}
			p.byStream[w.Stream] = append(list, passing{e.Begins, latest})
		}
	}
	return p
}

// From is the first time from `at` on at which a stream can be made to wait for all that
// the device had been given by `at`: when the program has made it wait for every exchange that
// had begun by then. To wait for one that is under way could be for ever, as the other process may
// wait for this one (docs/runtime.md).
func (p Passes) From(at Time, stream uint64) Time {
	list := p.byStream[stream]
	n, _ := slices.BinarySearchFunc(list, at+1, func(e passing, t Time) int { return cmp.Compare(e.begins, t) })
	if n == 0 {
		return at
	}
	return max(at, list[n-1].latest)
}
