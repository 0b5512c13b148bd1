package cuda

import (
	"bufio"
	"bytes"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFilesCallOneWay: the C files stand in layers. No file uses a function or variable
// of a file that uses one of its own, directly or through others. The symbols of the
// compiled objects say who uses whom.
func TestFilesCallOneWay(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	nm, err := exec.LookPath("nm")
	if err != nil {
		t.Skip("no nm")
	}
	files, err := filepath.Glob("*.c")
	if err != nil || len(files) < 15 {
		t.Fatalf("found %d C files: %v", len(files), err)
	}
	defines, uses := map[string]string{}, map[string][]string{}
	for _, file := range files {
		object := filepath.Join(t.TempDir(), file+".o")
		if out, err := exec.Command(cc, "-std=c11", "-O0", "-fno-inline", "-c", file, "-o", object).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", file, err, out)
		}
		out, err := exec.Command(nm, "-P", object).Output()
		if err != nil {
			t.Fatalf("nm: %v", err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) < 2 {
				continue
			}
			switch name, kind := fields[0], fields[1]; {
			case kind == "U":
				uses[file] = append(uses[file], name)
			case strings.Contains("TDBRC", kind):
				defines[name] = file
			}
		}
	}
	below := map[string]map[string]bool{}
	for file, names := range uses {
		below[file] = map[string]bool{}
		for _, name := range names {
			if other, ours := defines[name]; ours && other != file {
				below[file][other] = true
			}
		}
	}
	state := map[string]int{} // 1 while its uses are followed, 2 after
	var path []string
	var visit func(file string)
	visit = func(file string) {
		path = append(path, file)
		defer func() { path = path[:len(path)-1] }()
		state[file] = 1
		for _, other := range slices.Sorted(maps.Keys(below[file])) {
			switch state[other] {
			case 0:
				visit(other)
			case 1:
				t.Errorf("a circle: %s -> %s", strings.Join(path[slices.Index(path, other):], " -> "), other)
			}
		}
		state[file] = 2
	}
	links := 0
	for _, file := range files {
		links += len(below[file])
		if state[file] == 0 {
			visit(file)
		}
	}
	if links < len(files) {
		t.Errorf("found only %d uses between %d files", links, len(files))
	}
}
