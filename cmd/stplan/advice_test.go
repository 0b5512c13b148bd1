package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
)

var resnet = filepath.Join("..", "..", "examples", "resnet50", "resnet50.pickle.gz")

// advised writes a plan of resnet50 that says that it does not pay.
func advised(t *testing.T) string {
	recording, err := trace.ReadFile(resnet, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := compile.Compile(context.Background(), recording, compile.Options{Producer: "test"})
	if err != nil {
		t.Fatal(err)
	}
	p.Devices[0].Advice = planfile.AdvicePool
	return writePlan(t, p)
}

// TestAdviceIsTold: whoever reads a plan that does not pay says so, and serves
// without it.
func TestAdviceIsTold(t *testing.T) {
	path := advised(t)
	commands := []struct{ command, stdout, stderr string }{
		{"inspect " + path, "serve without the plan: the pool alone costs less", ""},
		{"inspect --json " + path, `"advice": "serve without`, ""},
	}
	if simdevice.Built {
		commands = append(commands, struct{ command, stdout, stderr string }{
			"replay --json " + path + " " + resnet, `"planned_allocations": 0,`, "its advice is followed: serve without the plan"})
	}
	for _, c := range commands {
		var stdout, stderr bytes.Buffer
		if code := execute(strings.Fields(c.command), strings.NewReader(""), &stdout, &stderr); code != exitOK {
			t.Errorf("%s: exit code %d: %s", c.command, code, stderr.String())
		}
		if !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("%s: stdout %q, stderr %q", c.command, stdout.String(), stderr.String())
		}
	}
}
