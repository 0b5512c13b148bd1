//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stplan/stplan/internal/storetest"
)

// threeRanks writes the recordings of three ranks of three programs.
func threeRanks(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for r := range 3 {
		writeFile(t, filepath.Join(folder, fmt.Sprintf("job-rank%d.parquet", r)), parquetOf(t, int64(1024+64*r)))
	}
	return folder
}

// wantFailures demands an exit code, and failures of which each names the fault once.
func wantFailures(t *testing.T, command string, code, want int, out, errs, fault string) {
	t.Helper()
	failures := strings.Count("\n"+out, "\nfailed: ")
	if named := strings.Count(out, fault); code != want || failures == 0 || named != failures {
		t.Errorf("%s: exit code %d, expected %d; %d failures name %q %d times\n%s%s", command, code, want, failures, fault, named, out, errs)
	}
}

// folderBytes is what the files of a folder take, in pages, as in a tmpfs.
func folderBytes(t *testing.T, folder string) (total int64) {
	t.Helper()
	err := filepath.Walk(folder, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			page := int64(os.Getpagesize())
			total += (info.Size() + page - 1) / page * page / int64(info.Sys().(*syscall.Stat_t).Nlink)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// TestFullDisk: a disk with room for half of what a batch writes is no answer about its recordings,
// so the exit code is another one. Once there is room, the same command does the rest.
func TestFullDisk(t *testing.T) {
	traces := threeRanks(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one after the other: the first has room
	for _, command := range []string{"compile", "import"} {
		whole, disk := t.TempDir(), t.TempDir()
		mustStplan(t, command, traces, "-o", whole)
		size := fmt.Sprintf("size=%d", folderBytes(t, whole)/2)
		if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, size); err != nil {
			t.Skipf("cannot make a small disk: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
		code, out, errs := stplanOn(command, traces, "-o", disk)
		wantFailures(t, command, code, exitBadInput, out, errs, "no space left on device")
		if !strings.Contains(errs, "hint: ") || !strings.Contains(errs, "recordings failed") && !strings.Contains(errs, "snapshots failed") {
			t.Errorf("%s: %s", command, errs)
		}
		if left, err := filepath.Glob(filepath.Join(disk, ".*.tmp")); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", command, left, err)
		}
		if done, err := filepath.Glob(filepath.Join(disk, "job-rank0.*")); err != nil || len(done) != 1 {
			t.Errorf("%s: the first recording had room: %v, %v", command, done, err)
		}
		if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, "size=16m"); err != nil {
			t.Fatal(err)
		}
		mustStplan(t, command, traces, "-o", disk)
		files, err := filepath.Glob(filepath.Join(whole, "job-rank*"))
		if err != nil || len(files) != 3 {
			t.Fatalf("%v, %v", files, err)
		}
		for _, file := range files {
			want, _ := os.ReadFile(file)
			if got, err := os.ReadFile(filepath.Join(disk, filepath.Base(file))); err != nil || string(got) != string(want) {
				t.Errorf("%s: %s is another one than without a full disk, %v", command, filepath.Base(file), err)
			}
		}
	}
}

// stplanUnder runs stplan as a process of a shell, after a line of that.
func stplanUnder(t *testing.T, line string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stplan := filepath.Join(t.TempDir(), "stplan") // the name that TestMain looks for
	if err := os.Symlink(self, stplan); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", append([]string{"-c", line + `; exec "$0" "$@"`, stplan}, args...)...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// TestFileLimit is TestFullDisk for who cannot mount: no file may have more than a few KB.
func TestFileLimit(t *testing.T) {
	traces := threeRanks(t)
	for _, command := range []string{"compile", "import"} {
		code, out, errs := stplanUnder(t, "ulimit -f 8", command, traces, "-o", filepath.Join(t.TempDir(), "out"))
		wantFailures(t, command, code, exitBadInput, out, errs, "file too large")
	}
}

// TestFullStandardOutput: a table that could not be printed is no answer, whatever it says.
func TestFullStandardOutput(t *testing.T) {
	traces := threeRanks(t)
	writeFile(t, filepath.Join(traces, "cut.parquet"), parquetOf(t, 1024)[:5000])
	plans := t.TempDir()
	if code, _, errs := stplanOn("compile", traces, "-o", plans); code != exitNo {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	for _, args := range [][]string{
		{"compile", traces, "-o", plans}, {"import", traces, "-o", t.TempDir()}, {"peak", traces}, {"fit", traces, "--device-memory", "80GiB"},
		{"verify", plans, "--trace", traces}, {"diff", plans, "--trace", traces},
	} {
		for _, more := range [][]string{nil, {"--json"}} {
			code, _, errs := stplanUnder(t, "exec >/dev/full", append(args, more...)...)
			if code != exitBadInput || !strings.Contains(errs, "no space left on device") {
				t.Errorf("%s: exit code %d, expected %d\n%s", args, code, exitBadInput, errs)
			}
		}
	}
}

// TestBatchCauses: of several recordings that are no good, or of which only some are, the answer is
// no; if they cannot be reached, there is no answer. Neither depends on how many.
func TestBatchCauses(t *testing.T) {
	server := storetest.Start(t)
	good := parquetOf(t, 1024)
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"good.parquet": good, "cut.parquet": good[:5000], "empty.pickle": nil} {
		writeFile(t, filepath.Join(dir, name), data)
	}
	t.Chdir(dir)
	server.Put(t, "other.parquet", good)
	commands := map[string]func(recordings []string) []string{
		"compile": func(r []string) []string { return append([]string{"compile", "-o", t.TempDir()}, r...) },
		"import":  func(r []string) []string { return append([]string{"import", "-o", t.TempDir()}, r...) },
		"peak":    func(r []string) []string { return append([]string{"peak"}, r...) },
	}
	ask := func(command string, want int, fault string, recordings ...string) {
		t.Helper()
		code, out, errs := stplanOn(commands[command](recordings)...)
		if code != want || !strings.Contains(out, fault) {
			t.Errorf("%s %v: exit code %d, expected %d and %q\n%s%s", command, recordings, code, want, fault, out, errs)
		}
		if hinted := strings.Contains(errs, "hint: "); hinted != (want == exitBadInput) {
			t.Errorf("%s %v: %s", command, recordings, errs)
		}
	}
	for command := range commands {
		ask(command, exitNo, "file is empty", "cut.parquet", "empty.pickle")
		ask(command, exitNo, "file is empty", "good.parquet", "empty.pickle", "missing.pickle")
		ask(command, exitNo, "no such object", "good.parquet", "s3://traces/missing.parquet")
	}
	// The folders' other questions, of which nothing is good.
	t.Run("folders", func(t *testing.T) {
		bad, plans := t.TempDir(), t.TempDir()
		writeFile(t, filepath.Join(bad, "cut.parquet"), good[:5000])
		writeFile(t, filepath.Join(bad, "empty.pickle"), nil)
		for _, name := range []string{"cut.bin", "empty.bin"} {
			writeFile(t, filepath.Join(plans, name), []byte("no plan"))
		}
		for _, args := range [][]string{{"fit", bad, "--device-memory", "80GiB"}, {"verify", plans}, {"verify", plans, "--trace", bad}, {"diff", plans, "--trace", bad}} {
			if code, out, errs := stplanOn(args...); code != exitNo || strings.Count(out, "failed: ") != 2 {
				t.Errorf("%v: exit code %d, expected %d\n%s%s", args, code, exitNo, out, errs)
			}
		}
	})
	// Connections that end at once, at every try, and one that ends in the middle of what has no
	// parts, which is not the end of a recording.
	server.CutDown(1, 1<<20)
	ask("peak", exitBadInput, "failed: s3://traces/other.parquet: ", "good.parquet", "s3://traces/other.parquet")
	server.CutDown(0, 0)
	snapshot, err := os.ReadFile(filepath.Join(root, "../../examples/resnet50/resnet50.pickle.gz"))
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(snapshot)))
		_, _ = w.Write(snapshot[:len(snapshot)/2]) // the server then closes the connection
	}))
	defer web.Close()
	for command := range commands {
		ask(command, exitBadInput, "the connection was cut", "good.parquet", web.URL+"/run.pickle.gz")
	}
	// A server that is not there.
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	ask("compile", exitBadInput, "does not answer", "good.parquet", "s3://traces/other.parquet")
	ask("import", exitBadInput, "does not answer", "good.parquet", "s3://traces/folder/")
}
