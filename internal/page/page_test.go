package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// example is what a page shows of a recording, with a plan of the given mode.
func example(t *testing.T, name string, mode planfile.Mode) (Input, *Device) {
	t.Helper()
	tr, err := trace.ReadFile(filepath.Join("..", "..", "examples", name, name+".pickle.gz"), trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := compile.Compile(context.Background(), tr, compile.Options{Mode: mode, Producer: "test"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := peak.Read(tr, &tr.Devices[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	at, err := r.At(peak.Auto)
	if err != nil {
		t.Fatal(err)
	}
	in := Input{
		Recording: r, At: at, Plan: &p.Devices[0],
		Curves:  []Curve{Allocated(r.Timeline.Load(lifespan.EndRequested)), Recorded(r.Device, "recorded")},
		Figures: Figures{Diff: report.Compared{Trace: "</script><b>", Simulated: report.Simulated{}}},
	}
	d, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	return in, d
}

var examples = map[string]planfile.Mode{
	"lora-oom": planfile.ModeRecorded, "resnet50": planfile.ModePeriodic, "evaluation": planfile.ModePeriodic,
}

// rect is a buffer in a picture.
type rect struct{ start, end, low, high uint32 }

// demandApart sweeps over time: what lives at once must not overlap.
func demandApart(t *testing.T, name string, all []rect) {
	t.Helper()
	slices.SortFunc(all, func(a, b rect) int { return cmp.Compare(a.start, b.start) })
	var live []rect // by low
	for _, r := range all {
		live = slices.DeleteFunc(live, func(o rect) bool { return o.end <= r.start })
		k, _ := slices.BinarySearchFunc(live, r.low, func(o rect, low uint32) int { return cmp.Compare(o.low, low) })
		if k > 0 && live[k-1].high > r.low || k < len(live) && live[k].low < r.high {
			t.Fatalf("%s: %+v overlaps one of %+v", name, r, live[max(0, k-1):min(k+1, len(live))])
		}
		live = slices.Insert(live, k, r)
	}
}

// TestPicturesHoldNoOverlaps: in both pictures no two buffers overlap, buffers of the plan lie
// in its arena, and recorded ones in a segment that lives as long as they do.
func TestPicturesHoldNoOverlaps(t *testing.T) {
	for name, mode := range examples {
		_, d := example(t, name, mode)
		var plan, recorded, segments []rect
		for i := range d.places {
			p := &d.places[i]
			segments = append(segments, rect{uint32(p.start), uint32(p.end), units(p.place), units(p.place + p.size)})
		}
		b := &d.buffers
		for i := range b.start {
			if a := b.place[i]; a != nowhere {
				plan = append(plan, rect{b.start[i], b.freed[i], a, a + b.units[i]})
			}
			if a := b.recorded[i]; a != nowhere {
				r := rect{b.start[i], b.reusable[i], a, a + b.units[i]}
				recorded = append(recorded, r)
				inside := func(s rect) bool { return s.start <= r.start && s.end >= r.end && s.low <= r.low && s.high >= r.high }
				if !slices.ContainsFunc(segments, inside) {
					t.Fatalf("%s: buffer %d at %+v lies in no segment", name, i, r)
				}
			}
		}
		demandApart(t, name+": plan", plan)
		demandApart(t, name+": recorded", recorded)
		demandApart(t, name+": segments", segments)
		if highest := slices.MaxFunc(plan, func(a, b rect) int { return cmp.Compare(a.high, b.high) }); highest.high > d.Arena {
			t.Errorf("%s: %+v ends above the arena of %d", name, highest, d.Arena)
		}
		if len(plan)+d.Counts.OffPlan != d.Counts.Shown || len(recorded) < d.Counts.Shown-1 {
			t.Errorf("%s: %d in the plan, %d recorded, %+v", name, len(plan), len(recorded), d.Counts)
		}
		if most := d.curves[1].Peak(); d.Held < units(most) || d.Held > units(most)+units(most)/2 {
			t.Errorf("%s: the picture of what was recorded is %d units high, and %d were reserved", name, d.Held, units(most))
		}
	}
}

// TestColumnsAddUp reads the page's own bytes: what lives at the peak is what was allocated,
// and so is the sum of the flame graph.
func TestColumnsAddUp(t *testing.T) {
	for name, mode := range examples {
		in, d := example(t, name, mode)
		c := decoded(t, d)
		var live trace.Bytes
		for i, start := range c["start"] {
			if int64(start) <= d.Peak.Event && int64(start+c["life"][i]) > d.Peak.Event && c["kind"][i]&15 != uint32(len(peak.Categories())) {
				live += trace.Bytes(c["units"][i]) * trace.Granularity
			}
		}
		var flames trace.Bytes
		for i, low := range c["flame_low"] {
			flames += trace.Bytes(uint64(low)|uint64(c["flame_high"][i])<<32) * trace.Granularity
			if int(c["flame_stack"][i]) >= len(d.Stacks) || int(c["flame_category"][i]) >= len(d.Names.Categories) {
				t.Fatalf("%s: row %d of the flame graph has no stack or category", name, i)
			}
		}
		if live != in.At.Allocated || flames != in.At.Allocated {
			t.Errorf("%s: %d B live and %d B in the flame graph, expected %d", name, live, flames, in.At.Allocated)
		}
		for i, k := range c["stack"] {
			if int(k) >= len(d.Stacks) || d.Stacks[k].Line >= len(d.Lines) {
				t.Fatalf("%s: buffer %d has stack %d of %d", name, i, k, len(d.Stacks))
			}
		}
	}
}

// decoded are the columns of a device, by an own reader of its bytes.
func decoded(t *testing.T, d *Device) map[string][]uint32 {
	t.Helper()
	var blob bytes.Buffer
	if err := d.writeBlob(&blob); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(&blob)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint32(data)
	var head struct{ Columns []columnHeader }
	if err := json.Unmarshal(data[4:4+n], &head); err != nil {
		t.Fatal(err)
	}
	data = data[4+n:]
	out := map[string][]uint32{}
	for _, h := range head.Columns {
		values := make([]uint32, h.Count)
		for i := range values {
			for k := range 4 {
				values[i] |= uint32(data[k*h.Count+i]) << (8 * k)
			}
			if h.Form == rising && i > 0 {
				values[i] += values[i-1]
			}
		}
		out[h.Name], data = values, data[4*h.Count:]
	}
	if len(data) != 0 {
		t.Errorf("%d bytes after the columns", len(data))
	}
	return out
}

// TestBoundBinds: at the event of the bound, what has a place in the plan takes what the bound
// says. A plan of merged iterations may need more than each of them.
func TestBoundBinds(t *testing.T) {
	for name, mode := range examples {
		_, d := example(t, name, mode)
		b, load := &d.buffers, uint64(0)
		for i, start := range b.start {
			if int64(start) <= d.Bound.Event && int64(b.freed[i]) > d.Bound.Event && b.place[i] != nowhere {
				load += uint64(b.units[i]) * uint64(trace.Granularity)
			}
		}
		if mode == planfile.ModeRecorded && load != d.Bound.Bytes || load > d.Bound.Bytes || load < d.Bound.Bytes-d.Bound.Bytes/20 {
			t.Errorf("%s: %d B are live at event %d, and the bound is %d", name, load, d.Bound.Event, d.Bound.Bytes)
		}
	}
}

// TestCurveKeepsItsPeak: a curve of few points has those of the whole curve, its largest
// value among them.
func TestCurveKeepsItsPeak(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var c Curve
		at := trace.Time(0)
		for range 1 + random.IntN(2000) {
			at += trace.Time(1 + random.IntN(50))
			c.Set(at, trace.Bytes(random.IntN(1000)))
		}
		n := 2 * (1 + random.IntN(200))
		few := c.bounded(n)
		if len(few) > n && len(few) != len(c.points) {
			t.Fatalf("%d points, expected at most %d", len(few), n)
		}
		var most trace.Bytes
		for i, p := range few {
			most = max(most, p.v)
			if i > 0 && few[i-1].at >= p.at || !slices.Contains(c.points, p) {
				t.Fatalf("point %d, %+v, is not of the curve or out of order", i, p)
			}
		}
		if most != c.Peak() || few[len(few)-1] != c.points[len(c.points)-1] {
			t.Fatalf("peak %d and end %+v, expected %d and %+v", most, few[len(few)-1], c.Peak(), c.points[len(c.points)-1])
		}
	}
}

// TestPageAsksForNothing: a page names no other file, its figures are JSON, and no name in
// a recording ends a script.
func TestPageAsksForNothing(t *testing.T) {
	in, d := example(t, "resnet50", planfile.ModePeriodic)
	var page, again bytes.Buffer
	p := &Page{Trace: `<img onerror=x>`, Plan: "</script>", Producer: "test", Devices: []*Device{d}}
	if err := p.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if err := p.WriteHTML(&again); err != nil || !bytes.Equal(page.Bytes(), again.Bytes()) {
		t.Errorf("another page the second time: %v", err)
	}
	text := page.String()
	if found := regexp.MustCompile(`(?i)(\ssrc=|\shref=|url\(|@import|https?://|<img)`).FindString(text); found != "" {
		t.Errorf("the page has %q", found)
	}
	if n := strings.Count(text, "</script>"); n != 3 {
		t.Errorf("%d scripts end, expected 3: figures, one device, the page's own", n)
	}
	_, after, _ := strings.Cut(text, `id="figures">`)
	figures, _, _ := strings.Cut(after, "</script>")
	var got struct {
		Devices []struct {
			Figures struct{ Diff struct{ Trace string } }
		}
	}
	if err := json.Unmarshal([]byte(figures), &got); err != nil || got.Devices[0].Figures.Diff.Trace != in.Figures.Diff.Trace {
		t.Errorf("figures: %v, %+v", err, got)
	}
	_, after, _ = strings.Cut(text, `id="device-0">`)
	blob, _, _ := strings.Cut(after, "</script>")
	if raw, err := base64.StdEncoding.DecodeString(blob); err != nil || !bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
		t.Errorf("the device is no gzip stream in base64: %v", err)
	}
}
