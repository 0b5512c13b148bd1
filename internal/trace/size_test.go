package trace

import "testing"

func TestRoundUp(t *testing.T) {
	for _, c := range []struct{ request, want Bytes }{
		{0, 512}, {1, 512}, {511, 512}, {512, 512}, {513, 1024}, {1024, 1024},
		{1<<62 - 1, 1 << 62}, {1 << 62, 1 << 62},
	} {
		if got := RoundUp(c.request); got != c.want {
			t.Errorf("RoundUp(%d) = %d, expected %d", c.request, got, c.want)
		}
	}
}

// TestSegmentFor has the worked examples of PyTorch's rules.
func TestSegmentFor(t *testing.T) {
	const mib = 1 << 20
	for request, want := range map[Bytes]Bytes{
		1: 2 * mib, 203: 2 * mib, mib: 2 * mib, mib + 512: 20 * mib, 10*mib - 512: 20 * mib, 10 * mib: 10 * mib,
		10*mib + 512: 12 * mib, 30*mib + 512: 32 * mib, 31 * mib: 32 * mib,
	} {
		if got := SegmentFor(request); got != want {
			t.Errorf("a segment of %d B for %d B, expected %d", got, request, want)
		}
	}
}
