// Package export writes a recording in forms that other tools read: pprof's profiles,
// Perfetto's and Chrome's trace events, and a Parquet table of lifetimes. docs/export.md
// describes them.
package export

import (
	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/trace"
)

// Device is one device's recording, at an instant for the forms that show one.
type Device struct {
	*peak.Recording
	At *peak.Peak
	// Offsets are the places of the timeline's buffers in a plan, -1 for none; nil
	// without a plan.
	Offsets []int64
}

// FailedRequest is the category of a request that ran out of memory.
const FailedRequest = "request that failed"

// categoryOf names what a buffer is for.
func categoryOf(l *peak.Live) string {
	if l.Buffer.Failed {
		return FailedRequest
	}
	return l.Category.String()
}

// stackOf is a stack's index, or trace.None if it has no frames.
func stackOf(t *trace.Trace, stack int32) int32 {
	if stack != trace.None && len(t.Stacks.At(stack)) == 0 {
		return trace.None
	}
	return stack
}
