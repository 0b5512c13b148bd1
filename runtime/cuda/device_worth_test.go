//go:build cgo

package cuda

import "testing"

// TestWhatAPlanMayCost: less if much moves for it, unless more moved without it.
func TestWhatAPlanMayCost(t *testing.T) {
	t.Parallel()
	execute(t, compile(t, memorySanitizers, "worth.c"), planFile(t, planOf(8, iteration)))
}
