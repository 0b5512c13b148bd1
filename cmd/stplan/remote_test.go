package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/storetest"
	"github.com/stplan/stplan/internal/trace"
)

// stplanOn runs a command line, and returns its exit code and what it printed.
func stplanOn(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

func mustStplan(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := stplanOn(args...)
	if code != exitOK {
		t.Fatalf("stplan %s: exit code %d\n%s", strings.Join(args, " "), code, errs)
	}
	return out
}

// parquetOf is the recording of a made-up job, as a Parquet trace.
func parquetOf(t *testing.T, length int64) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := trace.WriteParquet(&buf, madeUpTraining(length), trace.Options{}); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// htmlSize is what the report says of its page, whose compressed content has paths in it.
var htmlSize = regexp.MustCompile(`run\.html: .*`)

// TestCommandsOnObjects: what each command prints of objects is what it prints of the same
// files, and what it writes is the same.
func TestCommandsOnObjects(t *testing.T) {
	server := storetest.Start(t)
	here := t.TempDir()
	// Names of equal length, as lines are wrapped by what is in them.
	folder := strings.Repeat("f", len(here)-len("s3://traces/")) + "/"
	parquet := parquetOf(t, 1024)
	snapshot, err := os.ReadFile("../../examples/resnet50/resnet50.pickle.gz")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"run.parquet": parquet, "train.pickle.gz": snapshot, "instance.csv": []byte("id,lower,upper,size\n0,0,10,4\n1,5,20,8\n"),
	} {
		server.Put(t, folder+name, data)
		if err := os.WriteFile(filepath.Join(here, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{
		"compile DIR/run.parquet",
		"compile DIR/run.parquet DIR/run.parquet --merge -o DIR/merged.bin",
		"import DIR/train.pickle.gz",
		"verify DIR/run.bin --trace DIR/run.parquet",
		"inspect DIR/run.bin",
		"diff DIR/run.bin --trace DIR/run.parquet --junit DIR/junit.xml",
		"peak DIR/run.parquet --folded DIR/folded.txt",
		"report DIR/run.bin --trace DIR/run.parquet --svg DIR/run.svg",
		"export DIR/train.pickle.gz --format lifetimes",
		"fit DIR/run.parquet --device-memory 1TiB",
		"pack DIR/instance.csv -o DIR/packed.csv",
	} {
		run := func(dir string) (int, string) {
			code, out, errs := stplanOn(append([]string{"-q"}, strings.Fields(strings.ReplaceAll(args, "DIR/", dir))...)...)
			return code, htmlSize.ReplaceAllString(strings.ReplaceAll(out+errs, dir, "DIR/"), "HTML")
		}
		code, want := run(here + "/")
		gotCode, got := run("s3://traces/" + folder)
		if got != want || gotCode != code {
			t.Errorf("stplan %s: exit code %d and\n%sexpected %d and\n%s", args, gotCode, got, code, want)
		}
	}
	keys := server.Keys(t)
	for _, key := range keys {
		want, err := os.ReadFile(filepath.Join(here, filepath.Base(key)))
		named := strings.HasSuffix(key, ".html") || strings.HasSuffix(key, ".xml") || strings.HasSuffix(key, ".txt") // has the paths in it
		if got := server.Get(t, key); err != nil || !named && !bytes.Equal(got, want) {
			t.Errorf("%s: %d B, as a file %d, %v", key, len(got), len(want), err)
		}
	}
	files, err := os.ReadDir(here)
	if err != nil || len(files) != len(keys) {
		t.Errorf("objects %v, %d files", keys, len(files))
	}
}

// TestObjectsRefused: what is wrong is said before the work, and no object appears.
func TestObjectsRefused(t *testing.T) {
	server := storetest.Start(t)
	server.Put(t, "run.parquet", parquetOf(t, 1024))
	for _, c := range [][2]string{
		{"compile s3://traces/run.parquet -o s3://traces/run.parquet", "s3://traces/run.parquet: cannot write: is also an input"},
		{"compile s3://traces/run.parquet -o s3://other/run.bin", `has no bucket "other"`},
		{"compile s3://traces/none.parquet", `s3://traces/none.parquet: cannot read: bucket "traces" has no such object`},
		{"compile gs://traces/run.parquet", "gs://traces/run.parquet: gs:// is not supported"},
		{"inspect s3://traces/run.parquet", "s3://traces/run.parquet: "},
		{"import s3://traces/run.parquet -o https://example.com/x.parquet", "https://example.com/x.parquet: cannot write: web addresses are only read"},
	} {
		if code, _, errs := stplanOn(strings.Fields(c[0])...); code != exitBadInput || !strings.Contains(errs, c[1]) {
			t.Errorf("stplan %s: exit code %d, %sexpected %s", c[0], code, errs, c[1])
		}
	}
	if keys := server.Keys(t); !slices.Equal(keys, []string{"run.parquet"}) {
		t.Errorf("%v in the bucket", keys)
	}
}

// TestNothingIsSentWithoutObjects: files need no server and no credentials.
func TestNothingIsSentWithoutObjects(t *testing.T) {
	server := storetest.Start(t)
	began := server.Received.Load()
	file := filepath.Join(t.TempDir(), "run.parquet")
	if err := os.WriteFile(file, parquetOf(t, 1024), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ENDPOINT_URL", "not an address") // an error if anybody looks
	mustStplan(t, "compile", "-q", file)
	if now := server.Received.Load(); now != began {
		t.Errorf("%d B were sent", now-began)
	}
}

// TestParquetByRanges: of a Parquet trace only the parts are read that the reader needs. The
// trace has 30 MiB between its columns and its footer, as of columns that nobody reads.
func TestParquetByRanges(t *testing.T) {
	server := storetest.Start(t)
	data := parquetOf(t, 1024)
	footer := len(data) - 8 - int(binary.LittleEndian.Uint32(data[len(data)-8:]))
	padded := slices.Concat(data[:footer], make([]byte, 30<<20), data[footer:])
	file := filepath.Join(t.TempDir(), "run.parquet")
	if err := os.WriteFile(file, padded, 0o666); err != nil {
		t.Fatal(err)
	}
	server.Put(t, "run.parquet", padded)
	want := mustStplan(t, "inspect", "--json", mustCompile(t, file, filepath.Join(t.TempDir(), "run.bin")))
	got := mustStplan(t, "inspect", "--json", mustCompile(t, "s3://traces/run.parquet", filepath.Join(t.TempDir(), "run.bin")))
	plan := regexp.MustCompile(`"plan": .*`)
	if plan.ReplaceAllString(got, "") != plan.ReplaceAllString(want, "") {
		t.Error("another plan than that of the file")
	}
	if sent := server.Sent.Load(); sent > 3<<20 {
		t.Errorf("%d B were sent of %d, expected at most 3 MiB", sent, len(padded))
	}
}

func mustCompile(t *testing.T, recording, plan string) string {
	t.Helper()
	mustStplan(t, "compile", "-q", recording, "-o", plan)
	return plan
}

// TestRunWithPlansOfABucket: a job finds copies of the plans on its machine, and they are gone
// when it has ended.
func TestRunWithPlansOfABucket(t *testing.T) {
	server := storetest.Start(t)
	here, temporary := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv("XDG_CACHE_HOME", here)
	plan := mustCompile(t, writeFile(t, filepath.Join(here, "run.parquet"), parquetOf(t, 1024)), filepath.Join(here, "run.bin"))
	data, err := os.ReadFile(plan)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"plans/job-rank0.bin", "plans/job-rank1.bin", "plans/notes.txt"} {
		server.Put(t, key, data)
	}
	for path, want := range map[string]string{"s3://traces/plans/": "job-rank0.bin job-rank1.bin", "s3://traces/plans/job-rank1.bin": "job-rank1.bin"} {
		found := filepath.Join(here, "found")
		if code, _, errs := stplanOn("run", "-q", path, "--", "sh", "-c", `cd "$TMPDIR"/stplan-plans-* && echo $(ls) > `+found); code != exitOK {
			t.Errorf("exit code %d, %s", code, errs)
		}
		if got, err := os.ReadFile(found); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: the job finds %q, %v; expected %s", path, got, err, want)
		}
		if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
			t.Errorf("it leaves %v, %v", left, err)
		}
	}
	for _, args := range []string{"run s3://traces/none.bin -- true", "run s3://traces/none/ -- true", "run --no-plan --summary s3://traces/x -- true", "record -o s3://traces/x -- true"} {
		if code, _, errs := stplanOn(strings.Fields(args)...); code != exitBadInput || !strings.Contains(errs, "s3://traces/") {
			t.Errorf("stplan %s: exit code %d, %s", args, code, errs)
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

func writeFile(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}
