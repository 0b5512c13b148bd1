package report

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	comparedAccount = Account{PeakReserved: 1000, PeakAllocated: 800}
	comparedPlan    = Account{PeakReserved: 850, PeakAllocated: 800}
)

func simulatedRow(key, title string, peakReserved int64) ComparedRow {
	return NewRow(key, title, peakReserved, comparedAccount, 820, comparedPlan)
}

func compared() Compared {
	plan := comparedPlan
	return Compared{
		Trace: "run", Device: 1, SelfCheck: SelfCheck{Matched: 23430, Total: 23430},
		Recorded: simulatedRow("recorded", "native", 1000),
		Simulated: Simulated{
			simulatedRow("native", "native", 1000),
			simulatedRow("expandable", "expandable segments", 800),
		},
		Plan: PlanRow{
			Mode: "periodic", PlanBytes: 850, PeakReserved: 850, LowerBound: 800, PeakAllocated: 800,
			Efficiency: plan.Efficiency(), Waste: 50,
		},
	}
}

func comparedText(t *testing.T, c Compared) string {
	t.Helper()
	var out strings.Builder
	if err := c.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestComparedJSON checks the keys that scripts read.
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

// TestSimulatedJSON expects the rows as one object in their order, whatever
// allocators there are, and the rows of --config after them.
func TestSimulatedJSON(t *testing.T) {
	rows := func(keys ...string) (s Simulated) {
		for _, k := range keys {
			key, _, _ := strings.Cut(k, " ")
			s = append(s, ComparedRow{Key: key, Title: k})
		}
		return s
	}
	row := func(title string) string {
		return `{"settings":"` + title + `","peak_reserved_bytes":0,"peak_allocated_bytes":0,"peak_active_bytes":0,` +
			`"efficiency":null,"fragmentation_ratio":null,"waste_bytes":null,"plan_reduction":null,"retries":0,"peak_event":null,"out_of_memory":null}`
	}
	first, second := row("configured [256:1,>:8]"), row("configured b")
	for _, tc := range []struct {
		rows Simulated
		want string
	}{
		{rows("native", "expandable"), `{"native":` + row("native") + `,"expandable":` + row("expandable") + `,"configured":null}`},
		{rows("zebra", "native", "configured [256:1,>:8]"), `{"zebra":` + row("zebra") + `,"native":` + row("native") + `,"configured":` + first + `}`},
		{rows("native", "configured [256:1,>:8]", "configured b"),
			`{"native":` + row("native") + `,"configured":` + first + `,"configurations":[` + first + `,` + second + `]}`},
		{nil, `{"configured":null}`},
	} {
		var out strings.Builder
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(tc.rows); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(out.String()); got != tc.want {
			t.Errorf("got\n%s\nwant\n%s", got, tc.want)
		}
	}
}

func TestComparedText(t *testing.T) {
	c := compared()
	c.Simulated[1].RanOut(OutOfMemory{Event: 1234, Requested: 10, Reserved: 700})
	c.Simulated = append(c.Simulated, simulatedRow(KeyConfigured,
		"max_split_size_mb:40,garbage_collection_threshold:0.8,\troundup_power2_divisions:[256:1,512:2,1024:4,>:8]", 900))
	const want = `device 1: peak allocated 800 B; self-check 23,430 / 23,430

                                    peak                       waste the
                                reserved  efficiency  waste  plan avoids
recorded (native)                 1000 B     80.00 %  200 B      75.00 %
native, simulated                 1000 B     80.00 %  200 B      75.00 %
expandable segments, simulated  out of memory at event 1,234
max_split_size_mb:40,garbage_collection_threshold:0.8,
  roundup_power2_divisions:[256:1,512:2,1024:4,>:8], simulated
                                   900 B     88.89 %  100 B      50.00 %
plan (periodic)                    850 B     94.12 %   50 B

plan: gap to the lower bound 6.250 %; 0 waits
`
	if got := comparedText(t, c); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	c.SelfCheck.Matched--
	if got := comparedText(t, c); !strings.Contains(got, "self-check 23,429 / 23,430: NOT exact") {
		t.Errorf("an inexact self-check is not said:\n%s", got)
	}
	c.Simulated[1].OutOfMemory.Event = -1
	if got := comparedText(t, c); !strings.Contains(got, "out of memory before the first event\n") {
		t.Errorf("running out of memory at the start is not said:\n%s", got)
	}
}

// TestPeersText: allocators that were asked for have a second table, with the events of their
// peaks, and one that cannot serve the job says why.
func TestPeersText(t *testing.T) {
	c := compared()
	at := func(r ComparedRow, event int64, retries int) ComparedRow {
		r.PeakEvent, r.Retries = &event, retries
		return r
	}
	c.Recorded = at(c.Recorded, 7, 0)
	c.Simulated[0] = at(c.Simulated[0], 8, 0)
	estimate := at(simulatedRow("cuda_malloc_async", "cudaMallocAsync", 900), 12_345, 3)
	estimate.Estimated(0.12)
	if *estimate.Low != 800 || *estimate.High != 1008 {
		t.Errorf("from %d to %d, expected 800, which the program needs, to 1008", *estimate.Low, *estimate.High)
	}
	unfit := simulatedRow("stalloc", "STAlloc", 0)
	unfit.CannotServe("1 steady iterations of 2, expected at least 2, and a reason that is long enough to be wrapped")
	c.Simulated = append(c.Simulated, estimate, unfit)
	const want = `device 1: peak allocated 800 B; self-check 23,430 / 23,430

                                      peak                       waste the
                                  reserved  efficiency  waste  plan avoids
recorded (native)                   1000 B     80.00 %  200 B      75.00 %
native, simulated                   1000 B     80.00 %  200 B      75.00 %
expandable segments, simulated       800 B    100.00 %    0 B            -
cudaMallocAsync ±12 %, simulated     900 B     88.89 %  100 B      50.00 %
STAlloc, simulated                cannot serve this job
plan (periodic)                      850 B     94.12 %   50 B

                                  peaks at event  retries
recorded (native)                              7        0
native, simulated                              8        0
cudaMallocAsync ±12 %, simulated          12,345        3

STAlloc: 1 steady iterations of 2, expected at least 2, and a reason that is
         long enough to be wrapped

plan: gap to the lower bound 6.250 %; 0 waits
`
	if got := comparedText(t, c); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestRanOut: an allocator that stopped in the middle has no efficiency: what it
// reserved is less than what the program needs.
func TestRanOut(t *testing.T) {
	r := simulatedRow("native", "native", 700)
	if *r.Efficiency <= 1 || *r.Waste >= 0 {
		t.Fatalf("efficiency %g and waste %d make sense", *r.Efficiency, *r.Waste)
	}
	r.RanOut(OutOfMemory{Event: 5, Requested: 10, Reserved: 600})
	if r.Efficiency != nil || r.FragmentationRatio != nil || r.Waste != nil || r.PlanReduction != nil || r.PeakReserved != 700 {
		t.Errorf("%+v", r)
	}
}

// TestComparedWidth has the widest figures and labels that can be expected.
func TestComparedWidth(t *testing.T) {
	c := compared()
	c.Recorded = NewRow("recorded", "expandable segments", 1<<30-1, Account{PeakAllocated: 5 << 10}, 0, Account{PeakReserved: 1<<40 - 1})
	c.SelfCheck = SelfCheck{Matched: 123_456_789, Total: 123_456_790}
	c.Plan.Waits, c.Plan.CrossWaits = math.MaxInt32, math.MaxInt32
	for _, title := range []string{
		"expandable segments", "max_split_size_mb:512", strings.Repeat("x", 200), strings.Repeat("ключ:значение,", 20), strings.Repeat(", ", 100),
		"garbage_collection_threshold:0.8,per_process_memory_fraction:0.05,device_memory:150110011392,max_split_size_mb:512",
	} {
		row := simulatedRow(KeyConfigured, title, 1<<30-1)
		c.Simulated = append(c.Simulated, row)
		row.RanOut(OutOfMemory{Event: math.MaxInt32})
		c.Simulated = append(c.Simulated, row)
	}
	for line := range strings.Lines(comparedText(t, c)) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
