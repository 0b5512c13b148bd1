package report

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// servedJob is a job with that many ranks: of a thousand allocations each, rank r
// has r off plan.
func servedJob(ranks int) *Served {
	s := &Served{}
	for r := range ranks {
		planned, plan, recorded := int64(1000-r), int64(4<<20), int64(5<<20)
		d := ServedDevice{
			PlanState: "body", Allocations: 1000, AllocationBytes: 512_000,
			PlannedAllocations: planned, PlannedBytes: 512 * planned,
			PeakAllocated: 4 << 20, PeakReserved: 4<<20 + int64(r), PlanBytes: &plan, RecordedPeakReserved: &recorded,
			DriftEvents: 1, Waits: 10,
		}
		d.Derive()
		s.Processes = append(s.Processes, ServedProcess{Name: fmt.Sprintf("train-rank%d", r), Devices: []ServedDevice{d}})
	}
	return s
}

func servedText(t *testing.T, s *Served) []string {
	var out strings.Builder
	if err := s.Write(&out); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// Of many ranks those are shown that a reader has to see, and what is left out
// is in the last line.
func TestServedFoldsManyRanks(t *testing.T) {
	lines := servedText(t, servedJob(40))
	if len(lines) != 2+servedRows+2 {
		t.Fatalf("%d lines, want a heading of two, %d rows and two more:\n%s", len(lines), servedRows, strings.Join(lines, "\n"))
	}
	for i, want := range map[int]string{
		2:              "train-rank39",
		servedRows + 1: "train-rank24",
		servedRows + 2: "... and 24 more",
		servedRows + 3: "all 40 (largest peaks)   98.05 %   4.00 MiB  4.00 MiB  5.00 MiB     40    400",
	} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
}

func TestServedWithoutAPlanInOneProcess(t *testing.T) {
	s := servedJob(2)
	s.Processes[1].Devices[0].PlanBytes, s.Processes[1].Devices[0].RecordedPeakReserved = nil, nil
	lines := servedText(t, s)
	if got := strings.Fields(lines[3]); got[1] != "-" || got[6] != "-" {
		t.Errorf("a process without a plan has shares: %q", lines[3])
	}
	s.Processes[0].Devices, s.Processes[1].Devices = nil, nil
	if lines := servedText(t, s); lines[0] != "" {
		t.Errorf("nothing was allocated, and the table is %q", lines)
	}
}

// TestServedJSON pins the keys that scripts read.
func TestServedJSON(t *testing.T) {
	var out strings.Builder
	if err := WriteJSON(&out, servedJob(1)); err != nil {
		t.Fatal(err)
	}
	var got struct {
		ExitCode  int `json:"exit_code"`
		Processes []struct {
			Name, Backend *string
			Devices       []map[string]any
		}
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if p := got.Processes[0]; *p.Name != "train-rank0" || p.Backend != nil {
		t.Errorf("wrong process: %+v", p)
	}
	for key, want := range map[string]any{
		"plan_state": "body", "planned_fraction": 1.0, "planned_bytes_fraction": 1.0, "efficiency": 1.0,
		"peak_reserved_bytes": 4194304.0, "peak_allocated_bytes": 4194304.0, "recorded_peak_reserved_bytes": 5242880.0,
		"drift_events": 1.0, "waits": 10.0,
	} {
		if d := got.Processes[0].Devices[0]; d[key] != want {
			t.Errorf("%s is %v, want %v", key, d[key], want)
		}
	}
}

func TestNames(t *testing.T) {
	for want, names := range map[string][]string{
		"":                   nil,
		"a":                  {"a"},
		"a and b":            {"a", "b"},
		"a, b, c and d":      {"a", "b", "c", "d"},
		"a, b, c and 2 more": {"a", "b", "c", "d", "e"},
	} {
		if got := Names(names); got != want {
			t.Errorf("%v are %q, want %q", names, got, want)
		}
	}
}
