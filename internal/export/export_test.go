package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/trace/parquet"
)

// examples are devices to export: one with stacks that runs out of memory, and one
// without, of several iterations.
func examples(t *testing.T) map[string]Device {
	t.Helper()
	out := map[string]Device{}
	for _, name := range []string{"lora-oom", "resnet50"} {
		tr, err := trace.ReadFile(filepath.Join("..", "..", "examples", name, name+".pickle.gz"), trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := peak.Read(tr, &tr.Devices[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.At(peak.Auto)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = Device{Recording: r, At: p}
	}
	return out
}

// TestProfile: the profile says of each category what peak says, pprof accepts it, and
// its bytes are the same every time.
func TestProfile(t *testing.T) {
	for name, d := range examples(t) {
		var out, again bytes.Buffer
		if err := WriteProfile(&out, []Device{d}); err != nil {
			t.Fatal(err)
		}
		if err := WriteProfile(&again, []Device{d}); err != nil || !bytes.Equal(out.Bytes(), again.Bytes()) {
			t.Errorf("%s: another profile the second time: %v", name, err)
		}
		file := filepath.Join(t.TempDir(), "peak.pb.gz")
		if err := os.WriteFile(file, out.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		p, err := profile.Parse(&out)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := map[string]int64{}
		for _, s := range p.Sample {
			got[s.Label["category"][0]] += s.Value[1]
		}
		for _, g := range d.At.ByCategory() {
			if got[g.Key.String()] != int64(g.Bytes) {
				t.Errorf("%s: %d B of %s, expected %d", name, got[g.Key.String()], g.Key, g.Bytes)
			}
			delete(got, g.Key.String())
		}
		if len(got) > 0 {
			t.Errorf("%s: more in the profile: %v", name, got)
		}
		top, err := exec.Command("go", "tool", "pprof", "-top", "-unit=B", file).Output()
		if err != nil {
			t.Fatalf("%s: go tool pprof: %v", name, err)
		}
		want := map[string]string{"lora-oom": "llama/modeling_llama.py forward", "resnet50": "(no stack)"}[name]
		if !strings.Contains(string(top), "Type: inuse_space") || !strings.Contains(string(top), want) {
			t.Errorf("%s: go tool pprof -top has no %q:\n%s", name, want, top)
		}
	}
}

// TestPerfetto: the counter reaches the peak and no more, time never goes back within a
// counter, and every slice ends.
func TestPerfetto(t *testing.T) {
	for name, d := range examples(t) {
		var out bytes.Buffer
		if err := WritePerfetto(&out, []Device{d}); err != nil {
			t.Fatal(err)
		}
		var file struct {
			TraceEvents []struct {
				Name, Ph, Cat string
				TS            int64
				ID, TID       int
				Args          map[string]any
			}
		}
		if err := json.Unmarshal(out.Bytes(), &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var most float64
		var last int64 = -1
		open := map[[2]any]int{}
		counters, ranges, failures := 0, 0, 0
		for _, e := range file.TraceEvents {
			switch e.Ph {
			case "C":
				counters++
				most = max(most, e.Args["allocated"].(float64))
				if e.TS <= last {
					t.Fatalf("%s: counter at %d after %d", name, e.TS, last)
				}
				last = e.TS
			case "b":
				open[[2]any{e.Cat, e.ID}]++
				ranges++
			case "e":
				open[[2]any{e.Cat, e.ID}]--
			case "i":
				failures++
			}
		}
		for id, n := range open {
			if n != 0 {
				t.Errorf("%s: slice %v begins %d times more than it ends", name, id, n)
			}
		}
		want := d.Timeline.PeakAllocated.Bytes
		if f := d.Timeline.Failed(); f != nil {
			want -= f.Size
		}
		if int64(most) < int64(want) || counters == 0 || ranges == 0 || last != int64(len(d.Device.Events))-1 {
			t.Errorf("%s: at most %.0f B in %d counters to event %d, %d slices; expected at least %d B", name, most, counters, last, ranges, want)
		}
		if expected := len(d.Device.Failures().At); failures != expected {
			t.Errorf("%s: %d out-of-memory events, expected %d", name, failures, expected)
		}
	}
}

// TestCountersAreThinned: a long recording has at most two values for each stretch, and
// its peak among them.
func TestCountersAreThinned(t *testing.T) {
	d := examples(t)["lora-oom"]
	all := levelsOf(&d)
	var most int64
	for _, l := range all {
		most = max(most, l.allocated)
	}
	for _, f := range d.Device.Failures().At {
		if got, want := all[f].allocated, int64(d.At.Allocated); got != want {
			t.Errorf("%d B allocated at the failure, peak says %d", got, want)
		}
		if got, want := all[f].reserved, int64(d.At.Memory.Reserved); got != want {
			t.Errorf("%d B reserved at the failure, peak says %d", got, want)
		}
	}
	if most == 0 || len(all) != len(d.Device.Events) {
		t.Errorf("%d levels of %d events, at most %d B", len(all), len(d.Device.Events), most)
	}
}

// readInts reads a column of integers of a Parquet file.
func readInts(t *testing.T, file []byte, names ...string) map[string][]int64 {
	t.Helper()
	f, err := parquet.Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	var wanted []parquet.Wanted
	for _, n := range names {
		kind := parquet.Signed
		if n == "stream" {
			kind = parquet.Unsigned
		}
		wanted = append(wanted, parquet.Wanted{Name: n, Kind: kind, Required: true})
	}
	columns, err := f.Columns(wanted)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := f.RowGroups(columns)
	if err != nil {
		t.Fatal(err)
	}
	read := make([]map[string][]int64, len(groups))
	err = f.Each(len(groups), func(g int, d *parquet.Decoder) error {
		read[g] = map[string][]int64{}
		for i := range columns {
			v, err := d.Ints(&groups[g], i, nil)
			if err != nil {
				return err
			}
			read[g][columns[i].Name] = slices.Clone(v)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]int64{}
	for _, g := range read {
		for name, v := range g {
			out[name] = append(out[name], v...)
		}
	}
	return out
}

// TestLifetimes: a row for each buffer, as the timeline has it, with its place in the
// plan.
func TestLifetimes(t *testing.T) {
	for name, d := range examples(t) {
		d.Offsets = make([]int64, len(d.Timeline.Buffers))
		for i := range d.Offsets {
			d.Offsets[i] = int64(i)*512 - 1
		}
		var out bytes.Buffer
		var done int64
		if err := WriteLifetimes(&out, []Device{d}, func(n, total int64) { done = n }); err != nil {
			t.Fatal(err)
		}
		if done > int64(len(d.Timeline.Buffers)) {
			t.Errorf("%s: %d rows done of %d", name, done, len(d.Timeline.Buffers))
		}
		got := readInts(t, out.Bytes(), "device", "start", "end", "completed", "bytes", "requested", "stream", "plan_offset")
		if len(got["start"]) != len(d.Timeline.Buffers) {
			t.Fatalf("%s: %d rows, expected %d", name, len(got["start"]), len(d.Timeline.Buffers))
		}
		for i := range d.Timeline.Buffers {
			b := &d.Timeline.Buffers[i]
			for column, want := range map[string]int64{
				"device": 0, "start": int64(b.Start), "end": int64(b.RequestedEnd), "completed": int64(b.CompletedEnd),
				"bytes": int64(b.Size), "requested": int64(b.Requested), "stream": int64(b.Stream), "plan_offset": d.Offsets[i],
			} {
				if got[column][i] != want {
					t.Fatalf("%s: row %d: %s is %d, expected %d", name, i, column, got[column][i], want)
				}
			}
		}
	}
}

// TestColumnsAreDocumented: docs/export.md lists every column with what its metadata says.
func TestColumnsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/export.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "| column | type | meaning |")
	for _, c := range columnsOf(true) {
		_, rest, ok := strings.Cut(table, "\n| `"+c.Name+"` | ")
		if !ok {
			t.Errorf("docs/export.md has no column %s, or not in this order", c.Name)
			continue
		}
		table = "\n" + rest
		if c.doc == "" {
			t.Errorf("column %s has no description", c.Name)
		}
	}
	if rest, _, _ := strings.Cut(table, "\n\n"); strings.Count(rest, "\n| `") > 0 {
		t.Errorf("docs/export.md has more columns: %s", rest)
	}
}

// TestRecipes runs the queries of docs/export.md on both examples.
func TestRecipes(t *testing.T) {
	exe := os.Getenv("STPLAN_PYTHON")
	if exe == "" {
		exe = "python3"
	}
	if err := exec.Command(exe, "-c", "import duckdb").Run(); err != nil {
		t.Skipf("%s cannot import duckdb: %v", exe, err)
	}
	for name, d := range examples(t) {
		d.Offsets = make([]int64, len(d.Timeline.Buffers))
		dir := t.TempDir()
		f, err := os.Create(filepath.Join(dir, "run.lifetimes.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(WriteLifetimes(f, []Device{d}, nil), f.Close()); err != nil {
			t.Fatal(err)
		}
		doc, err := filepath.Abs("../../docs/export.md")
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe, "-c", recipes, doc)
		cmd.Dir = dir
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, stderr.String())
		}
		var results [][][]any
		if err := json.Unmarshal(out, &results); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(results) != 5 {
			t.Fatalf("%s: %d recipes, expected 5", name, len(results))
		}
		checkRecipes(t, name, d, results)
	}
}

// recipes runs the blocks of SQL in a document and prints their rows.
const recipes = `
import json, re, sys
import duckdb
text = open(sys.argv[1]).read()
print(json.dumps([duckdb.sql(q).fetchall() for q in re.findall("^"+chr(96)*3+"sql\n(.*?)^"+chr(96)*3, text, re.M | re.S)], default=str))
`

// checkRecipes compares the first recipe with peak's own sums, and demands rows of the
// others where there is something to find.
func checkRecipes(t *testing.T, name string, d Device, results [][][]any) {
	t.Helper()
	p, err := d.Recording.At(d.Timeline.PeakAllocated.At)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{}
	for _, g := range p.ByCategory() {
		want[g.Key.String()] = float64(int64(g.Bytes) >> 20)
	}
	if f := d.Timeline.Failed(); f != nil && f.Start == d.Timeline.PeakAllocated.At {
		want[FailedRequest] = float64(int64(f.Size) >> 20)
	}
	for _, row := range results[0] {
		if row[2].(float64) != want[row[0].(string)] {
			t.Errorf("%s: %v MiB of %v at the peak, expected %v", name, row[2], row[0], want[row[0].(string)])
		}
		delete(want, row[0].(string))
	}
	if len(want) > 0 {
		t.Errorf("%s: the recipe lacks %v", name, want)
	}
	for i, rows := range results[1:] {
		if len(rows) == 0 {
			t.Errorf("%s: recipe %d found nothing", name, i+2)
		}
	}
}

// TestRowGroupsEndEarly: long stacks end a row group, and a stack counts once in it.
func TestRowGroupsEndEarly(t *testing.T) {
	const long = 1 << 20
	tr := &trace.Trace{Stacks: trace.Stacks{Frames: []trace.Frame{{File: "f", Name: strings.Repeat("x", long)}}, Bounds: []int32{0}}}
	for i := range int32(40) {
		tr.Stacks.Index = append(tr.Stacks.Index, 0)
		tr.Stacks.Bounds = append(tr.Stacks.Bounds, i+1)
	}
	d := &Device{Recording: &peak.Recording{Trace: tr}}
	tab := table{seen: map[int32]bool{}}
	for i := range int32(31) {
		for range 3 {
			tab.add(row{d, peak.Live{Stack: i}})
		}
	}
	tab.add(row{d, peak.Live{Stack: trace.None}})
	if tab.full() {
		t.Errorf("full at %d B of text in %d rows", tab.text, len(tab.rows))
	}
	if tab.add(row{d, peak.Live{Stack: 31}}); !tab.full() {
		t.Errorf("not full at %d B of text", tab.text)
	}
}
