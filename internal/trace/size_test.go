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
