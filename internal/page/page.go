// Package page shows one device's recording and its plan: as one HTML file that needs
// nothing else (html.go), and as still pictures (still.go). docs/report.md says what is on
// it.
//
// The page holds the buffers as columns of numbers, and draws them itself. Its figures are
// the JSON of the commands diff and peak, as it is.
package page

import (
	"fmt"
	"math/bits"
	"strconv"

	"github.com/stplan/stplan/internal/export"
	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// Input is one device of a recording with its plan, and what the commands say of it.
type Input struct {
	Recording *peak.Recording
	At        *peak.Peak
	Plan      *planfile.Device
	Figures   Figures
	Curves    []Curve // the first is what the program held
}

// Figures are what the commands print with --json for one device.
type Figures struct {
	Diff report.Compared     `json:"diff"`
	Peak report.PeakedDevice `json:"peak"`
}

// Device is what a page shows of one device. Times are events, sizes and addresses are in
// units of 512 B.
type Device struct {
	Ordinal int           `json:"device"`
	Events  int64         `json:"events"`
	Counts  Counts        `json:"counts"`
	Arena   uint32        `json:"arena_units"`
	Held    uint32        `json:"recorded_units"` // the height of the picture of what was recorded; 0 without one
	Starts  []trace.Time  `json:"iteration_starts"`
	End     string        `json:"plan_end"` // which end of a buffer the plan was made for
	Steady  trace.Time    `json:"steady_start_event"`
	Bound   Bound         `json:"bound"`
	Peak    Instant       `json:"peak"`
	Failure []trace.Time  `json:"out_of_memory_events"`
	Names   Names         `json:"names"`
	Lines   []Line        `json:"lines"`
	Stacks  []Stack       `json:"stacks"`
	Frames  []string      `json:"frames"`
	Curves  []CurveHeader `json:"curves"`
	Notes   []string      `json:"notes"`

	Figures Figures  `json:"-"`
	columns []column // what the page holds as numbers
	curves  []Curve
	buffers buffers
	places  []piece
}

// Counts say how many buffers there are and what became of them.
type Counts struct {
	Buffers int `json:"buffers"`
	Shown   int `json:"shown"`
	// OffPlan have no place in the plan, or no room in one that they share with others.
	OffPlan int `json:"off_plan"`
}

// Instant is an event with what the program did then.
type Instant struct {
	Event int64  `json:"event"`
	Why   string `json:"why"`
	Phase string `json:"phase"`
}

// Names are the words behind numbers in columns.
type Names struct {
	Categories []string `json:"categories"`
	Parts      []string `json:"parts"`
	Streams    []string `json:"streams"`
}

// Line is a line of code.
type Line struct {
	Label string `json:"label"`
	From  string `json:"from,omitempty"`
}

// Stack is a line of code and the frames that led there, outermost first, as indices into
// Device.Frames.
type Stack struct {
	Line   int   `json:"line"`
	Frames []int `json:"frames"`
}

const (
	// maxBuffers is the most buffers that a page holds. A browser draws as many in some
	// 20 ms; each is about 10 bytes of the file.
	maxBuffers = 1 << 20
	// maxCurve is the most points of a curve. A screen has a few thousand columns, so that
	// many are exact under a zoom of 50.
	maxCurve = 1 << 17
	// maxFrames is the most frames of all stacks together: about 20 MB of JSON.
	maxFrames = 1 << 21
	// maxSegments is the most segments that are laid out: the time for it grows with the
	// product of all and of those that live at once.
	maxSegments = 1 << 15
	// maxUnits is the most memory that a picture shows, 2 TiB in units of 512 B: ten times
	// what a GPU has.
	maxUnits = 1<<32 - 2
)

// Build finds what a page shows of a device.
func Build(in Input) (*Device, error) {
	r := in.Recording
	d := &Device{
		Ordinal: r.Device.Ordinal, Events: int64(r.Timeline.Events), Figures: in.Figures,
		Starts: notNil(r.Iterations.Starts), Steady: r.Iterations.SteadyStart, End: in.Plan.End.String(), Failure: notNil(r.Device.Failures().At),
		Peak:  Instant{int64(in.At.Moment.At), in.At.Moment.Why, in.At.Moment.Phase.Title(r.Iterations.Count)},
		Notes: []string{}, Lines: []Line{}, Stacks: []Stack{}, Frames: []string{},
	}
	if d.Events >= 1<<32 {
		return nil, fmt.Errorf("device %d: %d events, expected fewer than 2^32 for a picture", d.Ordinal, d.Events)
	}
	if units := in.Plan.ArenaBytes / uint64(trace.Granularity); units > maxUnits {
		return nil, fmt.Errorf("device %d: a plan of %d B, expected at most 2 TiB for a picture", d.Ordinal, in.Plan.ArenaBytes)
	}
	d.Arena = uint32(in.Plan.ArenaBytes / uint64(trace.Granularity))
	slots := export.Slots(in.Plan, r.Timeline)
	d.Bound = boundOf(in.Plan, r, slots)
	l := layOut(r)
	if l == nil && !r.Device.AddressesInvented {
		d.note("what was recorded is not drawn: more than %s segments, or more than 2 TiB", report.Count(maxSegments))
	}
	d.gather(in, slots, l)
	d.addSegments(l)
	d.addCurves(in.Curves)
	return d, nil
}

func (d *Device) note(format string, args ...any) {
	d.Notes = append(d.Notes, fmt.Sprintf(format, args...))
}

// notNil is a list that is written as one even if it is empty.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// units is a size in units, which has been found to fit.
func units(n trace.Bytes) uint32 { return uint32(n / trace.Granularity) }

// fits says that a buffer's size can be shown.
func fits(n trace.Bytes) bool { return bits.Len64(uint64(n)) <= 40 }

// streamName is a stream as people write it.
func streamName(stream uint64) string {
	if stream == 0 {
		return "0 (default)"
	}
	return "0x" + strconv.FormatUint(stream, 16)
}
