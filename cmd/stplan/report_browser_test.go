package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/page"
	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
)

// reported compiles a recording and writes its report.
func reported(t *testing.T, recording string) (plan, page string) {
	t.Helper()
	dir := t.TempDir()
	plan, page = filepath.Join(dir, "run.bin"), filepath.Join(dir, "run.html")
	runOK(t, "compile", recording, "-o", plan, "--time-limit", "20s", "-q")
	runOK(t, "report", plan, "--trace", recording, "-o", page, "-q")
	return plan, page
}

// runOK runs a command that has to succeed, and returns what it prints.
func runOK(t *testing.T, args ...string) []byte {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := execute(args, strings.NewReader(""), &stdout, &stderr); code != exitOK {
		t.Fatalf("%v: exit code %d: %s", args, code, stderr.String())
	}
	return stdout.Bytes()
}

// TestReportShowsWhatTheCommandsPrint opens reports in a browser: every figure on the page
// is what diff, peak and replay print with --json, the flame graph adds up to the peak, keys and
// the mouse work, and nothing is asked of a network.
func TestReportShowsWhatTheCommandsPrint(t *testing.T) {
	b := openBrowser(t, 1400, 1000)
	for _, name := range []string{"resnet50", "lora-oom"} {
		recording := filepath.Join("..", "..", "examples", name, name+".pickle.gz")
		plan, page := reported(t, recording)
		b.open(page)
		figures := printed(t, plan, recording)
		demandFigures(t, b, name, figures)
		demandFlame(t, b, name, figures)
		demandControls(t, b, name)
	}
	for _, p := range b.problems {
		t.Errorf("the page: %s", p)
	}
}

// printed is what peak, diff and replay print with --json.
func printed(t *testing.T, plan, recording string) map[string]any {
	t.Helper()
	figures := map[string]any{}
	var peaked struct{ Devices []any }
	decode(t, runOK(t, "peak", recording, "--json", "-q"), &peaked)
	figures["peak"] = peaked.Devices[0]
	var diff any
	decode(t, runOK(t, "diff", plan, "--trace", recording, "--json", "-q"), &diff)
	figures["diff"] = diff
	if simdevice.Built {
		var pool any
		decode(t, runOK(t, "replay", "--no-plan", recording, "--json", "-q"), &pool)
		figures["pool"] = pool
	}
	return figures
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// demandFigures compares each cell of the page that names a figure.
func demandFigures(t *testing.T, b *browser, name string, figures map[string]any) {
	var cells [][3]string
	b.eval(`Array.from(document.querySelectorAll("[data-path]"), (e) => [e.dataset.path, e.dataset.format, e.textContent])`, &cells)
	if len(cells) < 40 {
		t.Errorf("%s: only %d figures on the page", name, len(cells))
	}
	for _, c := range cells {
		if want := formatted(lookUp(figures, c[0]), c[1]); c[2] != want {
			t.Errorf("%s: %s is %q on the page, expected %q", name, c[0], c[2], want)
		}
	}
	var curves [][2]string
	b.eval(`Array.from(document.querySelectorAll("[data-curve]"), (e) => [e.dataset.curve, e.textContent])`, &curves)
	of := map[string]string{"allocated": "diff.plan.peak_allocated_bytes", "recorded": "diff.recorded.peak_reserved_bytes", "native": "diff.simulated.native.peak_reserved_bytes",
		"expandable": "diff.simulated.expandable.peak_reserved_bytes", "plan": "diff.plan.peak_reserved_bytes"}
	if figures["pool"] != nil {
		of["pool"] = "pool.peak_reserved_bytes"
	}
	seen := 0
	for _, c := range curves {
		path, known := of[c[0]]
		if !known {
			continue
		}
		seen++
		if want := formatted(lookUp(figures, path), "bytes"); c[1] != want {
			t.Errorf("%s: the peak of curve %s is %q, and %s is %q", name, c[0], c[1], path, want)
		}
	}
	if seen != len(of) {
		t.Errorf("%s: %d curves with a figure, expected %d: %v", name, seen, len(of), curves)
	}
}

// lookUp finds a value by a path such as diff.plan.waits or peak.lines.0.bytes.
func lookUp(v any, path string) any {
	for key := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

// formatted is a figure as the commands print it.
func formatted(v any, format string) string {
	n, ok := v.(float64)
	switch {
	case !ok:
		return ""
	case format == "bytes":
		return report.Bytes(int64(n))
	case format == "percent":
		return report.Percent(n)
	}
	return report.Count(int64(n))
}

func demandFlame(t *testing.T, b *browser, name string, figures map[string]any) {
	var line string
	b.eval(`document.getElementById("flame-line").textContent`, &line)
	want := fmt.Sprintf("allocated: %[1]s of %[1]s, 100.00 %%", formatted(lookUp(figures, "peak.allocated_bytes"), "bytes"))
	if line != want {
		t.Errorf("%s: the flame graph says %q, expected %q", name, line, want)
	}
}

// demandControls: keys move the view and back, the search finds, a click shows a buffer.
func demandControls(t *testing.T, b *browser, name string) {
	x, y := b.middle("plan")
	before := b.picture()
	b.key("+")
	if b.picture() == before {
		t.Errorf("%s: + does not zoom", name)
	}
	b.key("0")
	if b.picture() != before {
		t.Errorf("%s: 0 does not show all again", name)
	}
	b.key("c")
	if b.picture() == before {
		t.Errorf("%s: c does not change the colours", name)
	}
	var found string
	b.eval(`(async () => { const s = document.getElementById("search"); s.value = "parameters"; s.dispatchEvent(new Event("input"));
		await new Promise((r) => setTimeout(r, 400)); return document.getElementById("found").textContent; })()`, &found)
	if !strings.Contains(found, "the largest") {
		t.Errorf("%s: the search says %q", name, found)
	}
	b.eval(`(() => { const s = document.getElementById("search"); s.value = ""; s.dispatchEvent(new Event("input")); })()`, nil)
	for dy := -100.0; dy <= 150; dy += 10 { // some row of the middle column has a buffer
		b.mouse("mousePressed", x, y+dy, 0)
		b.mouse("mouseReleased", x, y+dy, 0)
		var details string
		b.eval(`document.getElementById("details").textContent`, &details)
		if strings.Contains(details, "In the plan") {
			return
		}
	}
	t.Errorf("%s: no click shows a buffer", name)
}

// picture is what the plan's canvas shows, once it is drawn.
func (b *browser) picture() string {
	var data string
	b.eval(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(document.getElementById("plan").toDataURL()))))`, &data)
	return data
}

const (
	slowestOpening  = 2 * time.Second
	fewestFrames    = 30 // a second
	attemptsAtSpeed = 3  // other work of the machine spoils some
)

// largeRecordings are the larger recordings beside the clone, if they are there.
func largeRecordings() (paths []string) {
	for _, path := range []string{"../../../shared/traces/qwen3-moe-eager.pickle.gz", "../../../shared/traces-third-party/grpo.pickle.gz"} {
		if _, err := os.Stat(path); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// TestReportIsQuick: the largest recordings open within two seconds, and the pictures move
// at 30 frames a second while most of the buffers are in view. Their figures are what the
// commands print.
func TestReportIsQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("times a browser")
	}
	recordings := largeRecordings()
	if len(recordings) == 0 {
		t.Skip("no larger recordings beside the clone, in ../shared/traces")
	}
	findBrowser(t)
	for _, recording := range recordings {
		name := strings.TrimSuffix(filepath.Base(recording), ".pickle.gz")
		plan, page := reported(t, recording)
		info, err := os.Stat(page)
		if err != nil {
			t.Fatal(err)
		}
		var opening time.Duration
		var panning, zooming rate
		for range attemptsAtSpeed {
			b := openBrowser(t, 1400, 1000)
			opening = b.open(page)
			panning, zooming = b.framesPanning(), b.framesZooming()
			if opening < slowestOpening && min(panning.drawn, zooming.drawn) >= fewestFrames {
				break
			}
		}
		t.Logf("%s: %s, opens in %v, pans at %v, zooms at %v", name, report.Bytes(info.Size()), opening, panning, zooming)
		if opening >= slowestOpening {
			t.Errorf("%s: opens in %v, expected less than %v", name, opening, slowestOpening)
		}
		if min(panning.drawn, zooming.drawn) < fewestFrames {
			t.Errorf("%s: %v panning and %v zooming, expected %d", name, panning, zooming, fewestFrames)
		}
		b := openBrowser(t, 1400, 1000)
		b.open(page)
		figures := printed(t, plan, recording)
		demandFigures(t, b, name, figures)
		demandFlame(t, b, name, figures)
	}
}

// framesPanning drags the plan to and fro, and counts the frames that the browser draws.
func (b *browser) framesPanning() rate {
	x, y := b.middle("plan")
	b.key("+")
	b.count()
	b.mouse("mousePressed", x, y, 0)
	for i := range 120 {
		dx := float64(i % 60)
		if i%120 >= 60 {
			dx = 60 - dx
		}
		b.mouse("mouseMoved", x+4*dx, y+dx/4, 0)
	}
	r := b.counted()
	b.mouse("mouseReleased", x, y, 0)
	return r
}

func (b *browser) framesZooming() rate {
	x, y := b.middle("plan")
	b.key("0")
	b.count()
	for i := range 80 {
		b.mouse("mouseWheel", x, y, []float64{-20, 20}[i/40])
	}
	return b.counted()
}

// rate is how many frames a second the browser drew, and how many its main thread could
// draw, by its CPU time: that does not depend on what else the machine does.
type rate struct{ drawn, possible float64 }

func (r rate) String() string {
	return fmt.Sprintf("%.0f frames a second (%.0f by CPU time)", r.drawn, r.possible)
}

// count begins to count frames.
func (b *browser) count() {
	b.call("Performance.enable", map[string]any{"timeDomain": "threadTicks"}, nil)
	b.began = b.taskSeconds()
	b.eval(`window.frames_ = 0, window.begun_ = performance.now(), (function next() { window.frames_++; window.counting_ = requestAnimationFrame(next); })(), 0`, nil)
}

// counted is the rate since count.
func (b *browser) counted() rate {
	var counted struct{ Frames, Seconds float64 }
	b.eval(`(cancelAnimationFrame(window.counting_), {frames: window.frames_, seconds: (performance.now() - window.begun_) / 1000})`, &counted)
	return rate{counted.Frames / counted.Seconds, counted.Frames / max(1e-3, b.taskSeconds()-b.began)}
}

// taskSeconds is the CPU time of the page's main thread.
func (b *browser) taskSeconds() float64 {
	var out struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	b.call("Performance.getMetrics", nil, &out)
	for _, m := range out.Metrics {
		if m.Name == "TaskDuration" {
			return m.Value
		}
	}
	b.t.Fatal("the browser does not say what CPU time it took")
	return 0
}

// TestMillionBuffersMove: a page of a million buffers pans and zooms.
func TestMillionBuffersMove(t *testing.T) {
	if testing.Short() {
		t.Skip("times a browser")
	}
	findBrowser(t)
	path := filepath.Join(t.TempDir(), "million.html")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	p := page.Page{Trace: "million", Plan: "million.bin", Devices: []*page.Device{manyBuffers(t, 1<<20, 3000)}}
	if err := p.WriteHTML(f); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	var opening time.Duration
	var panning, zooming rate
	for range attemptsAtSpeed {
		b := openBrowser(t, 1400, 1000)
		opening = b.open(path)
		panning, zooming = b.framesPanning(), b.framesZooming()
		if min(panning.possible, zooming.possible) >= fewestFrames {
			break
		}
	}
	t.Logf("a million buffers: %s, opens in %v, pans at %v, zooms at %v", report.Bytes(info.Size()), opening, panning, zooming)
	if min(panning.possible, zooming.possible) < fewestFrames {
		t.Errorf("%v panning and %v zooming, expected %d by CPU time", panning, zooming, fewestFrames)
	}
}

// manyBuffers is a device with n buffers of different sizes, live of them at a time.
func manyBuffers(t *testing.T, n, live int) *page.Device {
	t.Helper()
	const largest = 1 << 22 // bytes between two places
	d := trace.Device{Final: []trace.Segment{}}
	size := func(i int) trace.Bytes { return trace.Bytes(512 * (1 + (i*7919)%(largest/512))) }
	reserved := trace.Bytes(live) * largest
	d.Events = append(d.Events, trace.Event{Action: trace.ActionSegmentAlloc, Addr: largest, Size: reserved, Stack: trace.None})
	dev := planfile.Device{Mode: planfile.ModeRecorded, End: planfile.EndRequested, Alignment: 512, ArenaBytes: uint64(reserved)}
	for i := range n {
		addr := uint64(largest) * uint64(1+i%live)
		if i >= live {
			d.Events = append(d.Events, trace.Event{Action: trace.ActionFreeRequested, Addr: addr, Size: size(i - live), Stack: trace.None})
		}
		d.Events = append(d.Events, trace.Event{Action: trace.ActionAlloc, Addr: addr, Size: size(i), Stack: trace.None})
		dev.Slots = append(dev.Slots, planfile.Slot{Offset: addr - largest, Size: uint64(size(i))})
	}
	tr := &trace.Trace{Name: "million", Devices: []trace.Device{d}}
	r, at, err := readPeak(tr, &tr.Devices[0], nil, peak.Auto)
	if err != nil {
		t.Fatal(err)
	}
	top := r.Timeline.PeakAllocated
	dev.Certificate = planfile.Certificate{Kind: planfile.BoundLoad, LowerBound: uint64(top.Bytes), At: uint64(top.At)}
	out, err := page.Build(page.Input{Recording: r, At: at, Plan: &dev,
		Curves:  []page.Curve{page.Allocated(r.Timeline.Load(lifespan.EndRequested)), page.Recorded(&tr.Devices[0], "recorded")},
		Figures: page.Figures{Peak: peakedDevice(r, at, defaultTop), Diff: report.Compared{Simulated: report.Simulated{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var screenshots = flag.String("screenshots", "", "folder to write pictures of a report to, as docs has them")

// TestScreenshots draws reports for docs/report.md: in light, in dark by line of code with a
// buffer chosen, and the pictures of the larger recordings.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("-screenshots names no folder")
	}
	folder, err := filepath.Abs(*screenshots)
	if err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, 1360, 1180)
	draw := func(recording string) {
		recording, err := filepath.Abs(recording)
		if err != nil {
			t.Fatal(err)
		}
		t.Chdir(t.TempDir())
		runOK(t, "compile", recording, "-o", "run.bin", "-q")
		runOK(t, "report", "run.bin", "--trace", recording, "-q")
		b.open("run.html")
	}
	b.scheme("light")
	back, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	draw("../../examples/gpt2-xl-ckpt/gpt2-xl-ckpt.pickle.gz")
	b.save(filepath.Join(folder, "report-light.png"))
	t.Chdir(back)
	b.scheme("dark")
	draw("../../examples/lora-oom/lora-oom.pickle.gz")
	b.scrollTo("time-title")
	b.key("c")
	b.chooseBuffer("activations")
	b.save(filepath.Join(folder, "report-dark.png"))
	b.scheme("light")
	t.Chdir(back)
	for _, recording := range largeRecordings() {
		t.Chdir(back)
		draw(recording)
		b.scrollTo("time-title")
		b.save(filepath.Join(folder, "report-"+strings.TrimSuffix(filepath.Base(recording), ".pickle.gz")+".png"))
	}
}

// scrollTo brings an element to the top of the window.
func (b *browser) scrollTo(id string) {
	b.t.Helper()
	b.eval(fmt.Sprintf(`window.scrollTo(0, window.scrollY + document.getElementById(%q).getBoundingClientRect().top - 10)`, id), nil)
}

// chooseBuffer clicks along the picture of what was recorded until a buffer of the category
// shows its details.
func (b *browser) chooseBuffer(category string) {
	b.t.Helper()
	var r [4]float64
	b.eval(`(() => { const r = document.getElementById("recorded").getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; })()`, &r)
	for y := r[1] + 30; y < r[1]+r[3]-30; y += 3 {
		b.mouse("mousePressed", r[0]+r[2]*0.93, y, 0)
		b.mouse("mouseReleased", r[0]+r[2]*0.93, y, 0)
		var details string
		b.eval(`document.getElementById("details").textContent`, &details)
		if strings.Contains(details, "Category"+category) {
			return
		}
	}
	b.t.Errorf("no click shows a buffer of %s", category)
}

func (b *browser) save(name string) {
	b.t.Helper()
	b.picture() // what is drawn later is drawn now
	if err := os.WriteFile(name, b.screenshot(), 0o666); err != nil {
		b.t.Fatal(err)
	}
}
