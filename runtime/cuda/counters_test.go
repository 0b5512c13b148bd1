//go:build cgo

package cuda

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestSharedCountersOutliveTheProcess has a C program give each counter a number, by its
// name in C, and be killed. Go reads the numbers from the file, by its own names.
func TestSharedCountersOutliveTheProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "counters")
	cmd := exec.Command(compile(t, "", "counters.c"), path)
	names, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("exit code %d (%v), want a kill", cmd.ProcessState.ExitCode(), err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadCounters(data)
	if err != nil {
		t.Fatal(err)
	}
	if got.State != Off {
		t.Errorf("state %d, want %d", got.State, Off)
	}
	inC := map[string]string{
		"PeakAllocated": "peak_allocated_bytes", "PeakReserved": "peak_reserved_bytes", "Failed": "failed_allocations",
	}
	listed := strings.Fields(string(names))
	fields := reflect.VisibleFields(reflect.TypeFor[Counters]())
	if n := binary.NativeEndian.Uint64(data); n != uint64(1+len(fields)) || len(listed) != len(fields)-1 {
		t.Errorf("stplan.h has %d counters, Go reads %d, this test's program names %d", n-2, len(fields)-1, len(listed))
	}
	for _, field := range fields[1:] {
		n := reflect.ValueOf(got).FieldByIndex(field.Index).Uint() - 1<<40
		want := inC[field.Name]
		if want == "" {
			want = snake(field.Name)
		}
		if n == 0 || n > uint64(len(listed)) || listed[n-1] != want {
			t.Errorf("%s: read number %d of %s, want that of %s", field.Name, n, listed, want)
		}
	}
}

// TestSharedCountersDecideNothing writes anything into the counters' file of a device
// that serves: the addresses that it hands out, and its own counters, stay the same.
func TestSharedCountersDecideNothing(t *testing.T) {
	t.Parallel()
	plan := planFile(t, periodic(cycle, [][]uint64{cycle}, []uint32{1}))
	execute(t, compile(t, memorySanitizers, "shared_counters.c"), filepath.Join(t.TempDir(), "counters"), plan)
}

// snake is AllocatedBytes as C writes it: allocated_bytes.
func snake(name string) string {
	var out strings.Builder
	for i, r := range name {
		if 'A' <= r && r <= 'Z' && i > 0 {
			out.WriteByte('_')
		}
		out.WriteRune(r)
	}
	return strings.ToLower(out.String())
}

func TestReadCountersChecksItsBounds(t *testing.T) {
	whole := make([]byte, 8*(2+len((&Counters{}).fields())))
	binary.NativeEndian.PutUint64(whole, uint64(len(whole)/8))
	if _, err := ReadCounters(append(whole, make([]byte, 80)...)); err != nil {
		t.Errorf("a file of a newer runtime: %v", err)
	}
	for n := range whole {
		if _, err := ReadCounters(whole[:n]); err == nil {
			t.Fatalf("%d of %d bytes were accepted", n, len(whole))
		}
	}
	if _, err := ReadCounters(bytes.Repeat([]byte{0}, len(whole))); err == nil || !strings.Contains(err.Error(), "found 0") {
		t.Errorf("a file that was never written: error %v", err)
	}
}
