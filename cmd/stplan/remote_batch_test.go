package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/store"
	"github.com/stplan/stplan/internal/storetest"
)

// bucketOfRanks are the recordings of 16 ranks of four programs, in a bucket and as files.
type bucketOfRanks struct {
	*storetest.Server
	traces string            // folder of the files
	plans  map[string][]byte // by name: what the files are compiled to
	table  string            // what compile prints of the files, without "compiled now"
}

// newBucketOfRanks makes them, in a new current folder, in which the test must leave nothing
// else.
func newBucketOfRanks(t *testing.T) *bucketOfRanks {
	t.Helper()
	b := &bucketOfRanks{Server: storetest.Start(t), plans: map[string][]byte{}}
	here := t.TempDir()
	b.traces = filepath.Join(here, "run")
	if err := os.Mkdir(b.traces, 0o777); err != nil {
		t.Fatal(err)
	}
	for r := range 16 {
		name := fmt.Sprintf("job-rank%d.parquet", r)
		data := parquetOf(t, int64(1024+64*(r%4)))
		b.Put(t, "run/"+name, data)
		writeFile(t, filepath.Join(b.traces, name), data)
	}
	plans := filepath.Join(here, "plans")
	mustStplan(t, "compile", "-q", b.traces, "-o", plans)
	b.table = mustStplan(t, "table", plans)
	files, err := filepath.Glob(filepath.Join(plans, "*.bin"))
	if err != nil || len(files) != 16 {
		t.Fatalf("plans %v, %v", files, err)
	}
	for _, file := range files {
		if b.plans[filepath.Base(file)], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	cwd := t.TempDir()
	t.Chdir(cwd)
	t.Cleanup(func() {
		if left, err := os.ReadDir(cwd); err != nil || len(left) > 0 {
			t.Errorf("the current folder has %v, %v", left, err)
		}
		if n := b.Unfinished(t); n != 0 {
			t.Errorf("%d unfinished uploads", n)
		}
	})
	return b
}

// found is the plans of a folder of the bucket. Each has to be that of the file.
func (b *bucketOfRanks) found(t *testing.T, folder string) (names []string) {
	t.Helper()
	for _, key := range b.Keys(t) {
		name, inside := strings.CutPrefix(key, folder)
		if !inside || strings.Contains(name, "/") {
			continue
		}
		names = append(names, name)
		if want, ok := b.plans[name]; !ok || !bytes.Equal(b.Get(t, key), want) {
			t.Errorf("%s is not the plan of the file", key)
		}
	}
	return names
}

// all demands that a folder of the bucket has the 16 plans.
func (b *bucketOfRanks) all(t *testing.T, folder string) {
	t.Helper()
	if names := b.found(t, folder); len(names) != 16 {
		t.Errorf("%s has %d plans: %v", folder, len(names), names)
	}
}

// batchOf runs a compile of many with --json.
func batchOf(t *testing.T, want int, args ...string) *report.CompiledAll {
	t.Helper()
	code, out, errs := stplanOn(append([]string{"compile", "--json"}, args...)...)
	if code != want {
		t.Fatalf("stplan compile %s: exit code %d, expected %d\n%s", strings.Join(args, " "), code, want, errs)
	}
	all := &report.CompiledAll{}
	if err := json.Unmarshal([]byte(out), all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestBucketOfRanks compiles 16 ranks of a job from a bucket and back to it. The plans are
// those of the same traces as files, and each program is compiled once. The same command again
// only looks.
func TestBucketOfRanks(t *testing.T) {
	b := newBucketOfRanks(t)
	first := batchOf(t, exitOK, "s3://traces/run/", "-o", "s3://traces/plans/")
	if first.Fleet.Programs != 4 || first.Fleet.Compiled != 4 || len(first.Plans) != 16 {
		t.Errorf("%+v", first.Fleet)
	}
	b.all(t, "plans/")
	if table := mustStplan(t, "table", "s3://traces/plans"); table != b.table {
		t.Errorf("table of the bucket:\n%sof files:\n%s", table, b.table)
	}
	sent, received := b.Sent.Load(), b.Received.Load()
	again := batchOf(t, exitOK, "s3://traces/run/*.parquet", "-o", "s3://traces/plans")
	if again.Fleet.Done != 16 || again.Fleet.Compiled != 0 {
		t.Errorf("again: %+v", again.Fleet)
	}
	t.Logf("again: %d B from the server, %d B to it", b.Sent.Load()-sent, b.Received.Load()-received)

	// A plan that is gone or another one is made again, and so is that of another recording.
	b.Put(t, "plans/job-rank3.bin", []byte("another"))
	b.Put(t, "run/job-rank0.parquet", parquetOf(t, 1024+64))
	b.plans["job-rank0.bin"] = b.plans["job-rank1.bin"]
	if code, out, _ := stplanOn("table", "s3://traces/plans/"); code != exitNo || !strings.Contains(out, "job-rank3.bin") {
		t.Errorf("table: exit code %d\n%s", code, out)
	}
	again = batchOf(t, exitOK, "s3://traces/run/", "-o", "s3://traces/plans/")
	if again.Fleet.Done != 14 || again.Fleet.Compiled != 0 {
		t.Errorf("two again: %+v", again.Fleet)
	}
	b.all(t, "plans/")
}

// TestBucketAndFiles: the recordings or the plans may be files of this machine.
func TestBucketAndFiles(t *testing.T) {
	b := newBucketOfRanks(t)
	mustStplan(t, "compile", "-q", b.traces, "-o", "s3://traces/deep/plans/")
	b.all(t, "deep/plans/")
	here := filepath.Join(t.TempDir(), "plans")
	mustStplan(t, "compile", "-q", "s3://traces/run/", "-o", here)
	for name, want := range b.plans {
		if got, err := os.ReadFile(filepath.Join(here, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d B, %v", name, len(got), err)
		}
	}
	if all := batchOf(t, exitOK, "s3://traces/run/", "-o", here); all.Fleet.Done != 16 {
		t.Errorf("again: %+v", all.Fleet)
	}
	mustStplan(t, "import", "-q", "s3://traces/run/", "-o", "s3://traces/imported/")
	mustStplan(t, "compile", "-q", "s3://traces/imported/", "-o", "s3://traces/imported-plans/")
	b.all(t, "imported-plans/")
}

// TestBucketCut: connections are cut. Now and then is borne. For good, some plans are not there,
// and what is there is whole. The next call does the rest.
func TestBucketCut(t *testing.T) {
	b := newBucketOfRanks(t)
	b.CutDown(3_000, 2)
	b.CutUp(2_000, 2)
	mustStplan(t, "compile", "-q", "s3://traces/run/", "-o", "s3://traces/plans/")
	b.CutDown(0, 0)
	b.CutUp(0, 0)
	b.all(t, "plans/")

	b.CutUp(1_500, 1<<30)
	code, _, errs := stplanOn("compile", "-q", "s3://traces/run/job-rank0.parquet", "-o", "s3://traces/plans/other.bin")
	if code != exitBadInput || !strings.Contains(errs, "s3://traces/plans/other.bin: cannot write: ") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	if code, _, _ = stplanOn("compile", "-q", "--mode", "recorded", "s3://traces/run/job-rank0.parquet", "-o", "s3://traces/plans/job-rank0.bin"); code != exitBadInput {
		t.Errorf("exit code %d", code)
	}
	b.CutUp(0, 0)
	b.all(t, "plans/")

	// A plan is larger than what a connection carries here, a request without one is not.
	b.CutUp(1_500, 1<<30)
	code, _, errs = stplanOn("compile", "-q", "s3://traces/run/", "-o", "s3://traces/cut/")
	b.CutUp(0, 0)
	want := exitNo
	if strings.Contains(errs, "16 of 16") {
		want = exitBadInput // nothing was done
	}
	if code != want || !strings.Contains(errs, "of 16 recordings failed") {
		t.Errorf("exit code %d, want %d, %s", code, want, errs)
	}
	if names := b.found(t, "cut/"); len(names) == 16 {
		t.Error("nothing was cut")
	}
	mustStplan(t, "compile", "-q", "s3://traces/run/", "-o", "s3://traces/cut/")
	b.all(t, "cut/")
}

// TestBucketWithBadRecordings: what is no good is named, the rest is done, and it is tried
// again when it has changed.
func TestBucketWithBadRecordings(t *testing.T) {
	b := newBucketOfRanks(t)
	good := b.Get(t, "run/job-rank5.parquet")
	b.Put(t, "run/job-rank5.parquet", good[:len(good)/2])
	b.Put(t, "run/job-rank6.parquet", nil)
	all := batchOf(t, exitNo, "s3://traces/run/", "s3://traces/none.parquet", "s3://traces/empty/", "-o", "s3://traces/plans/")
	var bad []string
	for _, f := range all.Failed {
		bad = append(bad, f.Trace)
	}
	slices.Sort(bad)
	if want := []string{"s3://traces/empty/", "s3://traces/none.parquet", "s3://traces/run/job-rank5.parquet", "s3://traces/run/job-rank6.parquet"}; !slices.Equal(bad, want) {
		t.Errorf("failed: %v, expected %v", all.Failed, want)
	}
	if names := b.found(t, "plans/"); len(names) != 14 {
		t.Errorf("plans: %v", names)
	}
	if code, out, _ := stplanOn("table", "s3://traces/plans/"); code != exitNo || !strings.Contains(out, "s3://traces/run/job-rank5.parquet") {
		t.Errorf("table: exit code %d\n%s", code, out)
	}
	for _, name := range []string{"run/job-rank5.parquet", "run/job-rank6.parquet"} {
		data, err := os.ReadFile(filepath.Join(b.traces, filepath.Base(name)))
		if err != nil {
			t.Fatal(err)
		}
		b.Put(t, name, data)
	}
	if all = batchOf(t, exitOK, "s3://traces/run/", "-o", "s3://traces/plans/"); all.Fleet.Done != 14 || all.Fleet.Compiled != 0 {
		t.Errorf("again: %+v", all.Fleet)
	}
	b.all(t, "plans/")

	// A plan never takes the place of a recording.
	b.Put(t, "run/odd.bin", good)
	b.Put(t, "other/odd.parquet", good)
	all = batchOf(t, exitBadInput, "s3://traces/run/odd.bin", "s3://traces/other/odd.parquet", "-o", "s3://traces/run/")
	if len(all.Failed) != 1 || !strings.Contains(all.Failed[0].Error, "s3://traces/run/odd.bin: cannot write: is also an input") || !bytes.Equal(b.Get(t, "run/odd.bin"), good) {
		t.Errorf("failed: %v", all.Failed)
	}
}

// TestShardsIntoOneBucket: two shards at once make what one call makes, and the table shows
// what is missing until both are done.
func TestShardsIntoOneBucket(t *testing.T) {
	b := newBucketOfRanks(t)
	mustStplan(t, "compile", "-q", "s3://traces/run/", "-o", "s3://traces/plans/", "--shard", "0/3")
	code, out, errs := stplanOn("table", "s3://traces/plans/")
	if code != exitNo || !strings.Contains(out, "not compiled yet: s3://traces/plans/job-rank1.bin") || !strings.Contains(errs, "10 recordings are not compiled yet") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	var both sync.WaitGroup
	for _, shard := range []string{"1/3", "2/3"} {
		both.Add(1)
		go func() {
			defer both.Done()
			if code, _, errs := stplanOn("compile", "-q", "s3://traces/run/", "-o", "s3://traces/plans/", "--shard", shard); code != exitOK {
				t.Errorf("shard %s: exit code %d, %s", shard, code, errs)
			}
		}()
	}
	both.Wait()
	b.all(t, "plans/")
	if table := mustStplan(t, "table", "s3://traces/plans/"); table != b.table {
		t.Errorf("table of shards:\n%sof one call on files:\n%s", table, b.table)
	}
	if code, _, errs := stplanOn("table", "s3://traces/none/"); code != exitBadInput || !strings.Contains(errs, "s3://traces/none/: no plans of several recordings here") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// TestCommandsOnFoldersOfBuckets: they print of a bucket what they print of files.
func TestCommandsOnFoldersOfBuckets(t *testing.T) {
	b := newBucketOfRanks(t)
	here := filepath.Dir(b.traces)
	folder := strings.Repeat("f", len(here)-len("s3://traces/")) // names of equal length wrap alike
	for _, r := range []int{0, 1, 2} {
		name := fmt.Sprintf("job-rank%d", r)
		b.Put(t, folder+"/plans/"+name+".bin", b.plans[name+".bin"])
		b.Put(t, folder+"/run/"+name+".parquet", b.Get(t, "run/"+name+".parquet"))
	}
	for r := 3; r < 16; r++ {
		for _, file := range []string{"run/job-rank%d.parquet", "plans/job-rank%d.bin"} {
			if err := os.Remove(filepath.Join(here, fmt.Sprintf(file, r))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, args := range []string{
		"peak DIR/run/",
		"fit DIR/run/ --device-memory 1TiB",
		"verify DIR/plans/",
		"verify DIR/plans/ --trace DIR/run/",
		"diff DIR/plans/ --trace DIR/run/",
		"diff DIR/plans/*.bin --trace DIR/run/*rank?.parquet",
		"compile DIR/run/*.parquet --merge -o DIR/merged.bin",
		"peak DIR/plans/none*.parquet",
	} {
		run := func(dir string) (int, string) {
			code, out, errs := stplanOn(append([]string{"-q"}, strings.Fields(strings.ReplaceAll(args, "DIR", dir))...)...)
			return code, strings.ReplaceAll(out+errs, dir, "DIR")
		}
		code, want := run(here)
		gotCode, got := run("s3://traces/" + folder)
		if got != want || gotCode != code {
			t.Errorf("stplan %s: exit code %d and\n%sexpected %d and\n%s", args, gotCode, got, code, want)
		}
	}
}

// TestFindObjects: folders and patterns of a bucket stand for the same as those of files, but
// only the last element of a pattern is one.
func TestFindObjects(t *testing.T) {
	server := storetest.Start(t)
	for _, key := range []string{"dir/b.pickle.gz", "dir/a.parquet", "dir/notes.txt", "dir/.hidden.pickle", "dir/sub/c.pickle", "dir/[odd].pickle", "top.pickle", "di/x.pickle"} {
		server.Put(t, key, []byte("x"))
	}
	for _, c := range []struct {
		args, want string
		many       bool
		failed     string
	}{
		{"s3://traces/dir/b.pickle.gz", "dir/b.pickle.gz", false, ""},
		{"s3://traces/missing.pickle", "missing.pickle", false, ""}, // who reads it says so
		{"s3://traces/dir/", "dir/[odd].pickle dir/a.parquet dir/b.pickle.gz", true, ""},
		{"s3://traces", "top.pickle", true, ""},
		{"s3://traces/", "top.pickle", true, ""},
		{"s3://traces/*", "top.pickle", true, ""},
		{"s3://traces/dir/*.p*", "dir/[odd].pickle dir/a.parquet dir/b.pickle.gz", true, ""},
		{"s3://traces/dir/.h*", "dir/.hidden.pickle", true, ""},
		{"s3://traces/dir/[odd].pickle", "dir/[odd].pickle", false, ""}, // an object of that name is no pattern
		{"s3://traces/d*/x.pickle", "d*/x.pickle", false, ""},
		{"s3://traces/dir//a.parquet", "dir//a.parquet", false, ""}, // another key than dir/a.parquet
		{"s3://traces/dir/ s3://traces/dir/a.parquet", "dir/[odd].pickle dir/a.parquet dir/b.pickle.gz", true, ""},
		{"s3://traces/dir/b.pickle.gz s3://traces/dir/", "dir/b.pickle.gz dir/[odd].pickle dir/a.parquet", true, ""},
		{"s3://traces/none/ s3://traces/top.pickle", "top.pickle", true, "s3://traces/none/: no recordings in this folder"},
		{"s3://traces/x*.pickle s3://traces/top.pickle", "top.pickle", true, "s3://traces/x*.pickle: no file has such a name"},
		{"s3://traces/x[ s3://traces/top.pickle", "top.pickle", true, "s3://traces/x[: no pattern"},
		{"s3://other/ s3://traces/top.pickle", "top.pickle", true, "s3://other/: cannot list: "},
		{"https://example.com/a?x=*", "https://example.com/a?x=*", false, ""},
	} {
		a := newApp(t)
		in := a.findInputs(strings.Fields(c.args), recordingInputs)
		if got := strings.ReplaceAll(strings.Join(in.paths, " "), "s3://traces/", ""); got != c.want || in.many != c.many {
			t.Errorf("%s: %s, many %t, expected %s, %t", c.args, got, in.many, c.want, c.many)
		}
		if c.failed == "" && len(in.failed) > 0 || c.failed != "" && (len(in.failed) != 1 || !strings.HasPrefix(in.failed[0].err.Error(), c.failed)) {
			t.Errorf("%s: failed %v, expected %q", c.args, in.failed, c.failed)
		}
	}
}

// newApp is what the commands of a test share.
func newApp(t *testing.T) *app {
	a := &app{outputs: &outputs{}}
	a.outputs.remote = remote{ctx: t.Context(), store: store.New()}
	return a
}
