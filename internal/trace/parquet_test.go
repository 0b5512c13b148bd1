package trace

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/trace/parquet"
)

// canonical orders a trace's tables by first appearance in the Parquet form, so that
// traces with the same meaning are deeply equal.
func canonical(t *Trace) *Trace {
	out := &Trace{Settings: t.Settings, Notes: append([]string(nil), t.Notes...)}
	stack := func(s int32) string {
		var b strings.Builder
		for _, f := range t.Stacks.At(s) {
			fmt.Fprintf(&b, "%q\n", t.Stacks.Frames[f])
		}
		return b.String()
	}
	stacks := map[string]int32{}
	str := map[string]int32{}
	number := func(table map[string]int32, text string) int32 {
		if _, ok := table[text]; !ok {
			table[text] = int32(len(table))
			out.Strings = append(out.Strings, text)
		}
		return table[text]
	}
	known := map[int32]int32{None: None}
	stackNo := func(s int32) int32 {
		if _, ok := known[s]; !ok {
			known[s] = number(stacks, stack(s))
		}
		return known[s]
	}
	textNo := func(s int32) int32 {
		if s == None {
			return None
		}
		return number(str, t.Strings[s])
	}
	for i := range t.Devices {
		d := t.Devices[i]
		c := Device{Ordinal: d.Ordinal, InitialInferred: d.InitialInferred}
		pools := map[PoolID]int16{}
		for _, e := range d.Events {
			e.Stack, e.UserMetadata, e.CompileContext = stackNo(e.Stack), textNo(e.UserMetadata), textNo(e.CompileContext)
			if e.Pool >= 0 {
				id := d.Pools[e.Pool]
				if _, ok := pools[id]; !ok {
					pools[id] = int16(len(pools))
					c.Pools = append(c.Pools, id)
				}
				e.Pool = pools[id]
			}
			c.Events = append(c.Events, e)
		}
		c.Annotations = append(c.Annotations, d.Annotations...)
		segments := func(in []Segment) (out []Segment) {
			for _, s := range in {
				blocks := append([]Block{}, s.Blocks...)
				for k := range blocks {
					blocks[k].Stack = stackNo(blocks[k].Stack)
				}
				s.Blocks = blocks
				out = append(out, s)
			}
			return out
		}
		c.Initial, c.Final = segments(d.Initial), segments(d.Final)
		out.Devices = append(out.Devices, c)
	}
	return out
}

func encode(t testing.TB, tr *Trace) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteParquet(&b, tr, Options{}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func decode(data []byte, opt Options) (*Trace, error) {
	return ReadParquet(bytes.NewReader(data), int64(len(data)), "t.parquet", opt)
}

// checkRoundTrip writes and reads a trace, and expects the same trace. It then writes
// that again, and expects the same bytes.
func checkRoundTrip(t *testing.T, tr *Trace) {
	t.Helper()
	data := encode(t, tr)
	got, err := decode(data, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want, got := canonical(tr), canonical(got); !reflect.DeepEqual(want, got) {
		t.Fatalf("round trip differs:\nwant %.2000v\ngot  %.2000v", want, got)
	}
	if again := encode(t, got); !bytes.Equal(data, again) {
		t.Fatalf("written again: %d bytes, first time %d, or other content", len(again), len(data))
	}
}

func TestRoundTripRandom(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			checkRoundTrip(t, randomTrace(seed, 400))
		})
	}
}

// A trace of several row groups: their tables are merged.
func TestRoundTripRowGroups(t *testing.T) {
	checkRoundTrip(t, randomTrace(1, parquet.GroupRows))
}

// randomText has the characters that have a meaning in some text form.
func randomText(r *rand.Rand) string {
	parts := []string{"", ":", "\\", "\n", "\\n", "a", "é", "??", "torch/nn/module.py", " ", "\x00", "\r", ",", "\""}
	var b strings.Builder
	for range r.IntN(5) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

// randomTrace is a valid trace of up to three devices, each with about n events. It may
// have everything that a Trace can have.
func randomTrace(seed uint64, n int) *Trace {
	r := rand.New(rand.NewPCG(seed, 1))
	t := &Trace{Name: "random"}
	for range r.IntN(6) {
		t.Notes = append(t.Notes, randomText(r))
	}
	known := map[string]bool{}
	for range 1 + r.IntN(6) {
		if s := randomText(r); !known[s] {
			known[s] = true
			t.Strings = append(t.Strings, s)
		}
	}
	randomStacks(r, t)
	if r.IntN(2) == 0 {
		t.Settings = Settings{Known: true, Conf: randomText(r), MaxSplitSize: -1, GarbageCollectionThreshold: r.Float64(), ExpandableSegments: r.IntN(2) == 0}
		t.Settings.RoundupPower2Divisions[r.IntN(16)] = r.Int64N(9)
	}
	ordinal := 0
	for range 1 + r.IntN(3) {
		ordinal += r.IntN(3)
		t.Devices = append(t.Devices, randomDevice(r, t, ordinal, 1+r.IntN(2*n)))
		ordinal++
	}
	if r.IntN(3) == 0 { // a device with a state and no rows
		d := Device{Ordinal: ordinal + 1, Final: randomSegments(r, t, 2, nil)}
		t.Devices = append(t.Devices, d)
	}
	return t
}

func randomStacks(r *rand.Rand, t *Trace) {
	if r.IntN(4) == 0 {
		return
	}
	seen := map[string]bool{}
	known := map[Frame]bool{}
	for range 2 + r.IntN(20) {
		f := Frame{randomText(r), int32(r.IntN(1000)) - 1, randomText(r)}
		if !known[f] {
			known[f] = true
			t.Stacks.Frames = append(t.Stacks.Frames, f)
		}
	}
	t.Stacks.Bounds = []int32{0}
	for range 1 + r.IntN(30) {
		var stack []int32
		for range r.IntN(6) {
			stack = append(stack, int32(r.IntN(len(t.Stacks.Frames))))
		}
		if key := fmt.Sprint(stack); !seen[key] {
			seen[key] = true
			t.Stacks.Index = append(t.Stacks.Index, stack...)
			t.Stacks.Bounds = append(t.Stacks.Bounds, int32(len(t.Stacks.Index)))
		}
	}
}

// pick is an index into a table of n, or None.
func pick(r *rand.Rand, n int) int32 { return int32(r.IntN(n+1)) - 1 }

func randomSegments(r *rand.Rand, t *Trace, n int, live map[uint64]Bytes) []Segment {
	var out []Segment
	addr := uint64(1) << 40
	for range n {
		s := Segment{Address: addr, Stream: r.Uint64(), Pool: PoolID{r.Int64N(3), r.Int64N(3)}, Small: r.IntN(2) == 0, Expandable: r.IntN(2) == 0}
		for range 1 + r.IntN(4) {
			b := Block{Address: addr + uint64(s.Size), Size: Bytes(512 * (1 + r.IntN(9))), State: BlockState(r.IntN(3)), Stack: pick(r, t.Stacks.Len())}
			b.Requested = b.Size - Bytes(r.IntN(512))
			if b.State == BlockInactive {
				b.Requested = Bytes(r.Int64()) // has no meaning, but must be kept
			}
			if live != nil && b.State == BlockAllocated {
				live[b.Address] = b.Requested
			}
			s.Blocks = append(s.Blocks, b)
			s.Size += b.Size
		}
		out = append(out, s)
		addr += uint64(s.Size) + uint64(r.IntN(3))*4096
	}
	return out
}

func randomDevice(r *rand.Rand, t *Trace, ordinal, n int) Device {
	d := Device{Ordinal: ordinal, InitialInferred: r.IntN(2) == 0}
	live := map[uint64]Bytes{}
	if r.IntN(2) == 0 {
		d.Initial = randomSegments(r, t, 1+r.IntN(3), live)
	}
	d.Final = randomSegments(r, t, r.IntN(4), nil)
	pools := map[PoolID]bool{}
	for range r.IntN(4) {
		if p := (PoolID{r.Int64N(3), r.Int64N(3)}); !pools[p] {
			pools[p] = true
			d.Pools = append(d.Pools, p)
		}
	}
	var order []uint64 // the addresses of live in an order that depends on the seed only
	for i := range d.Initial {
		for _, b := range d.Initial[i].Blocks {
			if _, ok := live[b.Address]; ok {
				order = append(order, b.Address)
			}
		}
	}
	withTime, next := r.IntN(2) == 0, uint64(1)<<41
	now := int64(0)
	add := func(a Action, addr uint64, size Bytes) {
		e := Event{Action: a, Addr: addr, Size: size, Stream: []uint64{0, 7, math.MaxUint64}[r.IntN(3)],
			Stack: pick(r, t.Stacks.Len()), UserMetadata: pick(r, len(t.Strings)), CompileContext: pick(r, len(t.Strings)), Pool: int16(pick(r, len(d.Pools)))}
		if withTime {
			now += r.Int64N(100) - 10
			e.TimeUS = now
		}
		d.Events = append(d.Events, e)
	}
	add(ActionAlloc, next, 1)
	for range n {
		for range r.IntN(2) * r.IntN(3) {
			d.Annotations = append(d.Annotations, Annotation{randomText(r), r.IntN(2) == 0, now, Time(len(d.Events))})
		}
		switch r.IntN(8) {
		case 0:
			add(ActionOther, r.Uint64()>>8, Bytes(r.Int64N(1<<48+1)))
		case 1:
			add(ActionOOM, math.MaxUint64, maxSize)
		case 2, 3, 4:
			next += 512
			add(ActionAlloc, next, Bytes(r.IntN(513)))
			order = append(order, next)
		default:
			if len(order) == 0 {
				continue
			}
			k := r.IntN(len(order))
			add(ActionFreeRequested, order[k], 5)
			add(ActionFreeCompleted, order[k], 5)
			order = append(order[:k], order[k+1:]...)
		}
	}
	if r.IntN(2) == 0 {
		d.Annotations = append(d.Annotations, Annotation{"end", true, 0, Time(len(d.Events))})
	}
	return d
}

// recorded reads one of the shared traces, or skips the test if they are not there.
func recorded(t testing.TB, name string) *Trace {
	t.Helper()
	tr, err := ReadFile(sharedTrace(t, name).Name(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestRoundTripRecorded(t *testing.T) {
	for _, name := range []string{"llama7b-pp4-VR.pickle.gz", "sim/tiny.pickle", "sim/b.pickle.gz", "lora-stacks.pickle.gz"} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "lora-stacks.pickle.gz" {
				t.Skip("takes seconds under the race detector")
			}
			checkRoundTrip(t, recorded(t, name))
		})
	}
}

func BenchmarkWriteParquet(b *testing.B) {
	for _, name := range []string{"qwen3-moe-eager", "lora-stacks"} {
		b.Run("trace="+name, func(b *testing.B) {
			tr := recorded(b, name+".pickle.gz")
			var size int
			for b.Loop() {
				size = len(encode(b, tr))
			}
			b.ReportMetric(float64(size)/float64(len(tr.Devices[0].Events)), "B/event")
		})
	}
}

func BenchmarkReadParquet(b *testing.B) {
	for _, name := range []string{"qwen3-moe-eager", "lora-stacks"} {
		b.Run("trace="+name, func(b *testing.B) {
			data := encode(b, recorded(b, name+".pickle.gz"))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decode(data, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkValidate(b *testing.B) {
	tr := recorded(b, "qwen3-moe-eager.pickle.gz")
	for b.Loop() {
		if err := validated(tr); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFingerprint(b *testing.B) {
	tr := recorded(b, "qwen3-moe-eager.pickle.gz")
	for b.Loop() {
		tr.Devices[0].Fingerprint()
	}
}
