package trace

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

// TestTextsTooLargeToWrite writes traces of small snapshots whose texts no file can hold. A
// stack refers to one long frame very often, or there are many frames with one long name.
func TestTextsTooLargeToWrite(t *testing.T) {
	long := strings.Repeat("x", 4<<20)
	trace := func() *Trace {
		return &Trace{Name: "t", Devices: []Device{{Events: []Event{{Action: ActionAlloc, Addr: 512, Size: 512, Stack: 0, UserMetadata: None, CompileContext: None, Pool: int16(None)}}}}}
	}
	deep := trace()
	deep.Stacks = Stacks{Frames: []Frame{{File: long, Name: "f"}}, Index: make([]int32, 1_000_000), Bounds: []int32{0, 1, 1_000_000}}
	many := trace()
	many.Stacks = Stacks{Frames: make([]Frame, 100_000), Index: []int32{0}, Bounds: []int32{0, 1}}
	for i := range many.Stacks.Frames {
		many.Stacks.Frames[i] = Frame{File: long, Line: int32(i), Name: "f"}
	}
	text := trace()
	text.Devices[0].Events[0].Stack, text.Devices[0].Events[0].UserMetadata = None, 0
	text.Strings = []string{strings.Repeat("x", 16<<20+1)}
	name := trace()
	name.Devices[0].Events[0].Stack = None
	name.Devices[0].Annotations = []Annotation{{Name: text.Strings[0]}}
	blocks := trace()
	blocks.Devices[0].Events[0].Stack = None
	blocks.Stacks = Stacks{Frames: []Frame{{File: long, Name: "f"}}, Bounds: []int32{0}}
	segment := Segment{Address: 1 << 30}
	for i := range int32(12) { // stacks of 1, 1, 1, 2, 2, 2, 3 … frames
		blocks.Stacks.Index = append(blocks.Stacks.Index, make([]int32, 1+i/3)...)
		blocks.Stacks.Bounds = append(blocks.Stacks.Bounds, int32(len(blocks.Stacks.Index)))
		segment.Blocks = append(segment.Blocks, Block{Address: segment.Address + uint64(segment.Size), Size: 512, Stack: min(i, 8)})
		segment.Size += 512
	}
	blocks.Stacks.Bounds = blocks.Stacks.Bounds[:10]
	blocks.Devices[0].Initial = []Segment{segment}
	for _, c := range []struct {
		trace *Trace
		want  string
	}{
		{deep, "write trace: stack 1: a text of 4194304805690 B, expected at most 16777216 B in a Parquet trace"},
		{many, "write trace: frame 63: the files and names of frames take 268435520 B so far, expected at most 268435456 B in a Parquet trace"},
		{text, "write trace: string 0: a text of 16777217 B, expected at most 16777216 B in a Parquet trace"},
		{name, "write trace: device 0: annotation 0: a text of 16777217 B, expected at most 16777216 B in a Parquet trace"},
		{blocks, "write trace: the stacks of blocks take 75497553 B of metadata, more than a trace can hold (33554432 B)"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := WriteParquet(io.Discard, c.trace, Options{})
		runtime.ReadMemStats(&after)
		if fmt.Sprint(err) != c.want {
			t.Errorf("%v\nexpected\n%s", err, c.want)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 128<<20 {
			t.Errorf("%d B allocated before %s", used, c.want)
		}
	}
}

// TestLongTextsEndRowGroups: texts of megabytes each do not meet in one page.
func TestLongTextsEndRowGroups(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds under the race detector")
	}
	tr := &Trace{Name: "t", Devices: []Device{{}}}
	for i := range 40 {
		tr.Strings = append(tr.Strings, noise(1<<20)+fmt.Sprint(i))
		tr.Devices[0].Events = append(tr.Devices[0].Events, Event{Action: ActionAlloc, Addr: uint64(i+1) << 20, Size: 512, Stack: None, UserMetadata: int32(i), CompileContext: None, Pool: int16(None)})
	}
	checkRoundTrip(t, tr)
	if n := bytes.Count(encode(t, tr), []byte("user_metadata")); n != 4 {
		t.Errorf("the column's name is in the file %d times, expected 4: in the schema, in two row groups and in its description", n)
	}
}
