package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stplan/stplan/internal/trace"
)

// TestNamesDoNotReachTheTerminal gives commands files whose names, notes and texts would move
// a terminal's cursor or look like stplan's own lines.
func TestNamesDoNotReachTheTerminal(t *testing.T) {
	const evil = "\x1b]0;owned\a\nstplan: fine\u202e"
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Skipf("the file system refuses such a name: %v", err)
		}
		return path
	}
	var noted bytes.Buffer
	tr := &trace.Trace{Notes: []string{evil}, Devices: []trace.Device{{Events: []trace.Event{
		{Action: trace.ActionAlloc, Addr: 512, Size: 512, Stack: trace.None, UserMetadata: trace.None, CompileContext: trace.None, Pool: -1}}}}}
	if err := trace.WriteParquet(&noted, tr, trace.Options{}); err != nil {
		t.Fatal(err)
	}
	good := file(evil+".parquet", noted.Bytes())
	bad := file(evil+".pickle", []byte("no pickle"))
	plan := filepath.Join(dir, evil+".bin")
	for _, c := range []struct {
		code int
		args []string
	}{
		{exitBadInput, []string{"compile", bad}},
		{exitBadInput, []string{"compile", filepath.Join(dir, evil)}},
		{exitBadInput, []string{evil}},
		{exitBadInput, []string{"compile", "--" + evil}},
		{exitBadInput, []string{"compile", good, bad, "-o", dir}},
		{exitOK, []string{"compile", good, "-o", plan}},
		{exitOK, []string{"import", good, "-o", filepath.Join(dir, evil+"2")}},
		{exitOK, []string{"verify", plan}},
		{exitNo, []string{"verify", bad}},
		{exitOK, []string{"inspect", plan}},
		{exitOK, []string{"diff", plan, "--trace", good}},
		{exitBadInput, []string{"diff", plan, "--trace", good, "--config", evil}},
		{exitBadInput, []string{"pack", bad}},
	} {
		var stdout, stderr bytes.Buffer
		if code := execute(c.args, strings.NewReader(""), &stdout, &stderr); code != c.code {
			t.Errorf("%q: exit code %d, expected %d: %s", c.args, code, c.code, stderr.String())
		}
		for line := range strings.Lines(stdout.String() + stderr.String()) {
			if strings.HasPrefix(line, "stplan: fine") || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q prints the line %q", c.args, line)
			}
		}
	}
}
