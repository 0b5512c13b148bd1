package internal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inLayers are the packages whose files stand in layers. What runs back up on purpose is
// named with the reason in docs/architecture.md.
var inLayers = map[string][]string{
	"cmd/stplan":       {},
	"internal/compile": {"advice.go -> compile.go"},
}

// TestFilesUseOneWay finds files of a package that use each other, directly or through
// others. A file uses another one if it names a function, method, type, variable or
// constant that is declared there. Fields do not count, nor does the type that a method
// belongs to: Go has the method say that, wherever its file stands.
func TestFilesUseOneWay(t *testing.T) {
	for name, allowed := range inLayers {
		t.Run(name, func(t *testing.T) {
			uses := fileUses(t, module+name)
			if len(uses) < 5 {
				t.Fatalf("found only %d files that use others", len(uses))
			}
			for _, edge := range allowed {
				from, to, _ := strings.Cut(edge, " -> ")
				if uses[from][to] == "" {
					t.Errorf("%s is allowed, and is no more", edge)
				}
				delete(uses[from], to)
			}
			if ring := findRing(uses); ring != nil {
				for i, from := range ring[:len(ring)-1] {
					t.Errorf("%s uses %s of %s", from, uses[from][ring[i+1]], ring[i+1])
				}
			}
		})
	}
}

// TestFindRing tells graphs with a ring from those without.
func TestFindRing(t *testing.T) {
	tree := map[string]map[string]string{"a": {"b": "x", "c": "x"}, "b": {"d": "x"}, "c": {"d": "x"}}
	if ring := findRing(tree); ring != nil {
		t.Errorf("%v in a graph without a ring", ring)
	}
	tree["d"] = map[string]string{"c": "x"}
	ring := findRing(tree)
	if len(ring) != 3 || ring[0] != ring[2] || !slices.Contains(ring, "c") || !slices.Contains(ring, "d") {
		t.Errorf("found %v, expected the ring of c and d", ring)
	}
}

// findRing is a way along the uses that ends where it begins, nil if there is none.
func findRing(uses map[string]map[string]string) []string {
	clean := map[string]bool{}
	var visit func(way []string) []string
	visit = func(way []string) []string {
		last := way[len(way)-1]
		if k := slices.Index(way, last); k < len(way)-1 {
			return way[k:]
		}
		if clean[last] {
			return nil
		}
		for next := range uses[last] {
			if ring := visit(append(slices.Clone(way), next)); ring != nil {
				return ring
			}
		}
		clean[last] = true
		return nil
	}
	for file := range uses {
		if ring := visit([]string{file}); ring != nil {
			return ring
		}
	}
	return nil
}

// fileUses is, for each file of a package, the files that it uses, each with a name that it
// uses of it.
func fileUses(t *testing.T, path string) map[string]map[string]string {
	files, exported := listFiles(t, path)
	set := token.NewFileSet()
	var parsed []*ast.File
	receivers := map[*ast.Ident]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
		for _, d := range f.Decls {
			if method, ok := d.(*ast.FuncDecl); ok && method.Recv != nil {
				ast.Inspect(method.Recv, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						receivers[id] = true
					}
					return true
				})
			}
		}
	}
	lookup := func(path string) (io.ReadCloser, error) {
		if exported[path] == "" {
			return nil, fmt.Errorf("no compiled %s", path)
		}
		return os.Open(exported[path])
	}
	config := types.Config{Importer: importer.ForCompiler(set, "gc", lookup)}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	p, err := config.Check(path, set, parsed, &info)
	if err != nil {
		t.Fatal(err)
	}
	fileOf := func(at token.Pos) string { return filepath.Base(set.Position(at).Filename) }
	uses := map[string]map[string]string{}
	for id, object := range info.Uses {
		_, function := object.(*types.Func)
		if object.Pkg() != p || receivers[id] || !function && object.Parent() != p.Scope() {
			continue
		}
		from, to := fileOf(id.Pos()), fileOf(object.Pos())
		if from == to {
			continue
		}
		if uses[from] == nil {
			uses[from] = map[string]string{}
		}
		uses[from][to] = object.Name()
	}
	return uses
}

// listFiles are the files of a package on this machine, and what the packages that it needs
// export, compiled.
func listFiles(t *testing.T, path string) (files []string, exported map[string]string) {
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export", path).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exported = map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Dir, Export string
			GoFiles                 []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return files, exported
		} else if err != nil {
			t.Fatal(err)
		}
		exported[p.ImportPath] = p.Export
		if p.ImportPath == path {
			for _, name := range p.GoFiles {
				files = append(files, filepath.Join(p.Dir, name))
			}
		}
	}
}
