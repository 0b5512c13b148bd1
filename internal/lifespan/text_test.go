package lifespan

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

var update = flag.Bool("update", false, "rewrite the expected outputs in testdata")

// TestText runs the scripts in testdata. A script is a list of cases
//
//	command [argument]
//	input lines
//	----
//	expected output
//
// with a blank line after each. The commands are build, which prints buffers,
// a chart and the peaks; iterations, whose argument is a marker; and periodic,
// which prints the steady state of the iterations that end at the times in its
// argument, all but the first of which are steady. An input line is one event,
// or a line about the state before the first:
//
//	alloc NAME SIZE [STREAM]   request NAME   complete NAME   free NAME (both)
//	initial NAME SIZE [pending]   other   start MARK   end MARK
func TestText(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in testdata (%v)", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, c := range strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n\n") {
		head, want, ok := strings.Cut(c, "----")
		if !ok {
			t.Fatalf("case without a ---- line:\n%s", c)
		}
		got := runCase(t, head)
		if want = strings.TrimSpace(want); got != want && !*update {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", head, got, want)
		}
		fmt.Fprintf(&out, "%s----\n%s\n\n", head, got)
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.TrimSuffix(out.String(), "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func runCase(t *testing.T, head string) string {
	lines := strings.Split(strings.TrimSpace(head), "\n")
	for strings.HasPrefix(lines[0], "#") {
		lines = lines[1:]
	}
	command, argument, _ := strings.Cut(lines[0], " ")
	d, names := parseDevice(t, lines[1:])
	tl, err := Build(d)
	if err != nil {
		return "error: " + err.Error()
	}
	switch command {
	case "build":
		return describe(tl, names)
	case "iterations":
		var marker *regexp.Regexp
		if argument != "" {
			marker = regexp.MustCompile(argument)
		}
		it, err := FindIterations(&trace.Stacks{}, d, tl, marker)
		if err != nil {
			return "error: " + err.Error()
		}
		return fmt.Sprintf("%d of %s\nstarts %v\nsteady from %d: %d", it.Count, it.Source, it.Starts, it.SteadyStart, it.SteadyCount)
	}
	if command == "periodic" {
		return describePeriodic(t, tl, argument, names)
	}
	t.Fatalf("unknown command %q", command)
	return ""
}

// parseDevice reads input lines. names gives an address its name back.
func parseDevice(t *testing.T, lines []string) (d *trace.Device, names map[uint64]string) {
	d = &trace.Device{Ordinal: 2, Initial: []trace.Segment{{Stream: 7}}}
	names = map[uint64]string{}
	for _, line := range lines {
		f := append(strings.Fields(line), "", "", "")
		addr := uint64(0)
		for i, c := range f[1] {
			addr += uint64(c) << (8 * i)
		}
		event := func(a trace.Action) {
			names[addr] = f[1]
			d.Events = append(d.Events, trace.Event{Action: a, Addr: addr, Size: number(t, f[2]), Stream: uint64(number(t, f[3]))})
		}
		switch f[0] {
		case "alloc":
			event(trace.ActionAlloc)
		case "request":
			event(trace.ActionFreeRequested)
		case "complete":
			event(trace.ActionFreeCompleted)
		case "free":
			event(trace.ActionFreeRequested)
			event(trace.ActionFreeCompleted)
		case "other":
			event(trace.ActionOther)
		case "initial":
			names[addr] = f[1]
			b := trace.Block{Address: addr, Requested: number(t, f[2]), State: trace.BlockAllocated}
			if f[3] == "pending" {
				b.State = trace.BlockPendingFree
			}
			d.Initial[0].Blocks = append(d.Initial[0].Blocks, b, trace.Block{Address: addr + 1<<40})
		case "start", "end":
			d.Annotations = append(d.Annotations, trace.Annotation{Name: f[1], End: f[0] == "end", At: trace.Time(len(d.Events))})
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	return d, names
}

func number(t *testing.T, s string) trace.Bytes {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return trace.Bytes(n)
}

// describe prints a timeline with a row per buffer. A # is a time up to the requested
// end, a - one up to the completed end.
func describe(tl *Timeline, names map[uint64]string) string {
	var out strings.Builder
	for i := range tl.Buffers {
		b := &tl.Buffers[i]
		fmt.Fprintf(&out, "%-2s |", names[b.Addr])
		for at := trace.Time(0); at < max(1, tl.Events); at++ {
			out.WriteString(cell(b, at))
		}
		fmt.Fprintf(&out, "| [%d, %d, %d) %d in %d, stream %d", b.Start, b.RequestedEnd, b.CompletedEnd, b.Requested, b.Size, b.Stream)
		if b.Initial {
			out.WriteString(", initial")
		}
		if b.Resident {
			out.WriteString(", resident")
		}
		out.WriteString("\n")
	}
	fmt.Fprintf(&out, "allocated %v peak %d at %d\n", tl.Load(EndRequested), tl.PeakAllocated.Bytes, tl.PeakAllocated.At)
	fmt.Fprintf(&out, "active    %v peak %d at %d", tl.Load(EndCompleted), tl.PeakActive.Bytes, tl.PeakActive.At)
	return out.String()
}

func cell(b *Buffer, at trace.Time) string {
	switch {
	case at < b.Start || at >= b.CompletedEnd:
		return "."
	case at < b.RequestedEnd:
		return "#"
	}
	return "-"
}

// describePeriodic prints a row per slot. A # is a time up to the requested end, a -
// one up to the completed end. What follows the bar is the next pass.
func describePeriodic(t *testing.T, tl *Timeline, ends string, names map[uint64]string) string {
	starts := []trace.Time{0}
	for _, f := range strings.Fields(ends) {
		starts = append(starts, trace.Time(number(t, f)))
	}
	p, why := FindPeriodic(tl, Iterations{Starts: starts, Count: len(starts) - 1, SteadyStart: starts[1], SteadyCount: len(starts) - 2}, EndRequested)
	if p == nil {
		return "none: " + why
	}
	var out strings.Builder
	fmt.Fprintf(&out, "prologue [0, %d), passes to %d, %d B of strays\n", p.Cut, p.End, p.StrayBytes)
	for _, s := range p.Prologue {
		fmt.Fprintf(&out, "%-2s ends %d, %d%s\n", names[tl.Buffers[s.Buffer].Addr], s.RequestedEnd, s.CompletedEnd, role(s.Cell, s.Resident, "resident"))
	}
	for x, b := range p.Bodies {
		fmt.Fprintf(&out, "body %d, in %d passes\n", x, b.Occurrences)
		for _, s := range slices.Concat(b.Entering, b.Slots) {
			var row []byte
			for at := range 2 * b.Length {
				row = append(row, cell(&Buffer{Start: trace.Time(s.Start), RequestedEnd: trace.Time(s.RequestedEnd), CompletedEnd: trace.Time(s.CompletedEnd)}, trace.Time(at))...)
			}
			fmt.Fprintf(&out, "   %s|%s %d to %d in %d, in %d%s\n", row[:b.Length], row[b.Length:], s.Least, s.Requested, s.Size, s.Occurrences, role(s.Cell, s.Stray, "stray"))
		}
	}
	for _, pass := range p.Passes {
		fmt.Fprintf(&out, "pass from %d of body %d:", pass.First, pass.Body)
		for i := range p.Bodies[pass.Body].Slots {
			fmt.Fprintf(&out, " %d", pass.Present[i/64]>>(i%64)&1)
		}
		out.WriteString("\n")
	}
	return strings.TrimSpace(out.String())
}

func role(cell int32, special bool, name string) string {
	switch {
	case cell >= 0:
		return fmt.Sprintf(", cell %d", cell)
	case special:
		return ", " + name
	}
	return ""
}
