package report

import (
	"math"
	"strings"
	"testing"
	"testing/quick"
)

// TestHeadBreaksTitles: titles are as wide as figures, and end at one line.
func TestHeadBreaksTitles(t *testing.T) {
	var table Table
	table.Head("recording", "plan", "expandable segments", "avoids of native's waste")
	table.Row("a", "1 B", "2 B", "3 B")
	var out strings.Builder
	if err := table.Write(&out); err != nil {
		t.Fatal(err)
	}
	const want = `                             avoids of
                 expandable   native's
recording  plan    segments      waste
a           1 B         2 B        3 B
`
	if out.String() != want {
		t.Errorf("got\n%s\nexpected\n%s", out.String(), want)
	}
}

// TestTableFitsTheTerminal: columns for which there is no room follow below, with the names,
// and names that leave no room have lines of their own. Nothing is lost.
func TestTableFitsTheTerminal(t *testing.T) {
	for _, name := range []string{"rank0.pickle.gz device 0", strings.Repeat("n", widestName+1), strings.Repeat("n", 2*lineWidth)} {
		for columns := 1; columns < 30; columns++ {
			var table Table
			titles, cells := []string{"recording"}, []string{name}
			for i := range columns {
				titles = append(titles, "allocator "+Count(i))
				cells = append(cells, "cell"+Count(i)+strings.Repeat("x", i%9))
			}
			table.Head(titles...)
			table.Row(cells...)
			table.Row("a", "b")
			var out strings.Builder
			if err := table.Write(&out); err != nil {
				t.Fatal(err)
			}
			var found []string
			for line := range strings.Lines(out.String()) {
				if n := len(strings.TrimSuffix(line, "\n")); n > lineWidth {
					t.Errorf("%d columns: a line of %d: %s", columns, n, line)
				}
				for _, word := range strings.Fields(line) {
					if strings.HasPrefix(word, "cell") {
						found = append(found, word)
					}
				}
			}
			if got, want := strings.Join(found, " "), strings.Join(cells[1:], " "); got != want {
				t.Errorf("%d columns: cells %s, expected %s", columns, got, want)
			}
		}
	}
}

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
