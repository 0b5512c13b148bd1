// Package internal_test holds the layering of docs/architecture.md.
package internal_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/stplan/stplan/"

// mayImport is the table of docs/architecture.md: what each package may import
// of ours, tests included.
var mayImport = map[string][]string{
	"internal":              {},
	"internal/trace/pickle": {},
	"internal/trace":        {"internal/trace/pickle"},
	"internal/lifespan":     {"internal/trace"},
	"internal/packing":      {},
	"internal/planfile":     {},
	"internal/verify":       {"internal/planfile", "internal/trace"},
	"internal/baseline":     {"internal/trace"},
	"internal/report":       {},
	"cmd/stplan": {
		"internal/trace", "internal/lifespan", "internal/packing", "internal/planfile",
		"internal/verify", "internal/baseline", "internal/report",
	},
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
		can := map[string]bool{name: true}
		for _, a := range allowed {
			can[a] = true
		}
		for _, imports := range [][]string{p.Imports, p.TestImports, p.XTestImports} {
			for _, i := range imports {
				if ours, found := strings.CutPrefix(i, module); found && !can[ours] {
					t.Errorf("%s imports %s, which the table does not allow", name, ours)
				}
			}
		}
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
