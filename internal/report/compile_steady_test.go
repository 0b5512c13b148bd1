package report

import (
	"strings"
	"testing"
)

// TestBelievedSlots: what a plan has beyond the recording is said if there is any.
func TestBelievedSlots(t *testing.T) {
	for believed, want := range map[int]string{0: "", 1: "1 slot larger than recorded", 9186: "9,186 slots larger than recorded"} {
		var b strings.Builder
		if err := (&SteadyState{Believed: believed}).write(&b); err != nil {
			t.Fatal(err)
		}
		said := strings.Join(strings.Fields(b.String()), " ")
		if !strings.Contains(said, want) || strings.Contains(said, "larger") != (believed > 0) {
			t.Errorf("%d slots: %s", believed, said)
		}
	}
}
