package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Fitted is what fit says. Sizes are bytes.
type Fitted struct {
	// Memory is nil if no amount was given: then it is looked for how little would do.
	Memory *DeviceMemory `json:"memory"`
	// Beside is what the process takes beside its tensors if no amount was given.
	Beside *Beside `json:"beside_tensors,omitempty"`
	// Ranks says that the recordings are the ranks of one job, which fits if all do.
	// Otherwise each is a job by itself.
	Ranks bool         `json:"ranks"`
	Jobs  []FittedJob  `json:"recordings"`
	Whole []FittedRank `json:"job,omitempty"`
	// Laws are of several recordings that are no ranks, one for each device.
	Laws []SizeLaws `json:"size_laws,omitempty"`
	// Holders are what is at the peak of the recording with the largest.
	Holders *PeakHolders `json:"at_the_peak,omitempty"`
	// Failed are ranks that could not be tried.
	Failed []FailedTrace `json:"failed,omitempty"`
	// Paint marks verdicts; nil leaves them plain.
	Paint Painter `json:"-"`
}

// Painter marks a verdict for a terminal, such as with green for yes and red for no.
type Painter func(yes bool, text string) string

// write prints a verdict on what fits under so many of all allocators.
func (p Painter) write(out *bufio.Writer, under []string, of int) {
	text := verdict(under, of)
	if p == nil {
		_ = writeWrapped(out, "", text) // out keeps its errors
		return
	}
	var lines strings.Builder
	_ = writeWrapped(&lines, "", text)
	fmt.Fprintln(out, p(len(under) > 0, strings.TrimSuffix(lines.String(), "\n")))
}

// Beside is what a process takes of a device beside the memory of its tensors.
type Beside struct {
	Context int64 `json:"context_bytes"`
	NCCL    int64 `json:"nccl_bytes"`
}

// line says it in words.
func (b Beside) line() string {
	text := Bytes(b.Context) + " for the CUDA context"
	if b.NCCL > 0 {
		text += fmt.Sprintf(" and %s for NCCL", Bytes(b.NCCL))
	}
	return text
}

// DeviceMemory is what a process can have of a device.
type DeviceMemory struct {
	Device int64 `json:"device_bytes"`
	Beside
	Usable int64 `json:"usable_bytes"` // Device less what is beside tensors
}

// Line says it in words.
func (m DeviceMemory) Line() string {
	return fmt.Sprintf("%s of device memory, less %s: %s usable", Bytes(m.Device), m.line(), Bytes(m.Usable))
}

// FittedJob is one device of a recording.
type FittedJob struct {
	Trace         string   `json:"trace"`
	Device        int      `json:"device"`
	PeakAllocated int64    `json:"peak_allocated_bytes"`
	Failure       *Failure `json:"out_of_memory"`
	// SelfCheck says how far to believe the simulated rows.
	SelfCheck SelfCheck `json:"self_check"`
	// Allocators are tried if an amount of memory was given. Otherwise Least are.
	Allocators []FittedRow `json:"allocators,omitempty"`
	Least      []LeastRow  `json:"least,omitempty"`
}

// FittedRow is one allocator's answer.
type FittedRow struct {
	Key   string `json:"key"`
	Title string `json:"settings"`
	// PeakReserved is without a limit.
	PeakReserved int64 `json:"peak_reserved_bytes"`
	Fits         bool  `json:"fits"`
	// Within is with the limit, and Spare what that leaves of it. Both are null if the job
	// does not fit.
	Within  *int64 `json:"peak_reserved_within_bytes"`
	Spare   *int64 `json:"spare_bytes"`
	Retries int    `json:"retries"`
	// OutOfMemory is the request that does not fit. Its Reserved is 0 if it is not known.
	OutOfMemory *FitFailure `json:"runs_out"`
	// ServedBy is what serves in the place of a plan that does not pay.
	ServedBy string `json:"served_by,omitempty"`
	// Low and High bound PeakReserved of an allocator that can only be estimated.
	Low  *int64 `json:"peak_reserved_low_bytes,omitempty"`
	High *int64 `json:"peak_reserved_high_bytes,omitempty"`
	// WithinError says that Fits is the estimate, and that the error turns it: then the job
	// does not count as one that fits.
	WithinError bool `json:"within_error,omitempty"`
	// Unfit says why the allocator cannot serve the program at all. Sizes are 0 or null then.
	Unfit string `json:"cannot_serve,omitempty"`
}

// Surely says that the job fits, and that no error of an estimate can turn that.
func (r *FittedRow) Surely() bool { return r.Fits && !r.WithinError }

// Estimated says that what is taken may be off by a share, of usable bytes that there are. It
// is for a row that serves the program.
func (r *FittedRow) Estimated(share float64, usable int64) {
	low, high := Bar(r.PeakReserved, share)
	r.Low, r.High, r.WithinError = &low, &high, low <= usable && usable < high
	r.Title = Estimated(r.Title, share)
}

// Estimated is the title of an allocator whose figures may be off by a share.
func Estimated(title string, share float64) string {
	return fmt.Sprintf("%s ±%g %%", title, math.Ceil(1000*share-1e-9)/10)
}

// Bar is the error bar of a number of bytes that may be off by a share.
func Bar(bytes int64, share float64) (low, high int64) {
	return int64(math.Round(float64(bytes) * max(0, 1-share))), int64(math.Round(float64(bytes) * (1 + share)))
}

// FitFailure is a request that does not fit.
type FitFailure struct {
	Event     int64 `json:"event"` // -1 for a buffer from before the recording
	Requested int64 `json:"requested_bytes"`
}

// FittedRank says for one allocator which rank takes the most.
type FittedRank struct {
	Key   string `json:"key"`
	Title string `json:"settings"`
	Fits  bool   `json:"fits"`
	// Binds is the recording that takes the most, and PeakReserved what it takes without a
	// limit.
	Binds        string `json:"binds"`
	PeakReserved int64  `json:"peak_reserved_bytes"`
	// Least is the most that a rank needs at least, if that was looked for: then that rank
	// binds.
	Least *int64 `json:"least_bytes,omitempty"`
	// Not is the number of recordings that do not fit.
	Not int `json:"recordings_that_do_not_fit"`
}

// FitsUnder lists the titles of the allocators under which everything fits: all ranks of a
// job, or any of several jobs.
func (f *Fitted) FitsUnder() []string {
	var titles []string
	if f.Ranks {
		for _, r := range f.Whole {
			if r.Fits {
				titles = append(titles, r.Title)
			}
		}
		return titles
	}
	for i := range f.Jobs {
		titles = append(titles, fitsUnder(f.Jobs[i].Allocators)...)
	}
	return titles
}

func fitsUnder(rows []FittedRow) []string {
	var titles []string
	for _, r := range rows {
		if r.Surely() {
			titles = append(titles, r.Title)
		}
	}
	return titles
}

// NewWhole says of each allocator which of the ranks binds.
func NewWhole(jobs []FittedJob) []FittedRank {
	var whole []FittedRank
	for i := range jobs[0].Allocators {
		row := FittedRank{Key: jobs[0].Allocators[i].Key, Title: jobs[0].Allocators[i].Title, Fits: true, PeakReserved: -1}
		for _, j := range jobs {
			r := j.Allocators[i]
			if r.PeakReserved > row.PeakReserved {
				row.PeakReserved, row.Binds = r.PeakReserved, j.Trace
			}
			if !r.Surely() {
				row.Fits = false
				row.Not++
			}
		}
		whole = append(whole, row)
	}
	return whole
}

// Write prints the verdicts as text, no line wider than 80 columns.
func (f *Fitted) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	_ = writeWrapped(out, "", f.head()) // out keeps its errors
	if f.Ranks && len(f.Jobs) > 1 {
		f.writeRanks(out)
	} else {
		for i := range f.Jobs {
			f.Jobs[i].write(out, f.Paint)
		}
	}
	if f.Ranks && len(f.Jobs) > 0 {
		f.writeWhole(out)
	}
	if f.Memory == nil && len(f.Jobs) > 0 {
		_ = writeWrapped(out, "", leastMeans)
	}
	writeFailed(out, f.Failed)
	for i := range f.Laws {
		f.Laws[i].write(out, f.Paint)
	}
	if f.Holders != nil {
		f.Holders.write(out)
	}
	return out.Flush()
}

// head says what memory there is, or what a GPU has to have beside the least that is found.
func (f *Fitted) head() string {
	if f.Memory != nil {
		return f.Memory.Line()
	}
	return "memory for tensors; a GPU needs " + f.Beside.line() + " as well"
}

func (j *FittedJob) write(out *bufio.Writer, paint Painter) {
	head := fmt.Sprintf("%s, device %d: peak allocated %s", j.Trace, j.Device, Bytes(j.PeakAllocated))
	switch {
	case j.SelfCheck.Nothing():
		head += "; no self-check: simulated figures are estimates"
	case !j.SelfCheck.Exact():
		head += fmt.Sprintf("; self-check %s / %s: simulated figures are estimates", Count(j.SelfCheck.Matched), Count(j.SelfCheck.Total))
	}
	fmt.Fprintln(out)
	_ = writeWrapped(out, "", head)
	if j.Least != nil {
		writeLeast(out, j.Least)
	} else {
		writeFitted(out, j.Allocators, paint)
	}
	if j.Failure != nil && j.Failure.Fatal {
		_ = writeWrapped(out, "", "with the request that failed; what the program would have asked for after it is not in the recording")
	}
}

// writeFitted prints a verdict for each allocator, and one for all.
func writeFitted(out *bufio.Writer, rows []FittedRow, paint Painter) {
	lines := []tableLine{{figures: []string{"takes", "spare", ""}}}
	for _, r := range rows {
		lines = append(lines, r.line())
	}
	writeLines(out, leftAligned(lines))
	paint.write(out, fitsUnder(rows), len(rows))
	for _, r := range rows {
		writeUnfit(out, r.Title, r.Unfit)
	}
}

// writeUnfit says why an allocator cannot serve a job at all, if it cannot.
func writeUnfit(out *bufio.Writer, title, unfit string) {
	if unfit != "" {
		_ = writeWrapped(out, "", title+": "+unfit)
	}
}

// rowLabel is an allocator's title, as a row of a table.
func rowLabel(title string) string { return "  " + strings.Join(strings.Fields(title), " ") }

func (r *FittedRow) line() tableLine {
	l := tableLine{label: rowLabel(r.Title)}
	how := ""
	if r.ServedBy != "" {
		how = ", by the " + r.ServedBy
	}
	if r.Unfit != "" {
		l.figures = []string{"", "", "cannot serve this job"}
		return l
	}
	if r.WithinError {
		how += ", or not: within the error"
	}
	if !r.Fits {
		at := "before the first event"
		if r.OutOfMemory.Event >= 0 {
			at = "event " + Count(r.OutOfMemory.Event)
		}
		l.figures = []string{Bytes(r.PeakReserved), "", "runs out: " + at + how}
		return l
	}
	if *r.Within < r.PeakReserved {
		how = ", gives back" + how
	}
	l.figures = []string{Bytes(*r.Within), Bytes(*r.Spare), "fits" + how}
	return l
}

// leftAligned pads the last figure of every line, which are words, to one width.
func leftAligned(lines []tableLine) []tableLine {
	width := 0
	for _, l := range lines {
		width = max(width, utf8.RuneCountInString(l.figures[len(l.figures)-1]))
	}
	for _, l := range lines {
		last := &l.figures[len(l.figures)-1]
		*last = fmt.Sprintf("%-*s", width, *last)
	}
	return lines
}

// verdict says under how many allocators something fits.
func verdict(under []string, of int) string {
	switch len(under) {
	case 0:
		return "does not fit under any allocator"
	case of:
		return "fits under every allocator"
	}
	return "fits under " + strings.Join(under, ", ")
}

// writeRanks prints one table of all ranks: what each allocator takes, those that need the
// most first.
func (f *Fitted) writeRanks(out *bufio.Writer) {
	jobs := slices.Clone(f.Jobs)
	slices.SortStableFunc(jobs, func(x, y FittedJob) int { return cmp.Compare(y.PeakAllocated, x.PeakAllocated) })
	var t Table
	cells := []string{"rank", "allocated"}
	for _, r := range jobs[0].Allocators {
		cells = append(cells, r.Title)
	}
	for _, r := range jobs[0].Least {
		cells = append(cells, r.Title)
	}
	t.Head(cells...)
	short := false
	for i := range jobs {
		j := &jobs[i]
		cells := []string{deviceName(j.Trace, j.Device), Bytes(j.PeakAllocated)}
		for _, r := range j.Allocators {
			if r.Fits {
				cells = append(cells, Bytes(*r.Within))
			} else {
				cells = append(cells, Bytes(r.PeakReserved)+" !")
				short = true
			}
		}
		for _, r := range j.Least {
			cells = append(cells, Bytes(r.Least))
		}
		t.Row(cells...)
	}
	fmt.Fprintln(out)
	_ = t.Write(out)
	if short {
		fmt.Fprintln(out, "! does not fit")
	}
}

func (f *Fitted) writeWhole(out *bufio.Writer) {
	fmt.Fprintf(out, "\nthe job, %s ranks:\n", Count(len(f.Jobs)))
	if f.Memory == nil {
		f.writeWholeLeast(out)
		return
	}
	lines := []tableLine{{figures: []string{"takes", ""}}}
	for _, r := range f.Whole {
		text := "fits"
		if !r.Fits {
			text = fmt.Sprintf("%s of %s ranks do not fit", Count(r.Not), Count(len(f.Jobs)))
		}
		lines = append(lines, tableLine{label: "  " + r.Title, figures: []string{Bytes(r.PeakReserved), text}})
	}
	writeLines(out, leftAligned(lines))
	f.writeBinds(out)
	f.Paint.write(out, f.FitsUnder(), len(f.Whole))
}

// writeBinds says which ranks need the most, under which allocators.
func (f *Fitted) writeBinds(out *bufio.Writer) {
	binds := map[string][]string{}
	var order []string
	for _, r := range f.Whole {
		if binds[r.Binds] == nil {
			order = append(order, r.Binds)
		}
		binds[r.Binds] = append(binds[r.Binds], r.Title)
	}
	for _, name := range order {
		_ = writeWrapped(out, "binds: ", fmt.Sprintf("%s (%s)", name, strings.Join(binds[name], ", ")))
	}
}
