//go:build cgo

package cuda

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// TestAnyCallOfTheDriverMayFail runs the conformance suite on a driver that refuses
// everything that the real one does not allow, and then a program again and again: each time
// another call fails.
func TestAnyCallOfTheDriverMayFail(t *testing.T) {
	t.Parallel()
	program, dir := compile(t, memorySanitizers, "driver.c", "conformance.c"), t.TempDir()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	library := filepath.Join(dir, "libcuda.so.1")
	args := []string{"-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", filepath.Join("ctest", "fake_driver.c"), "-o", library, "-lpthread"}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	every := "1"
	if testing.Short() {
		every = "7"
	}
	cmd := exec.Command(program, every)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// TestStressOrder drives two devices from many threads on many streams, and checks the
// order of uses: no block may be handed out unless it is ordered behind all former uses of
// its memory, and no memory may be given back to the device that something may still use.
// There are captures, limits that change, and calls of the device that fail.
func TestStressOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles twice under sanitizers, which takes seconds")
	}
	cycle := []uint64{4096, 65536, 1 << 20, 303104, 4096, 2 << 20, 8192, 131072} // as ctest/ordered.c has it
	plan := encode(t, brief(periodic(cycle, [][]uint64{slices.Repeat(cycle, 16)}, []uint32{1})))
	for sanitizer, operations := range map[string]int{memorySanitizers: *stress, "thread": *stress / 4} {
		t.Run(sanitizer, func(t *testing.T) {
			t.Parallel()
			program := compile(t, sanitizer, "ordered.c", "model.c")
			path := filepath.Join(t.TempDir(), "plan.bin")
			if err := os.WriteFile(path, plan, 0o644); err != nil {
				t.Fatal(err)
			}
			for _, events := range []string{"whole", "known"} {
				for _, failures := range []string{"0", "50"} {
					execute(t, program, strconv.Itoa(operations), failures, events)
					execute(t, program, strconv.Itoa(operations), failures, events, path)
				}
			}
		})
	}
}

// TestAnyCalls makes any calls of the interface in any order, with odd arguments: all accounts
// of memory have to agree with each other, with the device's and with the blocks handed out.
func TestAnyCalls(t *testing.T) {
	t.Parallel()
	sequences := "400"
	if testing.Short() {
		sequences = "100"
	}
	cycle := []uint64{4096, 65536, 1 << 20, 303104, 4096, 2 << 20, 8192, 131072} // as ctest/calls.c has it
	path := planFile(t, brief(periodic(cycle, [][]uint64{slices.Repeat(cycle, 16)}, []uint32{1})))
	program := compile(t, memorySanitizers, "calls.c")
	execute(t, program, sequences, "1")
	execute(t, program, sequences, "100000", path)
}

// TestHostilePlans changes good plans as TestReadersAgree does, and serves those that are
// accepted all the same.
func TestHostilePlans(t *testing.T) {
	t.Parallel()
	rounds := 4000
	if testing.Short() {
		rounds = 400
	}
	rng := rand.New(rand.NewPCG(7, 0))
	good := [][]byte{encode(t, recorded(cycle)), encode(t, periodic(cycle, [][]uint64{cycle, slices.Repeat(cycle, 2)}, []uint32{1, 2, 1}))}
	for _, name := range []string{"ok-sample.vec", "ok-several.vec", "ok-periodic.vec", "ok-periodic-completed.vec", "ok-periodic-words.vec"} {
		_, data := readVector(t, filepath.Join(vectors, name))
		good = append(good, data)
	}
	var accepted []byte
	count := 0
	for _, plan := range good {
		for range rounds {
			data := change(plan, rng)
			if _, err := planfile.Decode(data); err == nil {
				accepted = binary.NativeEndian.AppendUint64(accepted, uint64(len(data)))
				accepted = append(accepted, data...)
				count++
			}
		}
	}
	if count < rounds/10 {
		t.Fatalf("only %d of %d changed plans were accepted", count, len(good)*rounds)
	}
	path := filepath.Join(t.TempDir(), "plans")
	if err := os.WriteFile(path, accepted, 0o644); err != nil {
		t.Fatal(err)
	}
	execute(t, compile(t, memorySanitizers, "hostile.c"), path)
}

// TestCountersWithoutRoom keeps counters on a disk that is full: that has to be an error,
// and not to end the process at the first count.
func TestCountersWithoutRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	full := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
		`mount -t tmpfs -o size=4k none "$1" && head -c 4096 /dev/zero >"$1/file" || exit 77; exec "$2" "$1/counters"`, "sh", dir, compile(t, "", "counters.c"))
	out, err := full.CombinedOutput()
	if code := full.ProcessState.ExitCode(); full.ProcessState == nil || code == 77 || strings.Contains(string(out), "unshare:") {
		t.Skipf("no file system to fill: %v: %s", err, out)
	} else if code != 1 {
		t.Errorf("it ends with %v, expected 1: the counters are not kept: %s", full.ProcessState, out)
	}
}

// TestPlanOfALargerDevice serves a plan that takes many times the memory of the device,
// a little at a time, beside requests off plan: the addresses of the two may not meet.
func TestPlanOfALargerDevice(t *testing.T) {
	const mib, places, besides = 1 << 20, 150, 3<<20 + 512
	sizes := make([]uint64, places)
	for i := range sizes {
		sizes[i] = mib
	}
	d := open(t, recorded(sizes), Options{Capacity: 32 * mib, Granularity: 2 * mib, Partial: true})
	type block struct{ low, high uint64 }
	var live []block
	get := func(size uint64) {
		at, _, err := d.Malloc(size, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range live {
			if at < b.high && b.low < at+up(size) {
				t.Fatalf("%d B at %#x: [%#x, %#x) is live", size, at, b.low, b.high)
			}
		}
		live = append(live, block{at, at + up(size)})
	}
	drop := func(i int) {
		if err := d.Free(live[i].low, 0); err != nil {
			t.Fatalf("the block at %#x: %v", live[i].low, err)
		}
		live = slices.Delete(live, i, i+1)
	}
	for i, size := range sizes {
		get(size)
		if i%20 == 0 {
			get(besides)
		}
		if len(live) > 8 {
			drop(i % 3)
		}
	}
	for len(live) > 0 {
		drop(0)
	}
	if c := d.Counters(); c.AllocatedBytes != 0 || c.RefusedFrees != 0 {
		t.Errorf("%+v", c)
	}
}
