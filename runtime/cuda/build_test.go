//go:build cgo

package cuda

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// compile builds C tests with the runtime's sources, under a sanitizer unless it
// is "", and skips where the compiler has none.
func compile(t *testing.T, sanitizer string, tests ...string) string {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("no C compiler %q", cc)
	}
	flags := []string{"-std=c11", "-D_POSIX_C_SOURCE=200809L", "-g", "-O1", "-Wall", "-Wextra", "-Werror"}
	if sanitizer != "" {
		flags = append(flags, "-fno-sanitize-recover=all", "-fsanitize="+sanitizer)
	}
	dir := t.TempDir()
	probe := filepath.Join(dir, "probe.c")
	if err := os.WriteFile(probe, []byte("int main(void) { return 0; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, append(flags, probe, "-o", probe+".out")...).CombinedOutput(); err != nil {
		t.Skipf("%s has no -fsanitize=%s: %s", cc, sanitizer, out)
	}
	if out, err := exec.Command(probe + ".out").CombinedOutput(); err != nil {
		t.Skipf("-fsanitize=%s does not run here: %v: %s", sanitizer, err, out)
	}
	sources, err := filepath.Glob("*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no C sources: %v", err)
	}
	for _, name := range tests {
		sources = append(sources, filepath.Join("ctest", name))
	}
	program := filepath.Join(dir, "test")
	args := append(append(flags, sources...), "-o", program, "-lpthread", "-ldl", "-lm")
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", cc, strings.Join(args, " "), err, out)
	}
	return program
}

func execute(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	t.Logf("%s", out)
}

// stress is for the searches of "make stress"; the default takes a second.
var stress = flag.Int("stress", 10_000, "operations of each of the 8 threads of TestStress")

const memorySanitizers = "address,undefined"

// TestConformance runs the suite that any device primitives have to pass on
// those without a device.
func TestConformance(t *testing.T) {
	t.Parallel()
	execute(t, compile(t, memorySanitizers, "host.c", "conformance.c"))
}

// TestDeviceConformance runs it on the CUDA driver's, where there is a device.
func TestDeviceConformance(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(compile(t, "", "device.c", "conformance.c"))
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	const noDevice = 77
	if cmd.ProcessState.ExitCode() == noDevice {
		t.Skipf("no device: %s", out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestStress drives one device object from many threads and streams, with a plan
// and without, and demands that no two blocks ever share a byte.
func TestStress(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles twice under sanitizers, which takes seconds")
	}
	for sanitizer, operations := range map[string]int{memorySanitizers: *stress, "thread": *stress / 4} {
		t.Run(sanitizer, func(t *testing.T) {
			t.Parallel()
			program := compile(t, sanitizer, "stress.c")
			plan := filepath.Join(t.TempDir(), "plan.bin")
			if err := os.WriteFile(plan, encode(t, stressPlan()), 0o644); err != nil {
				t.Fatal(err)
			}
			execute(t, program, strconv.Itoa(operations))
			execute(t, program, strconv.Itoa(operations), plan)
		})
	}
}
