package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"unsafe"

	"github.com/stplan/stplan/internal/trace/pickle"
)

const advice = "call torch.cuda.memory._record_memory_history() before the first allocation, " +
	"and save with torch.cuda.memory._dump_snapshot(path)"

// ReadSnapshot reads a PyTorch memory snapshot: the pickle of
// torch.cuda.memory._snapshot(), plain or compressed with gzip or zstd. The name is for
// messages. It reads r to its end. If the file is to blame, the error is an *InputError;
// an error of r itself is wrapped. After an error one read of r may still be under way.
//
// Memory stays within a small multiple of the resulting Trace. For any file, what is read
// stays within 64 MiB plus 128 B for each byte of the file (freeMemory, memoryPerByte), and
// the uncompressed size within a multiple of the compressed one (maxExpansion), which bounds
// the time. Checking the result takes at most a few hundred bytes for each entry.
func ReadSnapshot(r io.Reader, name string, opt Options) (*Trace, error) {
	b := newBuilder(name)
	b.total = sizeOf(r)
	c := openContainer(r, func(read int64) {
		b.done = read
		if opt.Progress != nil {
			opt.Progress(read, b.total)
		}
	})
	defer c.Close()
	store, top, err := pickle.Read(c, keyNames, b, b.room)
	if err != nil {
		return nil, readError(name, err)
	}
	b.store = store
	if err := b.snapshot(top, opt); err != nil {
		return nil, err
	}
	check := newChecker(b.trace, entryOf)
	check.pasts = b.pasts
	if err := check.validate(opt.AllowNoEvents); err != nil {
		return nil, err
	}
	return b.trace, nil
}

// readError turns an error of package pickle into one of this package.
func readError(name string, err error) error {
	var p *pickle.Error
	if !errors.As(err, &p) {
		return cannotRead(name, err)
	}
	var damaged *containerError
	if p.Err != nil && !errors.As(p.Err, &damaged) && !errors.Is(p.Err, io.ErrUnexpectedEOF) {
		return cannotRead(name, p.Err)
	}
	return &InputError{Name: name, Where: fmt.Sprintf("byte %d", p.Offset), Problem: p.Problem}
}

// builder makes a Trace from a pickle. It takes entries, frames and stacks while the
// pickle is read (pickle.Folder), and everything else afterwards.
type builder struct {
	name  string
	store *pickle.Store
	trace *Trace

	done, total int64 // bytes of the file that are read, and its size, or 0 if not known

	shown int64 // elements of lists and dicts that were looked at, for spend

	entries []Event // of all devices, in the order of the file
	taken   int     // entries before this one belong to a device
	stacks  stackTable
	stuck   map[pickle.Value]int // by list that is no stack yet: its first element that was no frame
	labels  map[int]int32        // from a string's number in the store to its index in Trace.Strings
	pools   poolTable
	pasts   map[*Event]*past // by a device's first event
	unknown []int            // some unknown actions, by the number in the store
}

func newBuilder(name string) *builder {
	return &builder{
		name:   name,
		trace:  &Trace{Name: name},
		stacks: newStackTable(),
		stuck:  map[pickle.Value]int{},
		pasts:  map[*Event]*past{},
		labels: map[int]int32{},
		pools:  newPoolTable(),
	}
}

const (
	// freeMemory is the memory that reading may take for a snapshot of any size, in bytes.
	freeMemory = 64 << 20

	// memoryPerByte is the memory that reading may take beyond freeMemory for each byte of
	// the file that is read so far. Large recordings take 25 in all if they are compressed
	// with gzip, and 50 with zstd at its strongest. The rest is for the list of entries,
	// which is made for the whole file at its beginning.
	memoryPerByte = 128
)

// room is the memory that the pickle's values may take now, in bytes.
func (b *builder) room() int64 {
	return freeMemory + memoryPerByte*b.done - int64(cap(b.entries))*int64(unsafe.Sizeof(Event{})) - b.stacks.memory()
}

// fail makes an error about a place in the recording.
func (b *builder) fail(where, column, format string, args ...any) error {
	return &InputError{Name: b.name, Where: where, Column: column, Problem: fmt.Sprintf(format, args...)}
}

// spend counts the elements of a list that will be copied, or of a dict that will be
// searched, and refuses more than the file can hold. A pickle may refer to one list or
// dict in many places; memory and time must not grow with their number.
func (b *builder) spend(list []pickle.Value, where string) error {
	if b.shown += int64(len(list)); b.shown > b.store.Size() {
		return b.fail(where, "", "more entries, blocks and keys than the %d bytes of the file can hold: one list or dict is used in many places", b.store.Size())
	}
	return nil
}

// snapshot reads the top of the pickle: the dict of _snapshot(), or the list of
// memory_snapshot(), which is that dict's "segments".
func (b *builder) snapshot(top pickle.Value, opt Options) error {
	if list, ok := b.store.List(top); ok {
		if !opt.AllowNoEvents {
			return b.fail("", "", "a list, as torch.cuda.memory_snapshot() returns, has segments but no events; %s", advice)
		}
		return b.build(&dict{b: b}, nil, list, opt)
	}
	d := b.dict(top, "", "a memory snapshot")
	traces, segments := d.list(keyDeviceTraces), d.list(keySegments)
	if d.err == nil && !d.has(keyDeviceTraces) && !d.has(keySegments) {
		return b.fail("", "", "a dict without device_traces and segments is not a memory snapshot; %s", advice)
	}
	return b.build(d, traces, segments, opt)
}

func (b *builder) build(d *dict, traces, segments []pickle.Value, opt Options) error {
	if d.err != nil {
		return d.err
	}
	devices := deviceTable{recorded: len(traces), index: map[int]*Device{}}
	steps := []func() error{
		func() error { return b.events(traces, &devices) },
		func() error { return b.someEvents(&devices, opt) },
		func() error { return b.segments(segments, &devices) },
		func() error { return b.annotations(d.list(keyExternalAnnotations), &devices) },
		func() error { return b.settings(d.get(keyAllocatorSettings)) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	if d.err != nil {
		return d.err
	}
	b.trace.Devices = devices.sorted()
	for i := range b.trace.Devices {
		if device := &b.trace.Devices[i]; len(device.Events) > 0 {
			if err := b.begin(d, device, opt.Base); err != nil {
				return err
			}
		}
	}
	b.trace.Stacks = b.stacks.table
	return nil
}

// begin sets the state before a device's first entry, and notes what the recording lacks.
func (b *builder) begin(d *dict, device *Device, base *Trace) error {
	p := pastOf(device.Events)
	b.pasts[&device.Events[0]] = p
	b.noteTruncation(d, device, p)
	b.noteMissing(device, base != nil)
	return b.initial(device, p, base)
}

func (b *builder) someEvents(devices *deviceTable, opt Options) error {
	if len(devices.list) > 0 || opt.AllowNoEvents {
		return nil
	}
	return b.fail("", "", "a snapshot without events: history was not being recorded when it was taken; %s", advice)
}

// deviceTable collects the devices that have events, segments or annotations.
type deviceTable struct {
	recorded int // length of device_traces
	list     []*Device
	index    map[int]*Device
}

func (t *deviceTable) get(ordinal int) *Device {
	d := t.index[ordinal]
	if d == nil {
		d = &Device{Ordinal: ordinal}
		t.index[ordinal] = d
		t.list = append(t.list, d)
	}
	return d
}

func (t *deviceTable) sorted() []Device {
	slices.SortFunc(t.list, func(a, b *Device) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	devices := make([]Device, len(t.list))
	for i, d := range t.list {
		devices[i] = *d
	}
	return devices
}
