package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// CompiledAll is what `compile --json` and `table --json` print: the plans of one recording
// or of many.
type CompiledAll struct {
	Plans []Compiled `json:"plans"`
	// Failed are the recordings without a plan.
	Failed []FailedTrace `json:"failed"`
	// Missing are recordings that were to be compiled into the folder and were not, yet.
	Missing []string `json:"missing"`
	Fleet   Fleet    `json:"fleet"`
}

// FailedTrace is an input that could not be used, and why.
type FailedTrace struct {
	Trace string `json:"trace"`
	Error string `json:"error"`
}

// Fleet sums up the plans of many recordings. Sizes are bytes.
type Fleet struct {
	Recordings int `json:"recordings"` // with a plan
	Programs   int `json:"programs"`   // different ones
	// Compiled are the programs that this call compiled, and Done the recordings that were
	// done before it.
	Compiled int `json:"compiled"`
	Done     int `json:"done_before"`
	Devices  int `json:"device_count"` // of all recordings

	Worst *FleetDevice `json:"worst"` // needs the most; nil without any
	Least *FleetDevice `json:"least"` // needs the least
	// Spread is what the worst needs more than the least.
	Spread int64 `json:"spread_bytes"`
	// Imbalance is what the worst needs above the mean, as a share of the mean.
	Imbalance float64 `json:"imbalance_fraction"`
	Plans     int64   `json:"total_plan_bytes"`
	// Recorded and Saved are of devices whose recording says what was reserved.
	Recorded int64 `json:"total_recorded_peak_reserved_bytes"`
	Saved    int64 `json:"total_saved_bytes"`
}

// FleetDevice is one device of one recording.
type FleetDevice struct {
	Trace  string `json:"trace"`
	Device int    `json:"device"`
	Bytes  int64  `json:"bytes"`
}

// NewCompiledAll sums up plans, in the order in which they are given. The first recording of
// each program is the one that the others share with.
func NewCompiledAll(plans []Compiled, failed []FailedTrace) *CompiledAll {
	all := &CompiledAll{Plans: plans, Failed: failed, Missing: []string{}}
	if all.Plans == nil {
		all.Plans = []Compiled{}
	}
	if all.Failed == nil {
		all.Failed = []FailedTrace{}
	}
	f := &all.Fleet
	first := map[string]string{}
	for i := range plans {
		p := &plans[i]
		f.Recordings++
		p.SharedFrom = ""
		if from, ok := first[p.Program]; ok && p.Program != "" {
			p.SharedFrom = from
		} else {
			first[p.Program] = p.Trace
			f.Programs++
		}
		for k := range p.Devices {
			f.add(p, &p.Devices[k])
		}
	}
	if f.Worst != nil {
		f.Spread = f.Worst.Bytes - f.Least.Bytes
		if mean := float64(f.Plans) / float64(f.Devices); mean > 0 {
			f.Imbalance = float64(f.Worst.Bytes)/mean - 1
		}
	}
	return all
}

func (f *Fleet) add(p *Compiled, d *CompiledDevice) {
	f.Devices++
	f.Plans += d.PlanBytes
	if d.RecordedPeakReserved > 0 {
		f.Recorded += d.RecordedPeakReserved
		f.Saved += d.RecordedPeakReserved - d.PlanBytes
	}
	one := &FleetDevice{p.Trace, d.Device, d.PlanBytes}
	if f.Worst == nil || one.Bytes > f.Worst.Bytes {
		f.Worst = one
	}
	if f.Least == nil || one.Bytes < f.Least.Bytes {
		f.Least = one
	}
}

// mostPrograms is how many rows the table of programs has: what fits one screen. The others,
// which need less, are one row.
const mostPrograms = 20

// mostFailed is how many recordings that failed are named as text; --json has all.
const mostFailed = 50

// fleetRow is one device of all recordings of one program.
type fleetRow struct {
	example    string
	recordings int
	device     CompiledDevice
}

// Write prints one table: a row for each program, what needs the most first, and below it
// what holds for all of them.
func (all *CompiledAll) Write(w io.Writer) error {
	out := bufio.NewWriter(w) // keeps its errors
	var died ended
	for i := range all.Plans {
		var failures []*Failure
		for k := range all.Plans[i].Devices {
			failures = append(failures, all.Plans[i].Devices[k].Failure)
		}
		died.count(all.Plans[i].Trace, failures...)
	}
	_ = died.write(out)
	if rows := all.rows(); len(rows) > 0 {
		var t Table
		t.Row("program of", "recordings", "recorded", "plan", "gap", "saved", "waits")
		for i := range rows[:min(len(rows), mostPrograms)] {
			rows[i].write(&t)
		}
		_ = t.Write(out)
		if slices.ContainsFunc(rows, func(r fleetRow) bool { return r.unpaid() }) {
			fmt.Fprintln(out, "* does not pay: runs are served without it")
		}
		if more := len(rows) - mostPrograms; more > 0 {
			fmt.Fprintf(out, "and %s more programs, which need less (--json has all)\n", Count(more))
		}
		fmt.Fprintln(out)
	}
	for _, line := range all.Fleet.lines() {
		_ = writeWrapped(out, "", line)
	}
	writeFailed(out, all.Failed)
	writeMissing(out, all.Missing)
	return out.Flush()
}

// writeFailed names inputs that could not be used, and why.
func writeFailed(w io.Writer, failed []FailedTrace) {
	for _, f := range failed[:min(len(failed), mostFailed)] {
		fmt.Fprintf(w, "failed: %s\n", PrintableLines(f.line()))
	}
	if more := len(failed) - mostFailed; more > 0 {
		fmt.Fprintf(w, "and %s more that failed (--json has all)\n", Count(more))
	}
}

// writeMissing names what no shard has compiled yet.
func writeMissing(w io.Writer, missing []string) {
	for _, name := range missing[:min(len(missing), mostFailed)] {
		fmt.Fprintf(w, "not compiled yet: %s\n", Printable(name))
	}
	if more := len(missing) - mostFailed; more > 0 {
		fmt.Fprintf(w, "and %s more that are not compiled yet (--json has all)\n", Count(more))
	}
}

// line names the input once, if the error begins with it.
func (f *FailedTrace) line() string {
	if strings.HasPrefix(f.Error, f.Trace+":") {
		return f.Error
	}
	return f.Trace + ": " + f.Error
}

// rows are the devices of all programs, those that need the most first.
func (all *CompiledAll) rows() []fleetRow {
	type key struct {
		program string
		device  int
	}
	index := map[key]int{}
	var rows []fleetRow
	for i := range all.Plans {
		p := &all.Plans[i]
		for k := range p.Devices {
			at, ok := index[key{p.Program, k}]
			if !ok || p.Program == "" {
				at = len(rows)
				index[key{p.Program, k}] = at
				name := filepath.Base(p.Trace)
				if len(p.Devices) > 1 {
					name += fmt.Sprintf(", device %d", p.Devices[k].Device)
				}
				rows = append(rows, fleetRow{example: name, device: p.Devices[k]})
			}
			rows[at].recordings++
		}
	}
	slices.SortStableFunc(rows, func(x, y fleetRow) int { return cmp.Compare(y.device.PlanBytes, x.device.PlanBytes) })
	return rows
}

// unpaid says that the plan advises against itself.
func (r *fleetRow) unpaid() bool { return r.device.Judged != nil && !r.device.Judged.Pays }

func (r *fleetRow) write(t *Table) {
	d := &r.device
	recorded, saved := "", ""
	if d.RecordedPeakReserved > 0 {
		recorded, saved = Bytes(d.RecordedPeakReserved), Percent(d.saving())
	}
	plan := Bytes(d.PlanBytes)
	if r.unpaid() {
		plan += " *"
	}
	t.Row(r.example, Count(r.recordings), recorded, plan, Percent(d.Gap), saved, Count(d.Waits.Count))
}

// lines are what holds for all recordings.
func (f *Fleet) lines() []string {
	made := fmt.Sprintf("%s of %s", count(f.Recordings, "plan"), count(f.Programs, "program"))
	if f.Compiled > 0 || f.Done > 0 {
		made += fmt.Sprintf(": compiled %s now, %s done before", count(f.Compiled, "program"), count(f.Done, "recording"))
	}
	lines := []string{made}
	if f.Worst == nil {
		return lines
	}
	lines = append(lines, fmt.Sprintf("worst rank: %s with %s", f.Worst.name(), Bytes(f.Worst.Bytes)))
	if f.Devices > 1 {
		lines = append(lines, fmt.Sprintf("spread: %s from %s of %s up; imbalance: the worst needs %s above the mean",
			Bytes(f.Spread), Bytes(f.Least.Bytes), f.Least.name(), Percent(f.Imbalance)))
	}
	if f.Recorded > 0 {
		lines = append(lines, fmt.Sprintf("saved: %s of %s that were reserved (%s)", Bytes(f.Saved), Bytes(f.Recorded), Percent(float64(f.Saved)/float64(f.Recorded))))
	}
	return lines
}

func (d *FleetDevice) name() string {
	return deviceName(d.Trace, d.Device)
}

// count is a number of things: "1 plan", "2 plans".
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return Count(n) + " " + what
}
