package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestTheCacheForgetsWhatWasNotUsedForLongest: plans only, and no more than it has to.
func TestTheCacheForgetsWhatWasNotUsedForLongest(t *testing.T) {
	c := &planCache{t.TempDir()}
	const more = 3
	now := time.Now()
	put := func(name string, age time.Duration) {
		path := filepath.Join(c.folder, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	put("notes.txt", 1000*time.Hour)
	for i := range mostCached + more {
		put(fmt.Sprintf("train-%04d.bin", i), time.Duration(i)*time.Minute)
	}
	for range 2 {
		if err := c.prune(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range mostCached + more {
		_, err := os.Stat(filepath.Join(c.folder, fmt.Sprintf("train-%04d.bin", i)))
		if kept := err == nil; kept != (i < mostCached) {
			t.Errorf("plan %d: kept %v", i, kept)
		}
	}
	if _, err := os.Stat(filepath.Join(c.folder, "notes.txt")); err != nil {
		t.Error(err)
	}
}

// TestNamesInTheCache: a process of the job names the plan, and nothing outside the cache.
func TestNamesInTheCache(t *testing.T) {
	c := &planCache{"/cache"}
	if path, err := c.path("train-00.bin"); err != nil || path != "/cache/train-00.bin" {
		t.Errorf("found %q, %v", path, err)
	}
	for _, name := range []string{"", ".bin", "../train.bin", "a/train.bin", "/train.bin", "train", "train.txt"} {
		if path, err := c.path(name); err == nil {
			t.Errorf("%q: found %q, expected an error", name, path)
		}
	}
}
