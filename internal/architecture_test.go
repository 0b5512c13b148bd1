// Package internal_test holds the layering of docs/architecture.md.
package internal_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/stplan/stplan/"

// mayImport is the table of docs/architecture.md: what each package may import
// of ours, tests included.
var mayImport = map[string][]string{
	"internal":               {},
	"internal/trace/pickle":  {},
	"internal/trace/parquet": {},
	"internal/trace":         {"internal/trace/pickle", "internal/trace/parquet"},
	"internal/lifespan":      {"internal/trace"},
	"internal/synth":         {},
	"internal/fusion":        {"internal/synth"},
	"internal/packing":       {"internal/synth"},
	"internal/planfile":      {},
	"internal/verify":        {"internal/planfile", "internal/trace"},
	"internal/baseline":      {"internal/trace"},
	"internal/report":        {},
	"internal/replay":        {"internal/trace", "internal/lifespan"},
	"runtime/cuda":           {},
	"runtime/torch":          {"runtime/cuda"},
	"cmd/stplan": {
		"internal/trace", "internal/lifespan", "internal/fusion", "internal/packing", "internal/planfile",
		"internal/verify", "internal/baseline", "internal/report", "internal/synth", "internal/replay",
		"runtime/cuda", "runtime/torch",
	},
}

// testsMayImport is what the tests of a package may import besides: the C
// runtime reads the format by itself, its tests write plans.
var testsMayImport = map[string][]string{
	"runtime/cuda": {"internal/planfile"},
}

func demandAllowed(t *testing.T, name string, allowed, imports []string) {
	for _, i := range imports {
		if ours, found := strings.CutPrefix(i, module); found && ours != name && !slices.Contains(allowed, ours) {
			t.Errorf("%s imports %s, which the table does not allow", name, ours)
		}
	}
}

type listed struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// TestImportsFlowOneWay reads the import graph and compares it with mayImport.
func TestImportsFlowOneWay(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		allowed, ok := mayImport[name]
		if !ok {
			t.Errorf("%s has no row in the table of docs/architecture.md", name)
			continue
		}
		demandAllowed(t, name, allowed, p.Imports)
		allowed = append(slices.Clone(allowed), testsMayImport[name]...)
		demandAllowed(t, name, allowed, append(p.TestImports, p.XTestImports...))
	}
}

func listPackages(t *testing.T) []listed {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if len(packages) < 5 {
		t.Fatalf("go list found only %d packages; is the pattern right?", len(packages))
	}
	return packages
}
