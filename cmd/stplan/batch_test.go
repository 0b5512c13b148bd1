package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestFindInputs: folders and patterns stand for recordings by name, and what they name is
// there once.
func TestFindInputs(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.pickle.gz", "a.parquet", "c.history", "notes.txt", ".hidden.pickle", "[odd].pickle"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sub.pickle", "none"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, c := range []struct {
		args, want string
		many       bool
		failed     string
	}{
		{"b.pickle.gz", "b.pickle.gz", false, ""},
		{"missing.pickle", "missing.pickle", false, ""}, // who reads it says so
		{"-", "-", false, ""},
		{".", "[odd].pickle a.parquet b.pickle.gz c.history", true, ""},
		{"*.p*", "[odd].pickle a.parquet b.pickle.gz", true, ""},
		{"[odd].pickle", "[odd].pickle", false, ""}, // a file of that name is no pattern
		{". b.pickle.gz ./a.parquet", "[odd].pickle a.parquet b.pickle.gz c.history", true, ""},
		{"b.pickle.gz .", "b.pickle.gz [odd].pickle a.parquet c.history", true, ""},
		{"a.parquet a.parquet", "a.parquet a.parquet", true, ""}, // somebody wants it twice
		{"none a.parquet", "a.parquet", true, "none: no recordings in this folder"},
		{"x*.pickle a.parquet", "a.parquet", true, "x*.pickle: no file has such a name"},
		{"x[ a.parquet", "a.parquet", true, "x[: no pattern"},
	} {
		in := (&app{}).findInputs(strings.Fields(c.args), recordingInputs)
		if got := strings.Join(in.paths, " "); got != c.want || in.many != c.many {
			t.Errorf("%s: %s, many %t, expected %s, %t", c.args, got, in.many, c.want, c.many)
		}
		if c.failed == "" && len(in.failed) > 0 || c.failed != "" && (len(in.failed) != 1 || !strings.HasPrefix(in.failed[0].err.Error(), c.failed)) {
			t.Errorf("%s: failed %v, expected %q", c.args, in.failed, c.failed)
		}
	}
	none := (&app{}).findInputs([]string{"none"}, recordingInputs)
	if err := none.none(); err == nil {
		t.Error("a folder without recordings is fine")
	}
}

// TestMemoryShare: what is handed out at once stays within the total, and what is larger
// than that waits until it is alone.
func TestMemoryShare(t *testing.T) {
	m := newMemoryShare()
	m.total = 100
	var used, most atomic.Int64
	var alone atomic.Bool
	var all sync.WaitGroup
	for i := range 200 {
		all.Add(1)
		go func() {
			defer all.Done()
			bytes := int64(10 + i%30)
			if i%50 == 0 {
				bytes = 1 << 40
			}
			release := m.acquire(bytes)
			if bytes > m.total {
				bytes = m.total
				alone.Store(true)
			}
			now := used.Add(bytes)
			for {
				old := most.Load()
				if now <= old || most.CompareAndSwap(old, now) {
					break
				}
			}
			used.Add(-bytes)
			release()
		}()
	}
	all.Wait()
	if most.Load() > 100 || !alone.Load() || m.used != 0 {
		t.Errorf("%d at once, large ones served %t, %d left", most.Load(), alone.Load(), m.used)
	}
}

func TestEstimate(t *testing.T) {
	if estimate("a.pickle.gz", 1<<20) <= estimate("a.pickle", 1<<20) || estimate("a.pickle", 0) < compileBase {
		t.Error("a compressed recording takes more than a plain one of the same size, and an empty one something")
	}
	if estimate("a.pickle.gz", 1<<62) <= 0 {
		t.Error("the estimate overflows")
	}
}

// TestShare: a shared file is the same file, or a copy; neither leaves anything else behind.
func TestShare(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	for path, text := range map[string]string{from: "plan", to: "an older one"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var o outputs
	for range 2 { // the second time they are one file already
		if err := o.share(from, to); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(to); err != nil || string(got) != "plan" {
			t.Errorf("%q, %v", got, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
	if err := o.share(filepath.Join(dir, "missing"), to); err == nil {
		t.Error("a missing file was shared")
	}
	if !slices.Equal(o.finished(), []string{to}) {
		t.Errorf("finished %v", o.finished())
	}
}
