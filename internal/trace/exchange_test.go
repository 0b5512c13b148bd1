package trace

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestExchangesOfAnnotations(t *testing.T) {
	start := func(name string, at Time) Annotation { return Annotation{Name: name, At: at} }
	end := func(name string, at Time) Annotation { return Annotation{Name: name, End: true, At: at} }
	d := Device{Annotations: []Annotation{
		start("stplan.exchange#1", 2), end("stplan.exchange#1", 3),
		start("Optimizer.step#SGD.step", 3),
		start("stplan.exchange#2", 4), end("stplan.exchange#2", 4),
		start("stplan.awaited#1@0", 5), end("stplan.awaited#1@0", 6),
		end("stplan.awaited#1@255", 7),
		end("stplan.awaited#1@0", 8),         // waits again, which changes nothing
		start("stplan.exchange#3", 9),        // nobody waits for it
		end("stplan.awaited#9@0", 9),         // there is no such exchange
		end("stplan.awaited#2@elsewhere", 9), // nor such a stream
		end("stplan.awaited#2@18446744073709551615", 10),
	}}
	want := []Exchange{{2, []Await{{0, 6}, {255, 7}}}, {4, []Await{{1<<64 - 1, 10}}}}
	if found := d.Exchanges(); !reflect.DeepEqual(found, want) {
		t.Errorf("found %v, expected %v", found, want)
	}
	again := Device{}
	for i := range want {
		again.Annotations = append(again.Annotations, want[i].Annotations(i)...)
	}
	if found := again.Exchanges(); !reflect.DeepEqual(found, want) {
		t.Errorf("their own annotations say %v, expected %v", found, want)
	}
}

// TestPasses compares with the definition: no exchange that had begun is left that the stream
// does not wait for.
func TestPasses(t *testing.T) {
	const last = 40
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var all []Exchange
		for begins := Time(rng.IntN(5)); begins < last; begins += Time(rng.IntN(8)) {
			e := Exchange{Begins: begins}
			for stream := range uint64(2) {
				if rng.IntN(3) > 0 {
					e.Awaits = append(e.Awaits, Await{stream, begins + Time(rng.IntN(15))})
				}
			}
			all = append(all, e)
		}
		passes := NewPasses(all)
		for stream := range uint64(3) {
			for at := range Time(last) {
				want := at
				for _, e := range all {
					for _, w := range e.Awaits {
						if e.Begins <= at && w.Stream == stream {
							want = max(want, w.At)
						}
					}
				}
				if found := passes.From(at, stream); found != want {
					t.Fatalf("seed %d: stream %d can wait for what is freed at %d from %d on, expected %d (%v)", seed, stream, at, found, want, all)
				}
			}
		}
	}
}
