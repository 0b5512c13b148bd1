//go:build cgo

package cuda

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// compile builds C tests with the runtime's sources, under a sanitizer unless that is
// "". It skips the test if there is no compiler, or if it lacks the sanitizer.
func compile(t testing.TB, sanitizer string, tests ...string) string {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("no C compiler %q", cc)
	}
	flags := []string{"-std=c11", "-D_POSIX_C_SOURCE=200809L", "-g", "-Wall", "-Wextra", "-Werror"}
	if sanitizer != "" {
		flags = append(flags, "-O1", "-fno-sanitize-recover=all", "-fsanitize="+sanitizer)
	} else {
		flags = append(flags, "-O2")
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
	program := filepath.Join(dir, "test")
	args := append(flags, runtimeObject(t, cc, sanitizer, flags))
	for _, name := range tests {
		args = append(args, filepath.Join("ctest", name))
	}
	args = append(args, "-o", program, "-lpthread", "-ldl", "-lm")
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", cc, strings.Join(args, " "), err, out)
	}
	return program
}

// objects are the runtime's sources compiled, by sanitizer: once for all tests.
var objects struct {
	sync.Mutex
	folder string
	paths  map[string]string
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(objects.folder)
	os.Exit(code)
}

func runtimeObject(t testing.TB, cc, sanitizer string, flags []string) string {
	t.Helper()
	objects.Lock()
	defer objects.Unlock()
	if path := objects.paths[sanitizer]; path != "" {
		return path
	}
	sources, err := filepath.Glob("*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no C sources: %v", err)
	}
	if objects.paths == nil {
		objects.paths = map[string]string{}
		if objects.folder, err = os.MkdirTemp("", "stplan-objects-"); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(objects.folder, strconv.Itoa(len(objects.paths))+".o")
	args := slices.Concat(flags, []string{"-r", "-nostdlib"}, sources, []string{"-o", path})
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", cc, strings.Join(args, " "), err, out)
	}
	objects.paths[sanitizer] = path
	return path
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

// stress is for the searches of "make stress"; the default takes some seconds.
var stress = flag.Int("stress", 5_000, "operations of each of the 8 threads of TestStress")

const memorySanitizers = "address,undefined"

// TestConformance runs the suite that all device primitives have to pass on those of a
// simulated device.
func TestConformance(t *testing.T) {
	t.Parallel()
	execute(t, compile(t, memorySanitizers, "host.c", "conformance.c"))
}

// TestTree compares the ordered tree with an array.
func TestTree(t *testing.T) {
	t.Parallel()
	execute(t, compile(t, memorySanitizers, "tree.c"))
}

// TestMoving drives memory that moves, that is pinned, and that does not move.
func TestMoving(t *testing.T) {
	t.Parallel()
	execute(t, compile(t, memorySanitizers, "moving.c"))
	if !testing.Short() {
		execute(t, compile(t, "thread", "moving.c"))
	}
}

// TestRooms drives pools that are large enough for large granules: their number, what is
// reserved, and that no two blocks share a byte.
func TestRooms(t *testing.T) {
	t.Parallel()
	execute(t, compile(t, memorySanitizers, "rooms.c"))
	if !testing.Short() {
		execute(t, compile(t, "thread", "rooms.c"))
	}
}

// TestLibraries fills a device, and looks at what is left of it for others.
func TestLibraries(t *testing.T) {
	t.Parallel()
	execute(t, compile(t, memorySanitizers, "libraries.c"))
}

// TestBetweenCalls has other threads do what hurts most between two calls of the device that
// one request makes.
func TestBetweenCalls(t *testing.T) {
	t.Parallel()
	execute(t, compile(t, memorySanitizers, "between.c"))
}

// TestPluggable calls the functions that torch's pluggable allocator calls.
func TestPluggable(t *testing.T) {
	t.Parallel()
	execute(t, compile(t, memorySanitizers, "pluggable.c"))
}

// TestWhatStopsMoving runs a process for each thing that has memory stop moving, or that
// might be taken for one. It is said once if the user has not asked for it.
func TestWhatStopsMoving(t *testing.T) {
	t.Parallel()
	program := compile(t, memorySanitizers, "still.c")
	const captured = "stplan: from now on memory does not move: one of several ranks captures a graph or uses a MemPool, and NCCL may register buffers\n"
	for way, said := range map[string]string{
		"asked":        "",
		"registers":    "stplan: from now on memory does not move: TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK is set: NCCL registers it\n",
		"ranks":        captured,
		"world":        captured,
		"one":          "",
		"unregistered": "",
	} {
		cmd := exec.Command(program, way)
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WORLD_SIZE=") }), "ASAN_OPTIONS=detect_leaks=0") // devices are never closed
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != said {
			t.Errorf("%s: %v, says %q, expected %q", way, err, out, said)
		}
	}
}

// TestDeviceConformance runs the conformance suite on the primitives of the CUDA
// driver, if there is a device.
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

// TestProcess opens the devices of a process, with a plan for one of them.
func TestProcess(t *testing.T) {
	t.Parallel()
	program := compile(t, memorySanitizers, "process.c")
	dir := t.TempDir()
	plan, damaged := planFile(t, recorded([]uint64{4096})), filepath.Join(dir, "damaged.bin")
	if err := os.WriteFile(damaged, []byte("no plan"), 0o644); err != nil {
		t.Fatal(err)
	}
	execute(t, program, plan, damaged)
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
			plan := planFile(t, stressPlan())
			execute(t, program, strconv.Itoa(operations))
			execute(t, program, strconv.Itoa(operations), plan)
		})
	}
}

// TestInstallFromThreads has plans come while several threads make requests, and memory is held.
func TestInstallFromThreads(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles twice under sanitizers, which takes seconds")
	}
	for _, sanitizer := range []string{memorySanitizers, "thread"} {
		t.Run(sanitizer, func(t *testing.T) {
			t.Parallel()
			plan := planFile(t, brief(stressPlan()))
			execute(t, compile(t, sanitizer, "install.c"), strconv.Itoa(*stress/100), plan)
		})
	}
}

// TestHistory keeps histories under the sanitizers: until they are full, while several
// threads make requests, and while they are written.
func TestHistory(t *testing.T) {
	for _, sanitizer := range []string{memorySanitizers, "thread"} {
		t.Run(sanitizer, func(t *testing.T) {
			t.Parallel()
			execute(t, compile(t, sanitizer, "history.c"))
		})
	}
}

// BenchmarkPair is an allocation and its free, without Go around them: in a pool
// of 1,500 other blocks, and in the places of a plan, which is served throughout.
func BenchmarkPair(b *testing.B) {
	program := compile(b, "", "pair.c")
	plan := planFile(b, periodic(cycle, [][]uint64{cycle}, []uint32{1}))
	for name, args := range map[string][]string{"pool": nil, "plan": {plan}} {
		b.Run(name, func(b *testing.B) {
			b.ReportMetric(pair(b, program, max(b.N, 8), args...), "ns/pair")
		})
	}
}

// BenchmarkHistory is what a history costs an allocation and its free in the pool: the
// median with it by that without it. The two are measured in turn, as the machine may have
// other work.
func BenchmarkHistory(b *testing.B) {
	const turns, pairs = 15, 1_000_000
	program := compile(b, "", "pair.c")
	for b.Loop() {
		var without, with []float64
		for range turns {
			without = append(without, pair(b, program, pairs))
			with = append(with, pair(b, program, pairs, "--history"))
		}
		slices.Sort(without)
		slices.Sort(with)
		b.ReportMetric(without[turns/2], "ns/pair-without")
		b.ReportMetric(with[turns/2], "ns/pair-with")
		b.ReportMetric(with[turns/2]/without[turns/2], "ratio")
	}
}

// pair is the time of an allocation and its free in nanoseconds, as pair.c measures it.
func pair(b *testing.B, program string, pairs int, args ...string) float64 {
	b.Helper()
	out, err := exec.Command(program, append([]string{strconv.Itoa(pairs)}, args...)...).CombinedOutput()
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		b.Fatal(err)
	}
	return ns
}
