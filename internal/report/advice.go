package report

import (
	"bufio"
	"fmt"
)

// Advice is the best settings of PyTorch's allocator, of those that were tried. Sizes are
// bytes.
type Advice struct {
	// Conf is the value of PYTORCH_CUDA_ALLOC_CONF, empty for PyTorch's defaults.
	Conf         string `json:"conf"`
	PeakReserved int64  `json:"peak_reserved_bytes"`
	// Saved is against the settings of the recording.
	Saved int64 `json:"saved_bytes"`
	// Fits says whether the job gets by with --device-memory, null without it.
	Fits  *bool `json:"fits"`
	Tried int   `json:"settings_tried"`
}

// export is the line that a shell takes.
func (a *Advice) export() string {
	if a.Conf == "" {
		return "unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF"
	}
	return "export PYTORCH_CUDA_ALLOC_CONF=" + a.Conf
}

// write prints it. plan is what is reserved with stplan.
func (a *Advice) write(out *bufio.Writer, plan int64) {
	fmt.Fprintf(out, "\nwithout a plan, the best of %s settings that were simulated:\n  %s\n", Count(a.Tried), a.export())
	text := "takes " + Bytes(a.PeakReserved)
	switch {
	case a.Saved > 0:
		text += fmt.Sprintf(", %s (%s) less than as recorded", Bytes(a.Saved), Percent(float64(a.Saved)/float64(a.PeakReserved+a.Saved)))
	case a.Saved == 0:
		text += ", as recorded"
	default:
		text += ", " + Bytes(-a.Saved) + " more than as recorded, and fits, giving cached memory back"
	}
	if plan < a.PeakReserved {
		text += fmt.Sprintf("; stplan takes %s less still", Bytes(a.PeakReserved-plan))
	}
	if a.Fits != nil && !*a.Fits {
		text += "; it does not fit"
	}
	_ = writeWrapped(out, "  ", text) // out keeps its error
}
