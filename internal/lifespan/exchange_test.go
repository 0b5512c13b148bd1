package lifespan

import (
	"math/rand/v2"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// TestExchangesHoldMemory: what a recorded allocator held back counts as held until its stream waits for
// every exchange that had begun by its free. When the device was done in the recording makes no
// difference, and all else is as without exchanges.
func TestExchangesHoldMemory(t *testing.T) {
	held := 0
	r := rand.New(rand.NewPCG(7, 8))
	forRandom(t, func(t *testing.T, d *trace.Device, plain *Timeline) {
		with := *d
		var exchanges []trace.Exchange
		for begins := trace.Time(0); begins < plain.Events; begins += trace.Time(1 + r.IntN(9)) {
			at := min(plain.Events, begins+trace.Time(r.IntN(12)))
			e := trace.Exchange{Begins: begins, Awaits: []trace.Await{{Stream: uint64(r.IntN(3)), At: at}}}
			with.Annotations = append(with.Annotations, e.Annotations(len(exchanges))...)
			exchanges = append(exchanges, e)
		}
		tl := build(t, &with)
		for i, b := range plain.Buffers {
			want := b
			if b.CompletedEnd > b.RequestedEnd+1 {
				want.CompletedEnd = b.RequestedEnd
				for _, e := range exchanges {
					if e.Begins <= b.RequestedEnd && e.Awaits[0].Stream == b.Stream {
						want.CompletedEnd = max(want.CompletedEnd, e.Awaits[0].At)
					}
				}
				held += int(want.CompletedEnd - want.RequestedEnd)
			}
			if tl.Buffers[i] != want {
				t.Fatalf("buffer %d is %+v, expected %+v", i, tl.Buffers[i], want)
			}
		}
	})
	if held == 0 {
		t.Error("nothing was held")
	}
}
