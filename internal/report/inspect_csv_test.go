package report

import (
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// sharing is a device with a shared place in the prologue and one in the body, in which the
// holder ends before the slot that shares its place.
func sharing(end planfile.EndKind) *planfile.Device {
	return &planfile.Device{
		Mode: planfile.ModePeriodic, End: end,
		Slots: []planfile.Slot{
			{Start: 1, RequestedEnd: 2, CompletedEnd: 3, Offset: 512, Size: 2048, Requested: 600, Cell: planfile.NoCell},
			{Start: 2, RequestedEnd: 5, CompletedEnd: 6, Offset: 512, Size: 2048, Requested: 700, Flags: planfile.SlotShares, Cell: 0},

			{Start: 0, RequestedEnd: 1, CompletedEnd: 1, Offset: 1024, Size: 1024, Requested: 600, Cell: planfile.NoCell},
			{Start: 1, RequestedEnd: 2, CompletedEnd: 3, Offset: 1024, Size: 1024, Requested: 700, Flags: planfile.SlotShares, Cell: 2},
			{Start: 2, RequestedEnd: 3, CompletedEnd: 3, Offset: 0, Size: 512, Requested: 1, Cell: planfile.NoCell},
		},
		Phases: []planfile.Phase{{Kind: planfile.PhasePrologue, Length: 10, SlotCount: 2}, {Kind: planfile.PhaseBody, Length: 3, FirstSlot: 2, SlotCount: 3}},
	}
}

// TestSlotsOfSharedPlaces: a shared place is one row of its full size, up to the last end
// of what lies in it, in every pass.
func TestSlotsOfSharedPlaces(t *testing.T) {
	for end, want := range map[planfile.EndKind]string{
		planfile.EndRequested: "0,1,5,2048,512\n1,10,12,1024,1024\n2,12,13,512,0\n3,13,15,1024,1024\n4,15,16,512,0\n",
		planfile.EndCompleted: "0,1,6,2048,512\n1,10,13,1024,1024\n2,12,13,512,0\n3,13,16,1024,1024\n4,15,16,512,0\n",
	} {
		var out strings.Builder
		if err := WriteSlots(&out, sharing(end), 2); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimPrefix(out.String(), "id,lower,upper,size,offset\n"); got != want {
			t.Errorf("%s: rows\n%sexpected\n%s", end, got, want)
		}
	}
}
