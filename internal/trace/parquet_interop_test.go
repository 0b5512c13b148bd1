package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
)

// python runs testdata/parquet/interop.py, or skips the test if Python or a module is
// missing. STPLAN_PYTHON names another Python.
func python(t *testing.T, module string, args ...string) []byte {
	t.Helper()
	exe := os.Getenv("STPLAN_PYTHON")
	if exe == "" {
		exe = "python3"
	}
	if err := exec.Command(exe, "-c", "import "+module).Run(); err != nil {
		t.Skipf("%s cannot import %s: %v", exe, module, err)
	}
	cmd := exec.Command(exe, append([]string{filepath.Join("testdata", "parquet", "interop.py")}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("interop.py %s: %v\n%s", args, err, stderr.String())
	}
	return out
}

// row is a row of the Parquet form, as other tools see it.
type row struct {
	Device         int
	Action         string
	Addr           uint64
	Size           int64
	Stream         uint64
	Time           *int64 `json:"time_us"`
	Name           *string
	Stack          *string
	UserMetadata   *string `json:"user_metadata"`
	CompileContext *string `json:"compile_context"`
	Pool           *string
}

// rowsOf lists the rows that docs/trace.md requires for a trace. It follows that text and
// shares no code with the writer.
func rowsOf(t *Trace, withTime bool) []row {
	var out []row
	time := func(v int64) *int64 {
		if !withTime {
			return nil
		}
		return &v
	}
	for _, d := range t.Devices {
		marks := d.Annotations
		for i := 0; i <= len(d.Events); i++ {
			for ; len(marks) > 0 && marks[0].At == Time(i); marks = marks[1:] {
				m := marks[0]
				action := "annotation_start"
				if m.End {
					action = "annotation_end"
				}
				out = append(out, row{Device: d.Ordinal, Action: action, Time: time(m.TimeUS), Name: &m.Name})
			}
			if i == len(d.Events) {
				break
			}
			e := d.Events[i]
			r := row{Device: d.Ordinal, Action: e.Action.String(), Addr: e.Addr, Size: int64(e.Size), Stream: e.Stream, Time: time(e.TimeUS)}
			if e.Stack != None {
				text := ""
				for k, f := range t.Stacks.At(e.Stack) {
					if k > 0 {
						text += "\n"
					}
					f := t.Stacks.Frames[f]
					text += fmt.Sprintf("%s:%d:%s", f.File, f.Line, f.Name)
				}
				r.Stack = &text
			}
			if e.UserMetadata != None {
				r.UserMetadata = &t.Strings[e.UserMetadata]
			}
			if e.CompileContext != None {
				r.CompileContext = &t.Strings[e.CompileContext]
			}
			if e.Pool >= 0 {
				text := fmt.Sprintf("%d,%d", d.Pools[e.Pool][0], d.Pools[e.Pool][1])
				r.Pool = &text
			}
			out = append(out, r)
		}
	}
	return out
}

// plainTexts replaces a random trace's texts by ones without escapes and without NUL, at
// which some tools end a text.
func plainTexts(t *Trace) {
	for i := range t.Stacks.Frames {
		f := &t.Stacks.Frames[i]
		f.File, f.Name = fmt.Sprintf("dir/f%d.py", i), fmt.Sprintf("function %d <é>", i)
	}
	for i := range t.Strings {
		t.Strings[i] = fmt.Sprintf("é %d", i)
	}
	for i := range t.Devices {
		for k := range t.Devices[i].Annotations {
			t.Devices[i].Annotations[k].Name = fmt.Sprintf("step %d", k)
		}
	}
}

func TestPythonReads(t *testing.T) {
	for _, c := range []struct{ module, verb string }{{"pyarrow", "read"}, {"duckdb", "duckdb"}} {
		t.Run(c.module, func(t *testing.T) {
			tr := randomTrace(20, 500)
			plainTexts(tr)
			path := filepath.Join(t.TempDir(), "t.parquet")
			if err := os.WriteFile(path, encode(t, tr), 0o600); err != nil {
				t.Fatal(err)
			}
			compareRows(t, python(t, c.module, c.verb, path), rowsOf(tr, columnsOf(tr)[colTime]))
		})
	}
}

func compareRows(t *testing.T, out []byte, want []row) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(out))
	for i := 0; ; i++ {
		var got row
		err := dec.Decode(&got)
		if err == io.EOF && i == len(want) {
			return
		}
		if err != nil || i >= len(want) {
			t.Fatalf("row %d of %d: %v", i, len(want), err)
		}
		if !reflect.DeepEqual(got, want[i]) {
			g, _ := json.Marshal(got)
			w, _ := json.Marshal(want[i])
			t.Fatalf("row %d: got\n%s\nwant\n%s", i, g, w)
		}
	}
}

func TestPythonWrites(t *testing.T) {
	for _, c := range []struct {
		module, verb string
		more         bool
	}{{"pandas, pyarrow", "pandas", false}, {"pyarrow", "arrow", true}} {
		t.Run(c.verb, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.parquet")
			python(t, c.module, c.verb, path)
			tr, err := ReadFile(path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			want := []row{
				{Device: 0, Action: "alloc", Addr: 4096, Size: 100},
				{Device: 0, Action: "alloc", Addr: 8192, Size: 200, Stream: 7},
				{Device: 0, Action: "free_requested", Addr: 4096, Size: 100},
				{Device: 0, Action: "free_completed", Addr: 4096, Size: 100},
				{Device: 1, Action: "alloc", Addr: 1<<63 - 512, Size: 1 << 40},
			}
			if c.more {
				addMore(want)
			}
			if got := rowsOf(tr, c.more); !reflect.DeepEqual(got, want) {
				g, _ := json.Marshal(got)
				w, _ := json.Marshal(want)
				t.Errorf("read\n%s\nwant\n%s", g, w)
			}
		})
	}
}

// addMore fills the optional columns as interop.py does. A null time is read as 0.
func addMore(rows []row) {
	str := func(s string) *string { return &s }
	times := []int64{1, 0, 3, 4, 5}
	for i := range rows {
		rows[i].Time, rows[i].CompileContext = &times[i], str("N/A")
	}
	rows[0].Stack, rows[2].Stack, rows[3].Stack = str("a.py:1:f\nb.py:2:g"), str(""), str("a.py:1:f\nb.py:2:g")
	rows[0].UserMetadata, rows[1].UserMetadata, rows[4].UserMetadata = str(""), str("é"), str("")
	rows[0].Pool, rows[1].Pool, rows[4].Pool = str("0,0"), str("0,1"), str("0,1")
}
