package cuda

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"testing"
)

// methods returns the signatures of Device's exported methods in a file, without the names of
// parameters and results.
func methods(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	unnamed := func(fields *ast.FieldList) string {
		said := ""
		if fields == nil {
			return said
		}
		for _, field := range fields.List {
			for range max(1, len(field.Names)) {
				said += types.ExprString(field.Type) + ","
			}
		}
		return said
	}
	found := map[string]string{}
	for _, declared := range parsed.Decls {
		if method, is := declared.(*ast.FuncDecl); is && method.Recv != nil && method.Name.IsExported() {
			found[method.Name.Name] = unnamed(method.Type.Params) + " -> " + unnamed(method.Type.Results)
		}
	}
	return found
}

// TestBuildsWithoutCgo: a build without cgo has every method of Device that the simulated device calls, and
// each is declared as with cgo. Only a release for another system builds that.
func TestBuildsWithoutCgo(t *testing.T) {
	with, without := methods(t, "cuda.go"), methods(t, "nocgo.go")
	const caller = "../../internal/simdevice/simdevice.go"
	parsed, err := parser.ParseFile(token.NewFileSet(), caller, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	called := map[string]bool{}
	ast.Inspect(parsed, func(node ast.Node) bool {
		if of, is := node.(*ast.SelectorExpr); is && types.ExprString(of.X) == "d.device" {
			called[of.Sel.Name] = true
		}
		return true
	})
	if len(called) == 0 {
		t.Fatalf("%s: expected calls of d.device, found none", caller)
	}
	for _, name := range slices.Sorted(maps.Keys(called)) {
		if without[name] == "" {
			t.Errorf("%s calls Device.%s, which nocgo.go has not", caller, name)
		}
	}
	for name, signature := range without {
		if signature != with[name] {
			t.Errorf("Device.%s: %q in nocgo.go, expected %q as in cuda.go", name, signature, with[name])
		}
	}
}
