package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

func readBytes(data []byte, opt Options) (*Trace, error) {
	return ReadSnapshot(bytes.NewReader(data), "run.pickle", opt)
}

func mustRead(t *testing.T, v any, opt Options) *Trace {
	t.Helper()
	tr, err := readBytes((&pickler{protocol: 4}).pickle(v), opt)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	w.Write(data)
	w.Close()
	return b.Bytes()
}

func zstded(data []byte) []byte {
	w, _ := zstd.NewWriter(nil)
	return w.EncodeAll(data, nil)
}

// containers are the ways to compress a pickle.
var containers = map[string]func([]byte) []byte{
	"plain":  func(b []byte) []byte { return b },
	"gzip":   gzipped,
	"padded": func(b []byte) []byte { return append(gzipped(b), make([]byte, 70_000)...) },
	"members": func(b []byte) []byte {
		return append(gzipped(b[:len(b)/3]), gzipped(b[len(b)/3:])...)
	},
	"zstd": zstded,
}

// TestFormsAgree reads one recording in every protocol, way to use the memo, compression
// and order of keys, also with unknown keys everywhere, and expects the same Trace.
func TestFormsAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 7, 400} {
		if testing.Short() && n > 7 {
			continue
		}
		snapshot := randomSnapshot(r, n)
		want := said(mustRead(t, snapshot, Options{}))
		for _, p := range []pickler{{protocol: 2}, {protocol: 3}, {protocol: 4}, {protocol: 5}, {protocol: 2, torchScript: true}} {
			data := p.pickle(snapshot)
			mixed := p.pickle(shuffled(r, snapshot, map[any]any{}))
			for name, wrap := range containers {
				for order, raw := range map[string][]byte{"as torch": data, "mixed": mixed} {
					got, err := readBytes(wrap(raw), Options{})
					if err != nil {
						t.Fatalf("n=%d protocol=%d torchScript=%v %s %s: %v", n, p.protocol, p.torchScript, name, order, err)
					}
					if !slices.Equal(said(got), want) {
						t.Errorf("n=%d protocol=%d torchScript=%v %s %s: another trace", n, p.protocol, p.torchScript, name, order)
					}
				}
			}
		}
	}
}

// sameTrace compares two traces whose tables may be ordered differently: the order is
// that of the file.
func sameTrace(a, b *Trace) bool { return reflect.DeepEqual(said(a), said(b)) }

// said is a trace as text, with every index replaced by the entry of its table.
func said(t *Trace) []string {
	lines := append([]string{fmt.Sprintf("%+v", t.Settings)}, t.Notes...)
	text := func(i int32) string {
		if i == None {
			return "none"
		}
		return t.Strings[i]
	}
	for i := range t.Devices {
		d := &t.Devices[i]
		lines = append(lines, fmt.Sprintf("device %d inferred %v", d.Ordinal, d.InitialInferred))
		for _, e := range d.Events {
			stack, meta, context, pool := stackText(t, e.Stack), text(e.UserMetadata), text(e.CompileContext), "none"
			if e.Pool >= 0 {
				pool = fmt.Sprint(d.Pools[e.Pool])
			}
			e.Stack, e.UserMetadata, e.CompileContext, e.Pool = 0, 0, 0, 0
			lines = append(lines, fmt.Sprintf("%+v %s %s %s %s", e, stack, meta, context, pool))
		}
		lines = append(lines, fmt.Sprintf("%+v", d.Annotations))
		for _, segments := range [][]Segment{d.Initial, d.Final} {
			for _, s := range segments {
				blocks := s.Blocks
				s.Blocks = nil
				lines = append(lines, fmt.Sprintf("%+v", s))
				for _, b := range blocks {
					stack := stackText(t, b.Stack)
					b.Stack = 0
					lines = append(lines, fmt.Sprintf("%+v %s", b, stack))
				}
			}
		}
	}
	return lines
}

func stackText(t *Trace, i int32) string {
	if i == None {
		return "none"
	}
	var s strings.Builder
	for _, f := range t.Stacks.At(i) {
		fmt.Fprintf(&s, "%v;", t.Stacks.Frames[f])
	}
	return s.String()
}

// TestTablesHoldEachThingOnce expects shared frames, stacks and strings to be stored once.
func TestTablesHoldEachThingOnce(t *testing.T) {
	tr := mustRead(t, randomSnapshot(rand.New(rand.NewPCG(3, 4)), 400), Options{})
	frames, stacks := map[Frame]bool{}, map[string]bool{}
	for _, f := range tr.Stacks.Frames {
		if frames[f] {
			t.Errorf("frame %v twice", f)
		}
		frames[f] = true
	}
	for i := range tr.Stacks.Len() {
		text := stackText(tr, int32(i))
		if stacks[text] || text == "" {
			t.Errorf("stack %q twice or empty", text)
		}
		stacks[text] = true
	}
	if len(tr.Strings) != 2 {
		t.Errorf("strings %q, want warm-up and step once each", tr.Strings)
	}
}

func TestFields(t *testing.T) {
	stack := newList(newDict("filename", "a.py", "line", 7, "name", "f", "fx_node_name", "x"))
	tr := mustRead(t, snapshotDict(
		newList(segmentDict(0, start, 2<<20, 9, "small", newDict("size", 2<<20, "requested_size", 5, "state", "active_awaiting_free", "frames", stack)),
			newDict("device", 1, "address", start, "total_size", 20<<20, "stream", 0, "segment_type", "large", "blocks",
				newList(newDict("size", 20<<20, "state", "active_allocated", "history", newList(newDict("addr", 1, "real_size", 6, "frames", stack)))))),
		newList(newList(
			entryDict("alloc", start, 5, 9, 1, "frames", stack, "pool_id", newTuple(0, 3)),
			newDict("action", "oom", "device_free", 123, "size", 512, "stream", 0, "time_us", 2),
			newDict("action", "user_defined", "addr", 0, "time_us", 3),
			newDict("action", "snapshot", "addr", 0, "size", 5, "stream", 0, "time_us", 4, "compile_context", "0/0", "user_metadata", "m"),
			newDict("action", "segment_map", "addr", 1<<21, "size", 2<<20, "stream", 1<<40, "pool_id", newTuple(1<<40, 0)),
			entryDict("free_requested", start, 5, 9, 5, "frames", stack, "pool_id", newTuple(0, 3)),
		)), newList()), Options{})
	want := []Event{
		{Addr: start, Size: 5, Stream: 9, TimeUS: 1, Stack: 0, UserMetadata: None, CompileContext: None, Pool: 0, Action: ActionAlloc},
		{Addr: 123, Size: 512, TimeUS: 2, Stack: None, UserMetadata: None, CompileContext: None, Pool: -1, Action: ActionOOM},
		{TimeUS: 3, Stack: None, UserMetadata: None, CompileContext: None, Pool: -1},
		{Size: 5, TimeUS: 4, Stack: None, UserMetadata: 1, CompileContext: 0, Pool: -1, Action: ActionSnapshot},
		{Addr: 1 << 21, Size: 2 << 20, Stream: 1 << 40, Stack: None, UserMetadata: None, CompileContext: None, Pool: 1, Action: ActionSegmentMap},
		{Addr: start, Size: 5, Stream: 9, TimeUS: 5, Stack: 0, UserMetadata: None, CompileContext: None, Pool: 0, Action: ActionFreeRequested},
	}
	if got := tr.Devices[0].Events; !reflect.DeepEqual(got, want) {
		t.Errorf("events\n%+v, want\n%+v", got, want)
	}
	if want := []string{"0/0", "m"}; !reflect.DeepEqual(tr.Strings, want) {
		t.Errorf("strings %q, want %q", tr.Strings, want)
	}
	if want := []PoolID{{0, 3}, {1 << 40, 0}}; !reflect.DeepEqual(tr.Devices[0].Pools, want) {
		t.Errorf("pools %v, want %v", tr.Devices[0].Pools, want)
	}
	if want := (Frame{File: "a.py", Line: 7, Name: "f"}); len(tr.Stacks.Frames) != 1 || tr.Stacks.Frames[0] != want {
		t.Errorf("frames %v, want %v", tr.Stacks.Frames, want)
	}
	finals := []Segment{
		{Address: start, Size: 2 << 20, Stream: 9, Small: true, Blocks: []Block{{Address: start, Size: 2 << 20, Requested: 5, State: BlockPendingFree}}},
		{Address: start, Size: 20 << 20, Blocks: []Block{{Address: start, Size: 20 << 20, Requested: 6, State: BlockAllocated}}},
	}
	for i, d := range tr.Devices {
		if !reflect.DeepEqual(d.Final, finals[i:i+1]) {
			t.Errorf("device %d: final %+v, want %+v", i, d.Final, finals[i])
		}
	}
	settings := Settings{Known: true, Conf: "max_split_size_mb:64", MaxSplitSize: 64 << 20, GarbageCollectionThreshold: 0.75, ExpandableSegments: true}
	for i := range settings.RoundupPower2Divisions {
		settings.RoundupPower2Divisions[i] = int64(i)
	}
	if tr.Settings != settings {
		t.Errorf("settings %+v, want %+v", tr.Settings, settings)
	}
}

// TestOddLines reads frames with a line that cannot be a line of a file.
func TestOddLines(t *testing.T) {
	for i, line := range []any{-1, int64(math.MaxInt32) + 1, int64(math.MinInt64), pyHuge{}, pyNone{}, nil} {
		frame := newDict("filename", "f", "name", "n", "line", line)
		if line == nil {
			frame = newDict("filename", "f", "name", "n")
		}
		tr := mustRead(t, change(func(_, _, _, e *pyDict) { set(e, "frames", newList(frame)) }), Options{})
		if s := stackText(tr, tr.Devices[0].Events[1].Stack); s != "{f 0 n};" {
			t.Errorf("line %d: stack %s", i, s)
		}
	}
}

// TestUnknownActions reads entries of an unknown kind with all kinds of wrong values. They
// keep their places.
func TestUnknownActions(t *testing.T) {
	keys := []string{"addr", "size", "stream", "time_us", "frames", "compile_context", "user_metadata", "pool_id", "device_free"}
	values := []any{"x", 2.5, -5, int64(math.MaxInt64), newList(7), newTuple(1, 2), newDict("a", 1), pyNone{}}
	for _, key := range keys {
		for _, value := range values {
			for _, odd := range []*pyDict{newDict("action", "weird", key, value), newDict(key, value, "action", "weird"), entryDict("weird", start, 5, 0, 1, key, value)} {
				v := oneBlock()
				list := v.items[3].(*pyList).items[0].(*pyList)
				list.items = []any{list.items[0], odd, list.items[1]}
				e := mustRead(t, v, Options{}).Devices[0].Events
				if len(e) != 3 || e[1].Action != ActionOther || e[2].Action != ActionAlloc {
					t.Errorf("%s = %v: %+v", key, value, e)
				}
			}
		}
	}
}

// change returns oneBlock with a value changed.
func change(edit func(top, segment, block, entry *pyDict)) *pyDict {
	top := oneBlock()
	segment := top.items[1].(*pyList).items[0].(*pyDict)
	block := segment.items[len(segment.items)-1].(*pyList).items[0].(*pyDict)
	entry := top.items[3].(*pyList).items[0].(*pyList).items[1].(*pyDict)
	edit(top, segment, block, entry)
	return top
}

// set changes the value of a key, or removes the key if v is nil.
func set(o *pyDict, key string, v any) {
	for i := 0; i < len(o.items); i += 2 {
		if o.items[i] == key {
			o.items[i+1] = v
			if v == nil {
				o.items = append(o.items[:i:i], o.items[i+2:]...)
			}
			return
		}
	}
	o.items = append(o.items, key, v)
}

// TestWrongValues expects the exact error for values that their keys do not allow.
func TestWrongValues(t *testing.T) {
	cyclic := newList()
	cyclic.items = []any{cyclic}
	entry := func(key string, v any) *pyDict {
		return change(func(_, _, _, e *pyDict) { set(e, key, v) })
	}
	segment := func(key string, v any) *pyDict {
		return change(func(_, s, _, _ *pyDict) { set(s, key, v) })
	}
	block := func(key string, v any) *pyDict {
		return change(func(_, _, b, _ *pyDict) { set(b, key, v) })
	}
	top := func(key string, v any) *pyDict {
		return change(func(o, _, _, _ *pyDict) { set(o, key, v) })
	}
	tests := []struct {
		v    any
		want string
	}{
		{newList(), "a list, as torch.cuda.memory_snapshot() returns, has segments but no events; " + advice},
		{7, "expected a memory snapshot, found 7"},
		{newDict(), "a dict without device_traces and segments is not a memory snapshot; " + advice},
		{snapshotDict(newList(), newList(newList(), newList()), newList()), "a snapshot without events: history was not being recorded when it was taken; " + advice},
		{top("device_traces", "x"), `device_traces: expected a list, found "x"`},
		{top("device_traces", cyclic), "device 0: entry 0: expected a trace entry, found a list"},
		{top("device_traces", newList(newDict())), "device 0: device_traces: expected a list of entries, found a dict"},
		{top("device_traces", newList(newList(newDict()))), "device 0: entry 0: action: expected a string, found nothing"},
		{top("segments", newList(newList())), "segment 0: expected a segment, found a list"},
		{top("segments", newList(newDict("filename", "a", "name", "b", "line", 1))), "segment 0: expected a segment, found a stack frame"},
		{top("segments", newList(entryDict("alloc", 1, 1, 1, 1))), "segment 0: expected a segment, found a trace entry"},
		{top("external_annotations", newList(newDict("device", 0, "name", "n", "stage", "BEGIN", "time_us", 1))), `annotation 0: stage: expected START or END, found "BEGIN"`},
		{top("allocator_settings", newList()), "allocator_settings: expected settings, found a list"},
		{top("allocator_settings", newDict("garbage_collection_threshold", math.NaN())), "allocator_settings: garbage_collection_threshold: expected a finite number from 0 up, found NaN"},
		{top("allocator_settings", newDict("garbage_collection_threshold", math.Inf(1))), "allocator_settings: garbage_collection_threshold: expected a finite number from 0 up, found +Inf"},
		{top("allocator_settings", newDict("garbage_collection_threshold", -0.5)), "allocator_settings: garbage_collection_threshold: expected a finite number from 0 up, found -0.5"},
		{top("allocator_settings", newDict("max_split_size", -2)), "allocator_settings: max_split_size: expected bytes, or -1 for no limit, found -2"},
		{top("allocator_settings", newDict("max_split_size", 1.5)), "allocator_settings: max_split_size: expected an integer, found 1.5"},
		{top("allocator_settings", newDict("roundup_power2_divisions", newDict("1", -1))), "allocator_settings: roundup_power2_divisions: 1: expected an integer from 0 up, found -1"},
		{entry("action", newTuple(1)), "device 0: entry 1: action: expected a string, found a tuple"},
		{entry("addr", nil), "device 0: entry 1: addr: expected an integer from 0 up, found nothing"},
		{entry("size", -5), "device 0: entry 1: size: expected an integer from 0 up, found -5"},
		{entry("stream", true), "device 0: entry 1: stream: expected an integer, found True"},
		{entry("frames", newList(newDict("line", 3))), "device 0: entry 1: frames: frame 0: filename: expected a string, found nothing"},
		{entry("frames", newList(newDict("filename", "f", "name", "n", "line", 1), newDict("filename", "f", "name", "n", "line", "x"))), `device 0: entry 1: frames: frame 1: line: expected a line number, found "x"`},
		{entry("frames", newList(7)), "device 0: entry 1: frames: frame 0: expected a stack frame, found 7"},
		{entry("frames", 7), "device 0: entry 1: frames: expected a list of stack frames, found 7"},
		{block("frames", newList(newDict("filename", 1, "name", "n", "line", 1))), "segment 0: block 0: frames: frame 0: filename: expected a string, found 1"},
		{entry("pool_id", newTuple(1)), "device 0: entry 1: pool_id: expected a tuple of two integers, found a tuple"},
		{entry("user_metadata", 0.5), "device 0: entry 1: user_metadata: expected a string, found 0.5"},
		{segment("address", "a"), `segment 0: address: expected an integer from 0 up, found "a"`},
		{segment("segment_pool_id", newList()), "segment 0: segment_pool_id: expected a tuple of two integers, found a list"},
		{segment("is_expandable", 1), "segment 0: is_expandable: expected True or False, found 1"},
		{segment("blocks", newDict()), "segment 0: blocks: expected a list, found a dict"},
		{block("state", "gone"), `segment 0: block 0: state: expected active_allocated, active_pending_free or inactive, found "gone"`},
		{block("size", strings.Repeat("x", 50)), `segment 0: block 0: size: expected an integer from 0 up, found "` + strings.Repeat("x", 40) + `"… (50 bytes)`},
		{block("history", newList(7)), "segment 0: block 0: history 0: expected an entry of a block's history, found 7"},
	}
	for _, test := range tests {
		for _, p := range []pickler{{protocol: 5}, {protocol: 2, torchScript: true}} {
			if p.torchScript && reflect.DeepEqual(test.v, top("device_traces", cyclic)) {
				continue // this pickler does not share a list before it is complete
			}
			tr, err := readBytes(p.pickle(test.v), Options{})
			want := "run.pickle: " + test.want
			if err == nil || err.Error() != want || tr != nil {
				t.Errorf("%v: got %v\nwant %s", test.v, err, want)
			}
			var bad *InputError
			if !errors.As(err, &bad) {
				t.Errorf("%v: %T is no InputError", test.v, err)
			}
		}
	}
}

// TestDamagedFiles expects the exact error for files that are not a complete pickle.
func TestDamagedFiles(t *testing.T) {
	whole := (&pickler{protocol: 4}).pickle(oneBlock())
	flipped := gzipped(whole)
	flipped[len(flipped)-6] ^= 1 // of the checksum
	var stored bytes.Buffer
	w, _ := gzip.NewWriterLevel(&stored, gzip.NoCompression)
	w.Write(whole)
	w.Close()
	const header = 10 + 5 // of gzip and of a stored block
	end := func(n int) string {
		return fmt.Sprintf("byte %d: the file ends in the middle of the pickle: it was not written or copied completely", n)
	}
	tests := []struct {
		data []byte
		want string
	}{
		{nil, "byte 0: the file is empty"},
		{[]byte("{\"a\": 1}"), "byte 0: not a pickle of protocol 2 to 5: expected the byte 0x80, found '{'"},
		{[]byte("PK\x03\x04abc"), "byte 0: a zip archive, as torch.save writes; expected a pickle, as torch.cuda.memory._dump_snapshot writes"},
		{[]byte("\x80\x06N."), "byte 0: pickle protocol 6: expected 2 to 5"},
		{whole[:100], end(100)},
		{whole[:len(whole)-1], end(len(whole) - 1)},
		{append(whole[:len(whole):len(whole)], 'N'), fmt.Sprintf("byte %d: more data follows the end of the pickle", len(whole))},
		{stored.Bytes()[:header+85], "byte 85: the gzip data end early: the file was not written or copied completely"},
		{zstded(whole)[:100], "byte 0: the zstd data end early: the file was not written or copied completely"},
		{flipped, fmt.Sprintf("byte %d: damaged gzip data: gzip: invalid checksum", len(whole))},
		{append(gzipped(whole), "tail"...), fmt.Sprintf("byte %d: the gzip data end early: the file was not written or copied completely", len(whole))},
		{gzipped(whole[:60]), end(60)},
		{append(gzipped(whole), "\x00\x00\x1f\x8b"...), fmt.Sprintf("byte %d: damaged gzip data: something follows the zeros that pad it", len(whole))},
		{[]byte("\x80\x04\x00"), "byte 2: 0x00 is not an opcode of pickle protocols 2 to 5: the file is damaged or not a pickle"},
	}
	for _, test := range tests {
		_, err := readBytes(test.data, Options{})
		if want := "run.pickle: " + test.want; err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestBomb reads a small file that decompresses to 120 MiB of valid opcodes.
func TestBomb(t *testing.T) {
	var b bytes.Buffer
	w, _ := zstd.NewWriter(&b)
	w.Write([]byte("\x80\x04"))
	for range 60 {
		w.Write(bytes.Repeat([]byte("N0"), 1<<20))
	}
	w.Close()
	_, err := readBytes(b.Bytes(), Options{})
	if err == nil || !strings.HasSuffix(err.Error(), " or more, expected at most 256 times the size plus 16777216 B: this is not a snapshot") {
		t.Errorf("%d bytes: %v", b.Len(), err)
	}
}

// failing is a reader that fails after n bytes.
type failing struct {
	r io.Reader
	n int
}

var errDisk = errors.New("disk on fire")

func (f *failing) Read(p []byte) (int, error) {
	if f.n == 0 {
		return 0, errDisk
	}
	n, err := f.r.Read(p[:min(len(p), f.n)])
	f.n -= n
	return n, err
}

// TestReaderError expects another kind of error for a file that cannot be read than for
// one that is wrong.
func TestReaderError(t *testing.T) {
	whole := (&pickler{protocol: 4}).pickle(oneBlock())
	for name, wrap := range containers {
		_, err := ReadSnapshot(&failing{bytes.NewReader(wrap(whole)), 100}, "run.pickle", Options{})
		var bad *InputError
		if !errors.Is(err, errDisk) || errors.As(err, &bad) || err.Error() != "run.pickle: cannot read: disk on fire" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProgress(t *testing.T) {
	data := gzipped((&pickler{protocol: 4}).pickle(randomSnapshot(rand.New(rand.NewPCG(5, 6)), 5000)))
	var last int64
	calls := 0
	_, err := readBytes(data, Options{Progress: func(done, total int64) {
		if done < last || total != int64(len(data)) || done > total {
			t.Errorf("%d of %d after %d", done, total, last)
		}
		last = done
		calls++
	}})
	if err != nil || last != int64(len(data)) || calls < 3 {
		t.Errorf("%d calls, %d of %d bytes, %v", calls, last, len(data), err)
	}
}

// TestAnnotations compares the places of annotations with a search of the whole list for
// each annotation.
func TestAnnotations(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		dev := Device{Events: make([]Event, r.IntN(12))}
		clock := int64(0)
		for i := range dev.Events {
			clock = max(0, clock+int64(r.IntN(4))-int64(r.IntN(2)*r.IntN(2)))
			dev.Events[i].TimeUS = clock
		}
		for i := range r.IntN(8) {
			dev.Annotations = append(dev.Annotations, Annotation{Name: fmt.Sprint(i), End: r.IntN(2) == 0, TimeUS: int64(r.IntN(16))})
		}
		recorded := append([]Annotation(nil), dev.Annotations...)
		placeAnnotations(&dev)
		var want []Annotation
		for at := range Time(len(dev.Events) + 1) {
			for _, a := range recorded {
				if a.At = expectedPlace(dev.Events, a); a.At == at {
					want = append(want, a)
				}
			}
		}
		if !reflect.DeepEqual(dev.Annotations, want) {
			t.Fatalf("events %+v\ngot  %+v\nwant %+v", dev.Events, dev.Annotations, want)
		}
	}
}

func expectedPlace(events []Event, a Annotation) Time {
	for i, e := range events {
		if e.TimeUS > a.TimeUS || e.TimeUS == a.TimeUS && !a.End {
			return Time(i)
		}
	}
	return Time(len(events))
}

func TestAnnotationOfUnrecordedDevice(t *testing.T) {
	mark := func(device int) *pyDict {
		return newDict("name", "n", "stage", "START", "device", device, "time_us", 1)
	}
	v := oneBlock()
	set(v, "device_traces", newList(v.items[3].(*pyList).items[0], newList()))
	set(v, "external_annotations", newList(mark(1), mark(2), mark(-1)))
	tr := mustRead(t, v, Options{})
	if len(tr.Devices) != 2 || len(tr.Devices[0].Annotations) != 0 || len(tr.Devices[1].Annotations) != 1 {
		t.Errorf("%+v", tr.Devices)
	}
}

// TestSharedEntries reads lists that share entry dicts: their events must be copied.
func TestSharedEntries(t *testing.T) {
	v := oneBlock()
	list := v.items[3].(*pyList).items[0].(*pyList)
	set(v, "device_traces", newList(list, newList(list.items[1]), list))
	tr := mustRead(t, v, Options{})
	if a, b, c := tr.Devices[0].Events, tr.Devices[1].Events, tr.Devices[2].Events; !reflect.DeepEqual(a, c) || !reflect.DeepEqual(a[1:], b) || &a[0] == &c[0] {
		t.Errorf("%v %v %v", a, b, c)
	}
}

// TestRepeatedLists refuses a file that uses its lists in so many places that the trace
// would be far larger than the file.
func TestRepeatedLists(t *testing.T) {
	entries, blocks := newList(), newList()
	for range 1000 {
		entries.items = append(entries.items, entryDict("snapshot", 0, 0, 0, 1))
		blocks.items = append(blocks.items, blockDict(start, 512, 0, "inactive", newList()))
	}
	segment := segmentDict(0, start, 2<<20, 0, "small")
	set(segment, "blocks", blocks)
	traces, segments, empties := newList(), newList(), newList()
	wide := segmentDict(0, start, 2<<20, 0, "small")
	for i := range 1000 {
		wide.items = append(wide.items, fmt.Sprint(i), nil)
	}
	for range 1000 {
		empties.items = append(empties.items, wide)
		traces.items = append(traces.items, entries)
		segments.items = append(segments.items, segment)
	}
	for _, test := range []struct {
		v     *pyDict
		where string
	}{
		{snapshotDict(newList(), traces, newList()), "device "},
		{snapshotDict(segments, newList(entries), newList()), "segment "},
		{snapshotDict(empties, newList(entries), newList()), "segment "},
	} {
		data := (&pickler{protocol: 4}).pickle(test.v)
		_, err := readBytes(data, Options{})
		want := fmt.Sprintf(": more entries, blocks and keys than the %d bytes of the file can hold: one list or dict is used in many places", len(data))
		if err == nil || !strings.HasPrefix(err.Error(), "run.pickle: "+test.where) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want …%s", err, want)
		}
	}
}

func TestKnownKeysAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range keyNames {
		if seen[name] {
			t.Errorf("%q twice", name)
		}
		seen[name] = true
	}
	if keyNames[keyActions+int(ActionOOM)] != "oom" || keyNames[keyEmpty] != "" || keyNames[keyStage] != "stage" {
		t.Errorf("the names do not match the keys: %q", keyNames)
	}
}

// TestSlowWriter expects an error as soon as it is certain, even if the writer of a pipe
// keeps it open.
func TestSlowWriter(t *testing.T) {
	for _, start := range []string{"garbage", "\x80\x04c", "\x89STPLAN\x00"} {
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := Read(r, "pipe", Options{})
			done <- err
		}()
		if _, err := w.Write([]byte(start)); err != nil {
			t.Fatal(err)
		}
		if start == "\x80\x04c" {
			w.Write([]byte("os\nsystem\n"))
		}
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%q: no error", start)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%q: still waiting", start)
		}
		w.Close()
	}
}
