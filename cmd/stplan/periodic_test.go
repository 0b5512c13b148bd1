package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// vectorPlan is the plan of one of internal/planfile's test vectors.
func vectorPlan(t *testing.T, name string) *planfile.Plan {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "internal", "planfile", "testdata", "vectors", name+".vec"))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "\n\n")
	data, err := hex.DecodeString(strings.ReplaceAll(body, "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	p, err := planfile.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func writePlan(t *testing.T, p *planfile.Plan) string {
	t.Helper()
	data, err := planfile.Encode(p)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "plan.bin")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUnrolled judges the rows of an unrolled plan pair by pair, knowing nothing
// of phases: none overlap, and together they are as large as the plan.
func TestUnrolled(t *testing.T) {
	p := vectorPlan(t, "ok-periodic")
	path := writePlan(t, p)
	for repeat := 1; repeat <= 7; repeat++ {
		var stdout, stderr bytes.Buffer
		if code := execute([]string{"inspect", path, "--csv", "--repeat", fmt.Sprint(repeat)}, strings.NewReader(""), &stdout, &stderr); code != exitOK {
			t.Fatalf("exit code %d: %s", code, stderr.String())
		}
		type row struct{ id, lower, upper, size, offset int }
		var rows []row
		top := 0
		for _, line := range strings.Split(strings.TrimSpace(stdout.String()), "\n")[1:] {
			var r row
			if _, err := fmt.Sscanf(line, "%d,%d,%d,%d,%d", &r.id, &r.lower, &r.upper, &r.size, &r.offset); err != nil {
				t.Fatalf("row %q: %v", line, err)
			}
			if r.id != len(rows) || r.lower >= r.upper {
				t.Errorf("row %d is %+v", len(rows), r)
			}
			for _, o := range rows {
				if r.lower < o.upper && o.lower < r.upper && r.offset < o.offset+o.size && o.offset < r.offset+r.size {
					t.Errorf("%d rounds: rows %+v and %+v overlap", repeat, o, r)
				}
			}
			rows, top = append(rows, r), max(top, r.offset+r.size)
		}
		// Three of the prologue; of the bodies four and two, without the stray.
		if want := 3 + repeat*5; len(rows) != want || uint64(top) != p.Devices[0].ArenaBytes {
			t.Errorf("%d rounds: %d rows up to %d B, expected %d up to %d B", repeat, len(rows), top, want, p.Devices[0].ArenaBytes)
		}
	}
}

// TestTooManyRows: what is refused prints nothing.
func TestTooManyRows(t *testing.T) {
	d := &vectorPlan(t, "ok-periodic").Devices[0]
	d.Phases[0].SlotCount, d.Phases[1].Length = 1, maxRows/2
	if err := checkRows("p", d, 1); err != nil {
		t.Error(err)
	}
	const want = "p: device 1: 2 rounds would be 50,000,005 rows, expected 50,000,000 at most"
	if err := checkRows("p", d, 2); err == nil || err.Error() != want {
		t.Errorf("error %v, expected %s", err, want)
	}
}

// TestForgedPeriodic: a plan that is a whole file and wrong only over the seam
// does not verify: slot 6 fills a cell that the next pass has not freed yet.
func TestForgedPeriodic(t *testing.T) {
	p := vectorPlan(t, "ok-periodic")
	p.Devices[0].Slots[3].RequestedEnd, p.Devices[0].Slots[3].CompletedEnd = 3, 3
	var stdout, stderr bytes.Buffer
	code := execute([]string{"verify", writePlan(t, p)}, strings.NewReader(""), &stdout, &stderr)
	if code != exitNo || !strings.Contains(stderr.String(), "does not verify: device 1: overlap: slot 2 of the prologue") {
		t.Errorf("exit code %d, expected %d: %s", code, exitNo, stderr.String())
	}
}
