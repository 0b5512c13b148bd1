package lifespan

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
// a chart and the peaks, and iterations, whose argument is a marker. An input
// line is one event, or a line about the state before the first:
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
		it, err := FindIterations(d, tl, marker)
		if err != nil {
			return "error: " + err.Error()
		}
		return fmt.Sprintf("%d of %s\nstarts %v\nsteady from %d: %d", it.Count, it.Source, it.Starts, it.SteadyStart, it.SteadyCount)
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

// describe prints a timeline: a row per buffer, where # is live until the
// requested end and - until the completed end.
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
