package fit_test

import (
	"testing"

	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/trace"
)

// TestHolders counts by itself what the groups hold at the peak, and that the peak without
// some of the activations lies between what it is and what it is without all their bytes.
func TestHolders(t *testing.T) {
	for _, name := range []string{"resnet50", "lora-oom", "evaluation"} {
		j := exampleJob(t, name)
		h, err := fit.FindHolders(j, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		sum, failed, idle := trace.Bytes(0), trace.Bytes(0), 0
		for _, g := range h.Groups {
			sum += g.Bytes
			if g.Without > h.Peak || g.Without < h.Peak-g.Bytes {
				t.Errorf("%s: %+v: expected a peak between %d and %d B", name, g, h.Peak-g.Bytes, h.Peak)
			}
			if g.Idle() {
				idle++
				if h.All > g.Without {
					t.Errorf("%s: %d B without all activations, %d B without %+v", name, h.All, g.Without, g)
				}
			} else if g.Without != h.Peak {
				t.Errorf("%s: %s do not lie idle, as far as a recording shows: %+v", name, g.Category, g)
			}
		}
		if f := j.Timeline.Failed(); f != nil {
			failed = f.Size
		}
		if sum+failed != h.Peak || len(h.Groups) != h.Total || idle == 0 {
			t.Errorf("%s: %d groups of %d with %d B, and %d B that failed, expected %d B", name, len(h.Groups), h.Total, sum, failed, h.Peak)
		}
		if h.Listed != h.All {
			t.Errorf("%s: %d B without all groups of the list, which are all, and %d B without all", name, h.Listed, h.All)
		}
		// However few are listed, all activations are all.
		if top, err := fit.FindHolders(j, 2); err != nil || len(top.Groups) != 2 || top.Groups[0] != h.Groups[0] ||
			top.All != h.All || top.Listed < h.All || top.Listed > min(top.Groups[0].Without, top.Groups[1].Without) {
			t.Errorf("%s: the first two of them: %+v, %v", name, top, err)
		}
	}
}
