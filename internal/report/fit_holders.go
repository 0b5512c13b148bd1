package report

import (
	"bufio"
	"fmt"
	"time"
)

// PeakHolders are the buffers that bind the size of a job. Sizes are bytes.
type PeakHolders struct {
	Trace     string       `json:"trace"`
	Device    int          `json:"device"`
	Event     int64        `json:"event"`
	Allocated int64        `json:"peak_allocated_bytes"`
	Groups    []PeakHolder `json:"groups"`
	Total     int          `json:"groups_total"`
	// Listed is the peak without all of Groups that have a Without, and All without those
	// that are not listed too.
	Listed int64 `json:"peak_without_listed_bytes"`
	All    int64 `json:"peak_without_all_bytes"`
}

// PeakHolder is a group of buffers at the peak.
type PeakHolder struct {
	// Line is the line of code; null without Python stacks, when Each is the size of each.
	Line     *string `json:"line"`
	From     string  `json:"from,omitempty"`
	Each     *int64  `json:"each_bytes"`
	Category string  `json:"category"`
	Bytes    int64   `json:"bytes"`
	Buffers  int     `json:"buffers"`
	// LifeEvents and LifeMicroseconds are how long half of them live at least: at most so
	// long they lie idle. The second is null if the recording has no times.
	LifeEvents       int64  `json:"life_events"`
	LifeMicroseconds *int64 `json:"life_us"`
	// Without is the peak if they were gone but for the ends of their lives. It is null of
	// what is used again and again.
	Without *int64 `json:"peak_without_bytes"`
}

func (p *PeakHolders) write(out *bufio.Writer) {
	title := fmt.Sprintf("the largest at the peak of %s, device %d (event %s)", p.Trace, p.Device, Count(p.Event))
	if more := p.Total - len(p.Groups); more > 0 {
		title += fmt.Sprintf("; %s more with --top", Count(more))
	}
	fmt.Fprintln(out)
	_ = writeWrapped(out, "", title) // out keeps its errors
	lines := []tableLine{{figures: []string{"at the peak", "live for", "peak falls by", "to move both ways"}}}
	for _, g := range p.Groups {
		lines = append(lines, g.lines(p.Allocated)...)
	}
	if len(p.Groups) < p.Total {
		lines = append(lines, tableLine{label: "  these activations", figures: []string{"", "", Bytes(p.Allocated - p.Listed), ""}})
	}
	lines = append(lines, tableLine{label: "  all activations", figures: []string{"", "", Bytes(p.Allocated - p.All), ""}})
	writeLines(out, lines)
	_ = writeWrapped(out, "", `"live for" is from allocation to free, of half of them longer. `+
		`"peak falls by" is what the peak of allocated memory falls by if activations are freed soon after they are made and come back just before their free, `+
		`in all iterations: recomputed, or moved to the host and back at the given rate. Not known: what a recomputation takes itself, `+
		`whether they are read in between, and when what is kept is read.`)
}

func (g *PeakHolder) lines(peak int64) []tableLine {
	name := g.Category
	if g.Line != nil {
		name += ", " + *g.Line
	} else {
		name += fmt.Sprintf(", %s of %s", Count(g.Buffers), Bytes(*g.Each))
	}
	life, falls, rate := Count(g.LifeEvents)+" events", "-", ""
	if g.Without != nil {
		falls = Bytes(peak - *g.Without)
	}
	if us := g.LifeMicroseconds; us != nil && *us > 0 {
		life = (time.Duration(*us) * time.Microsecond).Round(roundTo(*us)).String()
		if g.Without != nil {
			rate = fmt.Sprintf("%.3g GB/s", 2*float64(g.Bytes)/float64(*us)/1e3)
		}
	}
	lines := []tableLine{{label: "  " + name, figures: []string{Bytes(g.Bytes), life, falls, rate}}}
	if g.From != "" {
		lines = append(lines, tableLine{label: "    from " + g.From})
	}
	return lines
}

// roundTo is the unit of a duration that leaves three digits.
func roundTo(us int64) time.Duration {
	unit := time.Microsecond
	for us >= 1000 {
		us /= 10
		unit *= 10
	}
	return unit
}
