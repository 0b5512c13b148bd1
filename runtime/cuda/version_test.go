//go:build cgo

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestVersion: Go reads from stplan.h what a C program does. The Python package's tests
// compare Python's.
func TestVersion(t *testing.T) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(Version) {
		t.Errorf("version %q, want three numbers", Version)
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("no C compiler %q", cc)
	}
	source, program := filepath.Join(t.TempDir(), "version.c"), filepath.Join(t.TempDir(), "version")
	if err := os.WriteFile(source, []byte("#include \"stplan.h\"\n#include <stdio.h>\nint main(void) { return puts(STPLAN_VERSION) < 0; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-I.", source, "-o", program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command(program).Output(); err != nil || string(out) != Version+"\n" {
		t.Errorf("C has version %q (error %v), Go %q", out, err, Version)
	}
}
