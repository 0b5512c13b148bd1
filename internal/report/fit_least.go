package report

import (
	"bufio"
	"fmt"
)

// LeastRow is how little memory would do under one allocator. Sizes are bytes.
type LeastRow struct {
	Key   string `json:"key"`
	Title string `json:"settings"`
	// PeakReserved is without a limit.
	PeakReserved int64 `json:"peak_reserved_bytes"`
	// Least is the least memory for tensors with which the recording runs, and Retries how
	// often all cached memory is given back then.
	Least   int64 `json:"least_bytes"`
	Retries int   `json:"retries"`
	// ServedBy is what serves in the place of a plan that does not pay.
	ServedBy string `json:"served_by,omitempty"`
	// Unfit says why the allocator cannot serve the program at all. Sizes are 0 then.
	Unfit string `json:"cannot_serve,omitempty"`
}

// leastMeans says what the least memory is, and what it is not.
const leastMeans = "at least: with less the recording runs out of memory. A job whose steps differ needs some to spare"

// NewWholeLeast says of each allocator which of the ranks needs the most.
func NewWholeLeast(jobs []FittedJob) []FittedRank {
	var whole []FittedRank
	for i, first := range jobs[0].Least {
		row := FittedRank{Key: first.Key, Title: first.Title, Fits: true}
		most := int64(-1)
		for _, j := range jobs {
			r := j.Least[i]
			if r.Least > most {
				most, row.Binds = r.Least, j.Trace
			}
			if r.Unfit != "" {
				row.Fits = false
				row.Not++
			}
			row.PeakReserved = max(row.PeakReserved, r.PeakReserved)
		}
		row.Least = &most
		whole = append(whole, row)
	}
	return whole
}

// writeLeast prints for each allocator how little memory would do.
func writeLeast(out *bufio.Writer, rows []LeastRow) {
	lines := []tableLine{{figures: []string{"without a limit", "at least", ""}}}
	for _, r := range rows {
		l := tableLine{label: rowLabel(r.Title), figures: []string{"", "", "cannot serve this job"}}
		if r.Unfit == "" {
			l.figures = []string{Bytes(r.PeakReserved), Bytes(r.Least), r.how()}
		}
		lines = append(lines, l)
	}
	writeLines(out, leftAligned(lines))
	for _, r := range rows {
		writeUnfit(out, r.Title, r.Unfit)
	}
}

// how says how often cached memory is given back, and what serves.
func (r *LeastRow) how() string {
	text := ""
	switch {
	case r.Retries == 1:
		text = "gives back once"
	case r.Retries > 1:
		text = fmt.Sprintf("gives back %s times", Count(r.Retries))
	}
	if r.ServedBy == "" {
		return text
	}
	if text != "" {
		text += ", "
	}
	return text + "by the " + r.ServedBy
}

// writeWholeLeast prints what the rank needs that needs the most.
func (f *Fitted) writeWholeLeast(out *bufio.Writer) {
	lines := []tableLine{{figures: []string{"without a limit", "at least", ""}}}
	for _, r := range f.Whole {
		text := ""
		if r.Not > 0 {
			text = fmt.Sprintf("cannot serve %s ranks", Count(r.Not))
		}
		lines = append(lines, tableLine{label: rowLabel(r.Title), figures: []string{Bytes(r.PeakReserved), Bytes(*r.Least), text}})
	}
	writeLines(out, leftAligned(lines))
	f.writeBinds(out)
}
