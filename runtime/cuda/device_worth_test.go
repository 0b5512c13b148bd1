//go:build cgo

package cuda

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWhatAPlanMayCost: less if much moves for it, unless more moved without it.
func TestWhatAPlanMayCost(t *testing.T) {
	t.Parallel()
	plan := filepath.Join(t.TempDir(), "plan.bin")
	if err := os.WriteFile(plan, encode(t, planOf(8, iteration)), 0o644); err != nil {
		t.Fatal(err)
	}
	execute(t, compile(t, memorySanitizers, "worth.c"), plan)
}
