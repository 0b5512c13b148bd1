package trace

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestFixtures reads the files that testdata/snapshot/make.py writes: one recording in
// every protocol and compression.
func TestFixtures(t *testing.T) {
	files, err := filepath.Glob("testdata/snapshot/*.pickle*")
	if err != nil || len(files) != 7 {
		t.Fatalf("%d fixtures, %v; expected 7", len(files), err)
	}
	var first *Trace
	for _, file := range files {
		tr := readFile(t, file)
		if first == nil {
			first = tr
			checkFixture(t, tr)
		} else if !sameTrace(tr, first) {
			t.Errorf("%s is another trace", file)
		}
	}
}

func readFile(t testing.TB, file string) *Trace {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := ReadSnapshot(f, filepath.Base(file), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func checkFixture(t *testing.T, tr *Trace) {
	d := &tr.Devices[0]
	if len(tr.Devices) != 1 || len(d.Events) != 31 || len(d.Annotations) != 6 || len(d.Final) != 2 || d.Initial != nil || tr.Notes != nil {
		t.Fatalf("%d devices, %d events, %d annotations, %d final and %d initial segments, notes %q",
			len(tr.Devices), len(d.Events), len(d.Annotations), len(d.Final), len(d.Initial), tr.Notes)
	}
	if tr.Stacks.Len() != 3 || len(tr.Stacks.Frames) != 5 || strings.Join(tr.Strings, ",") != "step 0,step 1,step 2" {
		t.Errorf("%d stacks of %v, strings %q", tr.Stacks.Len(), tr.Stacks.Frames, tr.Strings)
	}
	if got, want := stackText(tr, d.Events[4].Stack), "{/src/train.py 12 forward};{/src/train.py 30 step};{/src/train.py 40 <module>};"; got != want {
		t.Errorf("stack %s, want %s", got, want)
	}
	if d.Final[1].Blocks[0].Stack != d.Events[3].Stack {
		t.Error("the block and the entry do not share their stack")
	}
}

// cpython is a program that prints every entry of snapshots as CPython reads them.
const cpython = `
import gzip, pickle, sys
for path in sys.argv[1:]:
    f = gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb")
    s = pickle.load(f)
    print("file", path, len(s["device_traces"]), len(s["external_annotations"]), len(s["segments"]))
    for device, entries in enumerate(s["device_traces"]):
        for e in entries:
            stack = ";".join("%s:%d:%s" % (f["filename"], f["line"], f["name"]) for f in e.get("frames", []))
            print("e", device, e["action"], e.get("addr", e.get("device_free")), e["size"], e["stream"], e["time_us"],
                  e["user_metadata"] or "-", stack or "-", sep="\t")
    for g in s["segments"]:
        print("s", g["device"], g["address"], g["total_size"], g["stream"], g["segment_type"] == "small", g["is_expandable"], sep="\t")
        for b in g["blocks"]:
            stack = ";".join("%s:%d:%s" % (f["filename"], f["line"], f["name"]) for f in b["frames"])
            print("b", b["address"], b["size"], b["state"], stack or "-", sep="\t")
    for a in s["external_annotations"]:
        print("a", a["device"], a["name"], a["stage"], a["time_us"], sep="\t")
`

// TestAgainstCPython compares every field of recordings with what CPython reads. With
// STPLAN_ALL_TRACES=1 it reads all shared traces, otherwise small ones.
func TestAgainstCPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not on PATH")
	}
	files, _ := filepath.Glob("testdata/snapshot/*.pickle*")
	files = files[:len(files)-1] // CPython does not read zstd
	shared := filepath.Join("..", "..", "..", "shared", "traces")
	if os.Getenv("STPLAN_ALL_TRACES") != "" {
		files = append(files, globbed(t, filepath.Join(shared, "*.pickle.gz"))...)
	}
	for _, pattern := range []string{"sim/*.pickle*", "resnet50.pickle.gz"} {
		more, _ := filepath.Glob(filepath.Join(shared, pattern))
		files = append(files, more...)
	}
	for _, file := range files {
		compareWithCPython(t, python, file)
	}
}

func globbed(t *testing.T, pattern string) []string {
	files, _ := filepath.Glob(pattern)
	if len(files) == 0 {
		t.Skipf("the shared traces are not here: %s", pattern)
	}
	return files
}

func compareWithCPython(t *testing.T, python, file string) {
	cmd := exec.Command(python, "-c", cpython, file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tr := readFile(t, file)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	ours := spoken(tr)
	n := 0
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "file ") {
			continue
		}
		if n >= len(ours) || ours[n] != lines.Text() {
			t.Fatalf("%s: line %d:\nCPython %s\nours    %s", file, n, lines.Text(), orNothing(ours, n))
		}
		n++
	}
	if err := cmd.Wait(); err != nil || n != len(ours) || n == 0 {
		t.Fatalf("%s: CPython %v, %d lines of %d", file, err, n, len(ours))
	}
}

func orNothing(lines []string, n int) string {
	if n < len(lines) {
		return lines[n]
	}
	return "nothing"
}

// spoken writes a trace as the program cpython does.
func spoken(tr *Trace) []string {
	var out []string
	line := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	stack := func(i int32) string {
		if i == None {
			return "-"
		}
		var parts []string
		for _, k := range tr.Stacks.At(i) {
			f := tr.Stacks.Frames[k]
			parts = append(parts, f.File+":"+strconv.Itoa(int(f.Line))+":"+f.Name)
		}
		return strings.Join(parts, ";")
	}
	title := map[bool]string{true: "True", false: "False"}
	for _, d := range tr.Devices {
		for _, e := range d.Events {
			meta := "-"
			if e.UserMetadata != None {
				meta = tr.Strings[e.UserMetadata]
			}
			line("e\t%d\t%s\t%d\t%d\t%d\t%d\t%s\t%s", d.Ordinal, e.Action, e.Addr, e.Size, e.Stream, e.TimeUS, meta, stack(e.Stack))
		}
	}
	states := []string{"inactive", "active_allocated", "active_pending_free"}
	for _, d := range tr.Devices {
		for _, s := range d.Final {
			line("s\t%d\t%d\t%d\t%d\t%s\t%s", d.Ordinal, s.Address, s.Size, s.Stream, title[s.Small], title[s.Expandable])
			for _, b := range s.Blocks {
				line("b\t%d\t%d\t%s\t%s", b.Address, b.Size, states[b.State], stack(b.Stack))
			}
		}
	}
	for _, d := range tr.Devices {
		for _, a := range d.Annotations {
			line("a\t%d\t%s\t%s\t%d", d.Ordinal, a.Name, map[bool]string{false: "START", true: "END"}[a.End], a.TimeUS)
		}
	}
	return out
}
