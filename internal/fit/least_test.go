package fit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
)

const granule trace.Bytes = 2 << 20

// TestFindLeastOfAThreshold: the answer of an allocator that needs exactly so much is that,
// in granules, but no more than it takes without a limit. It is tried with the device's memory
// that belongs to what it has.
func TestFindLeastOfAThreshold(t *testing.T) {
	j := exampleJob(t, "resnet50")
	budget := fit.Budget{Context: 768 << 20, NCCL: 64 << 20}
	for _, extra := range []trace.Bytes{0, 1, granule - 1, granule, 100 << 20, 1<<30 - 1, 1 << 30} {
		needs := j.Allocated() + extra
		for _, takes := range []trace.Bytes{needs, needs + 1, needs + granule, 2 * needs} {
			tried := 0
			a := fit.Allocator{Try: func(_ context.Context, _ *fit.Job, usable, device trace.Bytes) (fit.Answer, error) {
				tried++
				if usable != fit.Unlimited && (device != usable+budget.Context+budget.NCCL || usable%granule != 0) {
					t.Errorf("tried with %d of %d", usable, device)
				}
				return fit.Answer{Reserved: takes, Fits: usable >= needs, Within: min(takes, usable), Retries: int(usable / granule)}, nil
			}}
			got, err := fit.FindLeast(t.Context(), a, j, budget)
			if err != nil {
				t.Fatal(err)
			}
			want := min(takes, (needs+granule-1)/granule*granule)
			if got.Bytes != want || !got.Fits || got.Reserved != takes || got.Within > max(got.Bytes, takes) {
				t.Errorf("needs %d, takes %d: found %+v, expected %d", needs, takes, got, want)
			}
			if got.Bytes < takes && got.Retries != int(got.Bytes/granule) {
				t.Errorf("needs %d, takes %d: the answer is of another trial: %+v", needs, takes, got)
			}
			if tried > 16 {
				t.Errorf("needs %d, takes %d: tried %d times", needs, takes, tried)
			}
		}
	}
}

// TestFindLeast: with what is found the recording runs, with a granule less it does not, and
// nothing needs less than is allocated.
func TestFindLeast(t *testing.T) {
	if !simdevice.Built {
		t.Skip("built without the runtime")
	}
	for _, name := range []string{"resnet50", "lora-oom"} {
		j := exampleJob(t, name)
		plans := fit.Compiled(compile.Options{Producer: "test", Serve: simdevice.Serve})
		found := map[string]trace.Bytes{}
		for _, a := range fit.Allocators(j.Recorded, simdevice.ServeWithin, plans) {
			got, err := fit.FindLeast(t.Context(), a, j, fit.Budget{})
			if err != nil {
				t.Fatal(err)
			}
			found[a.Key] = got.Bytes
			if got.Bytes < j.Allocated() || got.Bytes > got.Reserved {
				t.Errorf("%s: %s needs %d, allocates %d, takes %d", name, a.Key, got.Bytes, j.Allocated(), got.Reserved)
			}
			for usable, fits := range map[trace.Bytes]bool{got.Bytes: true, got.Bytes - granule: false} {
				if answer, err := a.Try(t.Context(), j, usable, usable); err != nil || answer.Fits != fits {
					t.Errorf("%s: %s with %d of %d: %+v, %v", name, a.Key, usable, got.Bytes, answer, err)
				}
			}
		}
		if !(found[fit.KeyPlan] <= found[fit.KeyPool] && found[fit.KeyPool] < found[baseline.KeyExpandable] && found[baseline.KeyExpandable] < found[baseline.KeyNative]) {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func TestFindLeastOfNone(t *testing.T) {
	j := exampleJob(t, "resnet50")
	unfit := fit.Allocator{Try: func(context.Context, *fit.Job, trace.Bytes, trace.Bytes) (fit.Answer, error) {
		return fit.Answer{Unfit: "it has no graphs"}, nil
	}}
	if got, err := fit.FindLeast(t.Context(), unfit, j, fit.Budget{}); err != nil || got.Bytes != 0 || got.Unfit == "" {
		t.Errorf("found %+v, %v", got, err)
	}
	wrong := errors.New("wrong")
	for _, later := range []int{0, 1} {
		broken := fit.Allocator{Try: func(context.Context, *fit.Job, trace.Bytes, trace.Bytes) (fit.Answer, error) {
			if later--; later < 0 {
				return fit.Answer{}, wrong
			}
			return fit.Answer{Reserved: 2 * j.Allocated(), Fits: true}, nil
		}}
		if _, err := fit.FindLeast(t.Context(), broken, j, fit.Budget{}); !errors.Is(err, wrong) {
			t.Errorf("error %v", err)
		}
	}
}
