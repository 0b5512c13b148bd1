package report

import "github.com/stplan/stplan/internal/verify"

// Verified is what `verify --json` prints. TraceMatch is null without --trace.
type Verified struct {
	Plan       string             `json:"plan"`
	Verified   bool               `json:"verified"`
	Devices    int                `json:"devices"`
	Buffers    int                `json:"buffers"`
	Waits      int                `json:"waits"`
	CrossWaits int                `json:"waits_cross_stream"`
	TraceMatch *bool              `json:"trace_match"`
	Advice     []string           `json:"advice,omitempty"` // of devices that have one
	Violations []verify.Violation `json:"violations"`
}
