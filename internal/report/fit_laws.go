package report

import (
	"bufio"
	"fmt"
	"math"
	"strconv"
)

// SizeLaws are what several recordings of a job at different sizes say of all others.
type SizeLaws struct {
	Device int `json:"device"`
	// Given says that the sizes were given. Otherwise they are multiples of the first
	// recording's.
	Given bool        `json:"sizes_given"`
	Sizes []LawedSize `json:"sizes"`
	Step  float64     `json:"step"`
	// Allocations are those of the recording that larger sizes are made of, and Matched
	// those that another recording has as well.
	Allocations int `json:"allocations"`
	Matched     int `json:"matched"`
	// Unknown is the most bytes live at once that no other recording has, or whose size no
	// tensor's law explains. Constant are the
	// bytes at the peak that are the same at all sizes, and Growth those that each unit of
	// size adds.
	Unknown  int64         `json:"unknown_bytes"`
	Constant int64         `json:"constant_bytes"`
	Growth   int64         `json:"growth_bytes"`
	Checks   []LawCheck    `json:"checks"`
	Largest  []LargestSize `json:"largest"`
	// Asked are the sizes of --at.
	Asked []PredictedSize `json:"at,omitempty"`
	// Beyond says that the search ended before the memory did.
	Beyond bool `json:"search_ended"`
}

// LawedSize is a recording and its size.
type LawedSize struct {
	Trace string  `json:"trace"`
	Size  float64 `json:"size"`
	// Found is what the allocations show, in units of the first recording's size.
	Found float64 `json:"found"`
}

// LawCheck compares what the laws say of a recording with what it is.
type LawCheck struct {
	Trace       string        `json:"trace"`
	Size        float64       `json:"size"`
	Independent bool          `json:"independent"`
	Allocated   LawPrediction `json:"peak_allocated"`
	// Reserved has one for each simulated allocator and the pool.
	Reserved []LawPrediction `json:"peak_reserved"`
}

// LawPrediction is a prediction and what was found.
type LawPrediction struct {
	Key       string  `json:"key,omitempty"`
	Predicted int64   `json:"predicted_bytes"`
	Found     int64   `json:"found_bytes"`
	Error     float64 `json:"error"`
}

// LargestSize is the largest size that fits under an allocator.
type LargestSize struct {
	Key   string `json:"key"`
	Title string `json:"settings"`
	// Size is null if no size fits; Low and High are the ends of its error bar.
	Size *float64 `json:"size"`
	Low  *float64 `json:"size_low"`
	High *float64 `json:"size_high"`
	// PeakReserved is what it takes at that size, with the limit.
	PeakReserved *int64 `json:"peak_reserved_bytes"`
}

// PredictedSize is a job at a size that was asked for.
type PredictedSize struct {
	Size          float64 `json:"size"`
	PeakAllocated int64   `json:"peak_allocated_bytes"`
	// Low and High are the ends of the error bar of PeakAllocated.
	Low        int64       `json:"peak_allocated_low_bytes"`
	High       int64       `json:"peak_allocated_high_bytes"`
	Allocators []FittedRow `json:"allocators"`
}

// size formats a size: a number that was given, or a multiple.
func (l *SizeLaws) size(x float64) string {
	if l.Given {
		return strconv.FormatFloat(math.Round(x*100)/100, 'f', -1, 64)
	}
	return fmt.Sprintf("%.2fx", x)
}

func (l *SizeLaws) write(out *bufio.Writer, paint Painter) {
	fmt.Fprintf(out, "\nsize laws, device %d\n", l.Device)
	single := len(l.Sizes) == 1
	for _, s := range l.Sizes {
		_ = writeWrapped(out, "  "+l.size(s.Size)+"  ", s.Trace) // out keeps its errors
	}
	switch {
	case single:
		_ = writeWrapped(out, "  ", "its micro-batches differ in length; sizes are multiples of the longest in a steady iteration, and every micro-batch is taken to be as long")
	case !l.Given:
		_ = writeWrapped(out, "  ", "sizes are multiples of the first recording's, from what grows most; --sizes names them")
	}
	where := "are in another recording too"
	if single {
		where = "have a law"
	}
	_ = writeWrapped(out, "  ", fmt.Sprintf("%s of %s allocations %s; %s at the peak are the same at every size, and each %s adds %s",
		Count(l.Matched), Count(l.Allocations), where, Bytes(l.Constant), l.size(1), Bytes(l.Growth)))
	if l.Unknown > 0 {
		_ = writeWrapped(out, "  ", fmt.Sprintf("how up to %s live at once grow is not known: no other recording or iteration shows it, or they fall or jump as no tensor does", Bytes(l.Unknown)))
	}
	if len(l.Checks) > 0 {
		l.writeChecks(out)
	}
	l.writeLargest(out)
	for _, p := range l.Asked {
		fmt.Fprintf(out, "\nat %s: peak allocated %s, error bar %s to %s\n", l.size(p.Size), Bytes(p.PeakAllocated), Bytes(p.Low), Bytes(p.High))
		writeFitted(out, p.Allocators, paint)
	}
}

func (l *SizeLaws) writeChecks(out *bufio.Writer) {
	head := "each recording, predicted from the others:"
	if len(l.Checks) > 0 && !l.Checks[0].Independent {
		head = "each recording, with the order of the other (a third would test the sizes too):"
	}
	fmt.Fprintf(out, "\n%s\n", head)
	lines := []tableLine{{figures: []string{"allocated"}}}
	for _, r := range l.Checks[0].Reserved {
		lines[0].figures = append(lines[0].figures, r.Key)
	}
	for _, c := range l.Checks {
		line := tableLine{label: "  " + l.size(c.Size), figures: []string{signed(c.Allocated.Error)}}
		for _, r := range c.Reserved {
			line.figures = append(line.figures, signed(r.Error))
		}
		lines = append(lines, line)
	}
	writeLines(out, lines)
}

// signed formats a share with its sign.
func signed(share float64) string { return fmt.Sprintf("%+.2f %%", 100*share) }

func (l *SizeLaws) writeLargest(out *bufio.Writer) {
	fmt.Fprintf(out, "\nthe largest that fits:\n")
	lines := []tableLine{{figures: []string{"size", "error bar", "takes"}}}
	for _, r := range l.Largest {
		if r.Size == nil {
			lines = append(lines, tableLine{label: "  " + r.Title, figures: []string{"none", "", ""}})
			continue
		}
		lines = append(lines, tableLine{label: "  " + r.Title,
			figures: []string{l.size(*r.Size), l.size(*r.Low) + " to " + l.size(*r.High), Bytes(*r.PeakReserved)}})
	}
	writeLines(out, lines)
	if l.Beyond {
		_ = writeWrapped(out, "  ", "larger ones were not looked for: they are too far from the recordings")
	}
}
