package trace

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"unsafe"

	"github.com/stplan/stplan/internal/trace/pickle"
)

// stackTable holds every frame and every stack once.
type stackTable struct {
	frames map[frameKey]int32
	texts  textNumbers
	table  Stacks
	seed   maphash.Seed
	heads  map[uint64]int32 // by hash: the newest stack with it
	next   []int32          // by stack: the one before it with the same hash, or None
	ids    []int32          // scratch: the frames of a stack
	raw    []byte           // scratch: their bytes
}

// frameKey is a frame with the numbers of its texts.
type frameKey struct{ file, line, name int32 }

func newStackTable() stackTable {
	return stackTable{frames: map[frameKey]int32{}, texts: newTextNumbers(), heads: map[uint64]int32{}, seed: maphash.MakeSeed()}
}

// memory is what the table takes, in bytes. Entries of the maps count as 48 B: a key and a
// number in a map that is half full. Texts belong to the pickle.
func (t *stackTable) memory() int64 {
	const entry = 48
	return int64(cap(t.table.Frames))*int64(unsafe.Sizeof(Frame{})) + 4*int64(cap(t.table.Index)+cap(t.table.Bounds)+cap(t.next)) +
		entry*int64(len(t.frames)+len(t.texts.byPlace)+len(t.texts.byText)+len(t.heads))
}

// frame returns the number of a frame. An error is in d.err.
func (b *builder) frame(d *dict) int32 {
	f := Frame{File: d.text(keyFilename), Name: d.text(keyName)}
	f.Line = d.line()
	if d.err != nil {
		return None
	}
	return b.stacks.frame(f)
}

// line reads a line number. Generated code and profilers leave other values, such as
// None and -1. These are no reason to refuse a recording: they are read as 0.
func (d *dict) line() int32 {
	v := d.get(keyLine)
	i, ok := d.b.store.Int(v)
	switch {
	case ok && i >= 0 && i <= math.MaxInt32:
		return int32(i)
	case !ok && v != 0 && !d.b.store.None(v) && !d.b.store.Huge(v):
		d.wrong(keyLine, "a line number")
	}
	return 0
}

// badFrames makes the error for a list of frames that cannot be a stack.
func (b *builder) badFrames(v pickle.Value, where string) error {
	list, ok := b.store.List(v)
	if !ok {
		return b.fail(where, keyNames[keyFrames], "expected %s, found %s", wantFrames, b.describe(v))
	}
	for i, v := range list {
		if _, ok := b.frameNumber(v); ok {
			continue
		}
		d := b.dict(v, fmt.Sprintf("%s: %s: frame %d", where, keyNames[keyFrames], i), "a stack frame")
		if d.err == nil {
			b.frame(d)
		}
		if d.err == nil { // the pickle changed the dict after it was complete
			d.err = b.fail(d.where, "", "expected a stack frame, found %s", b.describe(v))
		}
		return d.err
	}
	return b.fail(where, keyNames[keyFrames], "more than %d frames in all stacks", math.MaxInt32)
}

func (t *stackTable) frame(f Frame) int32 {
	key := frameKey{t.texts.number(f.File), f.Line, t.texts.number(f.Name)}
	id, ok := t.frames[key]
	if !ok {
		id = int32(len(t.table.Frames))
		t.table.Frames = append(t.table.Frames, f)
		t.frames[key] = id
	}
	return id
}

// stack returns the number of a list of frames, None if it is empty. It folds the list,
// so that the frames are not looked at again for the next entry that shares it.
func (b *builder) stack(v pickle.Value) (int32, bool) {
	if number, ok := b.store.Folded(v); ok {
		class, n := unfold(number)
		return int32(n), class == foldedStack
	}
	list, ok := b.store.List(v)
	if !ok || len(list) == 0 {
		return None, ok
	}
	t := &b.stacks
	t.ids = t.ids[:0]
	// A frame remains a frame. So if the list was no stack before, the search goes on at
	// the element that was no frame, even if many entries share the list.
	for i := b.stuck[v]; i < len(list); i++ {
		if _, ok := b.frameNumber(list[i]); !ok {
			b.stuck[v] = i
			return None, false
		}
	}
	for _, v := range list {
		n, _ := b.frameNumber(v)
		t.ids = append(t.ids, n)
	}
	id, ok := t.number(t.ids)
	if ok {
		b.store.Fold(v, fold(foldedStack, int(id)))
	}
	return id, ok
}

// frameNumber returns the number of a folded frame.
func (b *builder) frameNumber(v pickle.Value) (int32, bool) {
	number, ok := b.store.Folded(v)
	class, n := unfold(number)
	return int32(n), ok && class == foldedFrame
}

// number returns the number of the stack with these frames. It returns false if the
// stack is new and Stacks.Index has no room left.
func (t *stackTable) number(ids []int32) (int32, bool) {
	t.raw = t.raw[:0]
	for _, id := range ids {
		t.raw = binary.LittleEndian.AppendUint32(t.raw, uint32(id))
	}
	hash := maphash.Bytes(t.seed, t.raw)
	head, ok := t.heads[hash]
	if !ok {
		head = None
	}
	for i := head; i != None; i = t.next[i] {
		if slices.Equal(t.table.At(i), ids) {
			return i, true
		}
	}
	if len(t.table.Index) > math.MaxInt32-len(ids) {
		return None, false
	}
	return t.add(hash, head, ids), true
}

func (t *stackTable) add(hash uint64, head int32, ids []int32) int32 {
	if t.table.Bounds == nil {
		t.table.Bounds = []int32{0}
	}
	id := int32(t.table.Len())
	t.table.Index = append(t.table.Index, ids...)
	t.table.Bounds = append(t.table.Bounds, int32(len(t.table.Index)))
	t.next = append(t.next, head)
	t.heads[hash] = id
	return id
}

// copyOf returns the number of a stack of another trace, None if there is no room left.
func (t *stackTable) copyOf(from *Stacks, id int32) int32 {
	t.ids = t.ids[:0]
	for _, f := range from.At(id) {
		t.ids = append(t.ids, t.frame(from.Frames[f]))
	}
	mine, _ := t.number(t.ids)
	return mine
}
