package trace

import (
	"github.com/stplan/stplan/internal/trace/pickle"
)

// The keys of a snapshot that this package reads. They are in the order of keyNames,
// so the number that package pickle gives to such a string is the key.
const (
	keyAction = iota
	keyAddr
	keyDeviceFree
	keySize
	keyStream
	keyTimeUS
	keyFrames
	keyCompileContext
	keyUserMetadata
	keyPoolID

	keyFilename
	keyLine
	keyName

	keySegments
	keyDeviceTraces
	keyAllocatorSettings
	keyExternalAnnotations

	keyDevice
	keyAddress
	keyTotalSize
	keySegmentType
	keySegmentPoolID
	keyIsExpandable
	keyBlocks
	keyRequestedSize
	keyState
	keyHistory
	keyRealSize

	keyStage

	keyConf
	keyMaxSplitSize
	keyGarbageCollectionThreshold
	keyExpandableSegments
	keyRoundupPower2Divisions
	keyTraceAllocOverflowed

	// Texts that count as absent.
	keyNotApplicable
	keyEmpty

	// keyActions + a is the name of action a.
	keyActions
)

// keyNames are the texts of the keys.
var keyNames = append([]string{
	"action", "addr", "device_free", "size", "stream", "time_us", "frames",
	"compile_context", "user_metadata", "pool_id",
	"filename", "line", "name",
	"segments", "device_traces", "allocator_settings", "external_annotations",
	"device", "address", "total_size", "segment_type", "segment_pool_id",
	"is_expandable", "blocks", "requested_size", "state", "history", "real_size",
	"stage",
	"PYTORCH_CUDA_ALLOC_CONF", "max_split_size", "garbage_collection_threshold",
	"expandable_segments", "roundup_power2_divisions", "trace_alloc_overflowed",
	"N/A", "",
}, actionNames[:]...)

// dict is a dict of the snapshot, with its place for messages. Its readers keep the first
// error in err and return zero for a wrong value, so a caller checks err once, at the end.
type dict struct {
	b     *builder
	where string
	items []pickle.Value
	err   error
}

// dict reads v as a dict. want describes it for messages.
func (b *builder) dict(v pickle.Value, where, want string) *dict {
	d := &dict{b: b, where: where}
	var ok bool
	if d.items, ok = b.store.Dict(v); !ok {
		d.err = b.fail(where, "", "expected %s, found %s", want, b.describe(v))
	} else if d.err = b.spend(d.items, where); d.err != nil {
		d.items = nil
	}
	return d
}

// describe names a value, which may be folded, for a message.
func (b *builder) describe(v pickle.Value) string {
	number, ok := b.store.Folded(v)
	if !ok {
		return b.store.Describe(v)
	}
	switch class, _ := unfold(number); class {
	case foldedEntry:
		return "a trace entry"
	case foldedFrame:
		return "a stack frame"
	}
	return "a stack"
}

// get returns the value of a key, or 0 if there is none.
func (d *dict) get(key int) pickle.Value {
	for i := len(d.items) - 2; i >= 0; i -= 2 {
		if n, ok := d.b.store.StringNumber(d.items[i]); ok && n == key {
			return d.items[i+1]
		}
	}
	return 0
}

func (d *dict) has(key int) bool { return d.get(key) != 0 }

// wrong keeps the error that the value of a key is not what it should be.
func (d *dict) wrong(key int, want string) {
	if d.err == nil {
		d.err = d.b.fail(d.where, keyNames[key], "expected %s, found %s", want, d.b.describe(d.get(key)))
	}
}

// integer reads an integer from 0 up.
func (d *dict) integer(key int) int64 {
	i, ok := d.b.store.Int(d.get(key))
	if !ok || i < 0 {
		d.wrong(key, "an integer from 0 up")
		return 0
	}
	return i
}

// signed reads any integer.
func (d *dict) signed(key int) int64 {
	i, ok := d.b.store.Int(d.get(key))
	if !ok {
		d.wrong(key, "an integer")
	}
	return i
}

func (d *dict) text(key int) string {
	s, ok := d.b.store.String(d.get(key))
	if !ok {
		d.wrong(key, "a string")
	}
	return s
}

// flag reads a boolean. A missing one is false.
func (d *dict) flag(key int) bool {
	v := d.get(key)
	b, ok := d.b.store.Bool(v)
	if !ok && v != 0 {
		d.wrong(key, "True or False")
	}
	return b
}

// list reads a list. A missing one is empty.
func (d *dict) list(key int) []pickle.Value {
	v := d.get(key)
	if v == 0 {
		return nil
	}
	list, ok := d.b.store.List(v)
	if !ok {
		d.wrong(key, "a list")
	}
	return list
}

// stack reads a list of frames. A missing or an empty one is None.
func (d *dict) stack(key int) int32 {
	v := d.get(key)
	if v == 0 {
		return None
	}
	id, ok := d.b.stack(v)
	if !ok && d.err == nil {
		d.err = d.b.badFrames(v, d.where)
	}
	return id
}
