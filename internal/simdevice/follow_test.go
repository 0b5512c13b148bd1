package simdevice

import (
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/trace"
)

// TestFollowPoolSeesThePeak: the largest value that FollowPool tells of is what Serve says
// that the pool reserves.
func TestFollowPoolSeesThePeak(t *testing.T) {
	if !Built {
		t.Skip("built without cgo: no runtime")
	}
	tr, err := trace.ReadFile("../../examples/lora-oom/lora-oom.pickle.gz", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tl, err := lifespan.Build(&tr.Devices[0])
	if err != nil {
		t.Fatal(err)
	}
	program := replay.NewProgram(tl)
	want, err := Serve(program, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var most trace.Bytes
	last := trace.Time(-1)
	err = FollowPool(program, func(at trace.Time, reserved trace.Bytes) {
		if at < last {
			t.Fatalf("event %d after %d", at, last)
		}
		most, last = max(most, reserved), at
	})
	if err != nil || int64(most) != want.Reserved {
		t.Errorf("saw at most %d, %v, expected %d", most, err, want.Reserved)
	}
}
