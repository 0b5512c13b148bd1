package report

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"testing/quick"
)

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 23430: "23,430", -1234567: "-1,234,567",
		math.MinInt64: "-9,223,372,036,854,775,808", math.MaxInt64: "9,223,372,036,854,775,807",
	} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 1536: "1.50 KiB", 25000148992: "23.28 GiB",
		-2048: "-2.00 KiB", math.MaxInt64: "8.00 EiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

// A gap prints as zero only when it is zero: a rounded "0.000 %" would claim an
// optimum that is not proven.
func TestGapNeverRoundsToZero(t *testing.T) {
	if got, want := Gap(100, 100), "0 % (optimal)"; got != want {
		t.Errorf("Gap(100, 100) = %q, want %q", got, want)
	}
	for _, c := range []struct {
		plan, bound int64
		want        string
	}{
		{1 << 40, 1<<40 - 512, "4.7e-08 %"},
		{100290, 100000, "0.290 %"},
		{200, 100, "100.000 %"},
		{0, 0, "0 % (optimal)"},
	} {
		if got := Gap(c.plan, c.bound); got != c.want {
			t.Errorf("Gap(%d, %d) = %q, want %q", c.plan, c.bound, got, c.want)
		}
	}
}

// TestAccount checks the terms of account against the figures of a recorded
// gpt2-xl-ckpt run and the identities that hold between them.
func TestAccount(t *testing.T) {
	recorded := Account{PeakReserved: 25000148992, PeakAllocated: 21953911808}
	if got := recorded.Efficiency(); math.Abs(got-0.8782) > 0.00005 {
		t.Errorf("efficiency %.5f, want 0.8782", got)
	}
	if got := recorded.FragmentationRatio(); math.Abs(got-0.1218) > 0.00005 {
		t.Errorf("fragmentation ratio %.5f, want 0.1218", got)
	}
	expandable := Account{PeakReserved: 24171773952, PeakAllocated: 21953911808}
	share, ok := expandable.Reduction(recorded)
	if want := 1 - 2217862144.0/3046237184.0; !ok || math.Abs(share-want) > 1e-12 {
		t.Errorf("reduction %v %v, want %v", share, ok, want)
	}
	if _, ok := recorded.Reduction(Account{PeakReserved: 5, PeakAllocated: 5}); ok {
		t.Error("a baseline without waste has nothing to reduce")
	}
	if got := (Account{}).Efficiency(); got != 1 {
		t.Errorf("efficiency of nothing reserved is %v, want 1", got)
	}
	sum := func(reserved, allocated uint32) bool {
		a := Account{PeakReserved: int64(reserved) + 1, PeakAllocated: int64(allocated)}
		return math.Abs(a.Efficiency()+a.FragmentationRatio()-1) < 1e-9 && a.Waste()+a.PeakAllocated == a.PeakReserved
	}
	if err := quick.Check(sum, nil); err != nil {
		t.Error(err)
	}
}

func TestTableAligns(t *testing.T) {
	var table Table
	table.Row("a", "1", "x")
	table.Row("long — label", "1,000")
	var out strings.Builder
	if err := table.Write(&out); err != nil {
		t.Fatal(err)
	}
	want := "a                 1  x\nlong — label  1,000\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func compared() Compared {
	account := Account{PeakReserved: 1000, PeakAllocated: 800}
	plan := Account{PeakReserved: 850, PeakAllocated: 800}
	c := Compared{Trace: "run", Device: 1, SelfCheck: SelfCheck{Matched: 23430, Total: 23430}}
	c.Recorded = NewRow("native", 1000, account, 820, plan)
	c.Simulated.Native = NewRow("native", 1000, account, 820, plan)
	c.Simulated.Expandable = NewRow("expandable segments", 800, account, 820, plan)
	c.Plan = PlanRow{PlanBytes: 850, LowerBound: 800, PeakAllocated: 800, Efficiency: plan.Efficiency(), Waste: 50}
	return c
}

// TestComparedJSON pins the keys that scripts read.
func TestComparedJSON(t *testing.T) {
	var out strings.Builder
	if err := WriteJSON(&out, compared()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Recorded struct {
			Reserved  int64    `json:"peak_reserved_bytes"`
			Reduction *float64 `json:"plan_reduction"`
		} `json:"recorded"`
		Simulated struct {
			Native, Expandable struct {
				Reserved  int64    `json:"peak_reserved_bytes"`
				Reduction *float64 `json:"plan_reduction"`
			}
		} `json:"simulated"`
		Plan struct {
			Bytes int64 `json:"plan_bytes"`
		} `json:"plan"`
		SelfCheck struct{ Matched, Total int } `json:"self_check"`
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Recorded.Reserved != 1000 || got.Simulated.Native.Reserved != 1000 || got.Simulated.Expandable.Reserved != 800 ||
		got.Plan.Bytes != 850 || got.SelfCheck.Matched != 23430 || got.SelfCheck.Total != 23430 {
		t.Errorf("wrong figures: %+v", got)
	}
	if r := got.Recorded.Reduction; r == nil || math.Abs(*r-0.75) > 1e-12 {
		t.Errorf("reduction against the recording is %v, want 0.75", r)
	}
	if r := got.Simulated.Expandable.Reduction; r != nil {
		t.Errorf("expandable wastes nothing, so the reduction is null, not %v", *r)
	}
}

func TestComparedText(t *testing.T) {
	c := compared()
	c.Simulated.Expandable.OutOfMemory = &OutOfMemory{Event: 1234, Requested: 10, Reserved: 700}
	var out strings.Builder
	if err := c.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"device 1: peak allocated 800 B; self-check 23,430 / 23,430\n",
		"75.00 %", "out of memory  at event 1,234", "gap to the lower bound 6.250 %",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing %q in\n%s", want, out.String())
		}
	}
	c.SelfCheck.Matched--
	out.Reset()
	if err := c.Write(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "self-check 23,429 / 23,430: NOT exact") {
		t.Errorf("an inexact self-check is not said:\n%s", out.String())
	}
}
