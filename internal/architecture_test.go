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

// mayImport is the table of docs/architecture.md: what each package may import of
// ours.
var mayImport = map[string][]string{
	"internal":               {},
	"internal/trace/pickle":  {},
	"internal/trace/parquet": {},
	"internal/trace":         {"internal/trace/pickle", "internal/trace/parquet"},
	"internal/callstack":     {"internal/trace"},
	"internal/lifespan":      {"internal/trace", "internal/callstack", "internal/splitmix"},
	"internal/fusion":        {},
	"internal/packing":       {"internal/fusion", "internal/splitmix"},
	"internal/planfile":      {},
	"internal/splitmix":      {},
	"internal/verify":        {"internal/planfile", "internal/trace"},
	"internal/baseline":      {"internal/trace", "internal/splitmix"},
	"internal/stalloc":       {"internal/trace", "internal/lifespan", "internal/baseline"},
	"internal/replay":        {"internal/trace", "internal/lifespan"},
	"internal/report":        {"internal/planfile", "internal/verify"},
	"internal/peak":          {"internal/trace", "internal/callstack", "internal/lifespan"},
	"internal/export":        {"internal/trace", "internal/trace/parquet", "internal/lifespan", "internal/peak", "internal/planfile"},
	"internal/page":          {"internal/trace", "internal/callstack", "internal/lifespan", "internal/peak", "internal/planfile", "internal/export", "internal/report"},
	"internal/compile": {
		"internal/trace", "internal/callstack", "internal/lifespan", "internal/packing", "internal/planfile", "internal/verify",
		"internal/baseline", "internal/replay", "internal/report",
	},
	"internal/fit": {
		"internal/trace", "internal/lifespan", "internal/baseline", "internal/replay", "internal/planfile", "internal/compile", "internal/peak",
	},
	"internal/simdevice": {"internal/trace", "internal/replay", "runtime/cuda"},
	"internal/store":     {},
	"internal/storetest": {},
	"internal/synth":     {},
	"examples":           {},
	"runtime/cuda":       {},
	"runtime/torch":      {"runtime/cuda"},
	"cmd/stplan": {
		"internal/trace", "internal/callstack", "internal/lifespan", "internal/packing", "internal/planfile", "internal/verify", "internal/baseline",
		"internal/stalloc", "internal/replay", "internal/report", "internal/compile", "internal/peak", "internal/export", "internal/fit",
		"internal/page", "internal/simdevice", "internal/store", "runtime/cuda", "runtime/torch",
		"examples",
	},
}

// testsMayImport is what the tests of a package may import besides. The C runtime
// reads the format by itself, and its tests write plans; benchmarks of the packer
// read recordings; the pipeline's tests serve what it makes, to made-up jobs too; exports and
// pages are tested with plans that it makes; the JSON's test knows the allocators that a comparison has.
var testsMayImport = map[string][]string{
	"runtime/cuda":       {"internal/planfile"},
	"internal/fusion":    {"internal/synth"},
	"internal/lifespan":  {"internal/synth"},
	"internal/packing":   {"internal/synth", "internal/lifespan", "internal/trace"},
	"internal/compile":   {"internal/simdevice", "internal/synth", "runtime/cuda"},
	"internal/simdevice": {"internal/synth", "internal/lifespan"},
	"internal/report":    {"internal/baseline", "internal/stalloc"},
	"internal/export":    {"internal/compile"},
	"internal/fit":       {"internal/simdevice", "internal/synth"},
	"internal/page":      {"internal/compile"},
	"internal/store":     {"internal/storetest"},
	"cmd/stplan":         {"internal/synth", "internal/storetest"},
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
