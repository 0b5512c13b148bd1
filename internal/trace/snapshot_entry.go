package trace

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/stplan/stplan/internal/trace/pickle"
)

// The classes of folded values. The low 2 bits of a folded number are its class.
const (
	foldedEntry = iota // index into builder.entries
	foldedFrame        // index into builder.stacks.frames
	foldedStack        // index of a stack
)

func fold(class int, n int) uint64 { return uint64(n)<<2 | uint64(class) }

func unfold(number uint64) (class, n int) { return int(number & 3), int(number >> 2) }

// FoldDict implements pickle.Folder. A trace entry becomes an Event, a frame becomes its
// number. A dict that looks like one of these but has a wrong value stays a dict. It is an
// error only if it is used in a place for an entry or a frame.
func (b *builder) FoldDict(s *pickle.Store, items []pickle.Value) (uint64, bool) {
	b.store = s
	for i := 0; i < len(items); i += 2 {
		switch key, _ := s.StringNumber(items[i]); key {
		case keyAction:
			e, bad := b.entry(items)
			if bad != noKey {
				return 0, false
			}
			return fold(foldedEntry, b.add(e)), true
		case keyFilename:
			d := dict{b: b, items: items}
			f := b.frame(&d)
			return fold(foldedFrame, int(f)), d.err == nil
		}
	}
	return 0, false
}

// noKey stands for a key if no key of an entry is to blame.
const noKey = -1

const (
	wantNumber = "an integer from 0 up"
	wantString = "a string"
	wantFrames = "a list of stack frames"
)

// wantEntry describes the values of an entry's keys.
var wantEntry = [...]string{
	keyAction:         wantString,
	keyAddr:           wantNumber,
	keyDeviceFree:     wantNumber,
	keySize:           wantNumber,
	keyStream:         "an integer",
	keyTimeUS:         wantNumber,
	keyFrames:         wantFrames,
	keyCompileContext: wantString,
	keyUserMetadata:   wantString,
	keyPoolID:         "a tuple of two integers",
}

// entry makes an Event of a trace entry. It returns the key to blame, or noKey. No key is
// to blame in an entry with an unknown action: values that cannot be read are left out.
func (b *builder) entry(items []pickle.Value) (e Event, bad int) {
	e = Event{Stack: None, UserMetadata: None, CompileContext: None, Pool: -1}
	bad = noKey
	var free uint64 // device_free
	var seen uint32 // the keys of the entry, as bits
	for i := 0; i < len(items); i += 2 {
		key, ok := b.store.StringNumber(items[i])
		if !ok || key > keyPoolID {
			continue
		}
		seen |= 1 << key
		v := items[i+1]
		switch key {
		case keyAction:
			e.Action, ok = b.action(v)
		case keyAddr:
			e.Addr, ok = b.unsigned(v)
		case keyDeviceFree:
			free, ok = b.unsigned(v)
		case keySize:
			var n uint64
			n, ok = b.unsigned(v)
			e.Size = Bytes(n)
		case keyStream:
			var n int64
			n, ok = b.store.Int(v)
			e.Stream = uint64(n)
		case keyTimeUS:
			var n uint64
			n, ok = b.unsigned(v)
			e.TimeUS = int64(n)
		case keyFrames:
			e.Stack, ok = b.stack(v)
		case keyCompileContext:
			e.CompileContext, ok = b.label(v)
		case keyUserMetadata:
			e.UserMetadata, ok = b.label(v)
		case keyPoolID:
			e.Pool, ok = b.pool(v)
		}
		if !ok && bad == noKey {
			bad = key
		}
	}
	switch {
	case e.Action == ActionOther && seen&(1<<keyAction) != 0 && bad != keyAction:
		return tame(e), noKey
	case bad != noKey:
		return e, bad
	}
	if e.Action == ActionOOM && seen&(1<<keyDeviceFree) != 0 {
		e.Addr = free
		seen |= 1 << keyAddr
	}
	return e, missing(seen)
}

// missing returns a key that every entry needs and this one lacks, or noKey.
func missing(seen uint32) int {
	const needed uint32 = 1<<keyAction | 1<<keyAddr | 1<<keySize | 1<<keyStream
	if seen&needed == needed {
		return noKey
	}
	return bits.TrailingZeros32(needed &^ seen)
}

func (b *builder) unsigned(v pickle.Value) (uint64, bool) {
	i, ok := b.store.Int(v)
	if !ok || i < 0 {
		return 0, false
	}
	return uint64(i), true
}

func (b *builder) action(v pickle.Value) (Action, bool) {
	n, ok := b.store.StringNumber(v)
	if !ok {
		return ActionOther, false
	}
	if a := n - keyActions; a >= 0 && a < len(actionNames) {
		return Action(a), true
	}
	const most = 4 // unknown actions that the note names
	if len(b.unknown) < most && !slices.Contains(b.unknown, n) {
		b.unknown = append(b.unknown, n)
	}
	return ActionOther, true
}

// label returns a string's index in Trace.Strings. Torch's defaults are None.
func (b *builder) label(v pickle.Value) (int32, bool) {
	n, ok := b.store.StringNumber(v)
	if !ok || n == keyEmpty || n == keyNotApplicable {
		return None, ok
	}
	id, ok := b.labels[n]
	if !ok {
		id = int32(len(b.trace.Strings))
		b.trace.Strings = append(b.trace.Strings, b.store.StringNumbered(n))
		b.labels[n] = id
	}
	return id, true
}

func (b *builder) pool(v pickle.Value) (int16, bool) {
	id, ok := b.store.IntPair(v)
	if !ok {
		return -1, false
	}
	return b.pools.number(id)
}

// add stores an event and returns its index. If the size of the file is known, the part
// that is read gives an estimate of the number of events, so the list is seldom copied.
func (b *builder) add(e Event) int {
	const (
		// least is a number of events for which there is always room: few events give
		// no good estimate.
		least = 4096
		// most is the largest factor by which the list grows at a time. It bounds the
		// memory for a file with all its entries at the beginning.
		most = 16
		// spare multiplies the estimate: if it were a little too low, the list would
		// be copied once more.
		spare = 1.15
	)
	n := len(b.entries)
	if n == cap(b.entries) {
		room := 2 * max(n, least)
		if b.done > 0 && b.done < b.total {
			room = min(most*max(n, least), int(float64(n)*float64(b.total)/float64(b.done)*spare)+least)
		}
		b.entries = append(make([]Event, 0, room), b.entries...)
	}
	b.entries = append(b.entries, e)
	return n
}

// events fills the devices that have entries in device_traces.
func (b *builder) events(traces []pickle.Value, devices *deviceTable) error {
	for ordinal, v := range traces {
		list, ok := b.store.List(v)
		if !ok {
			return b.fail(deviceName(ordinal), keyNames[keyDeviceTraces], "expected a list of entries, found %s", b.describe(v))
		}
		if len(list) == 0 {
			continue
		}
		if err := b.spend(list, deviceName(ordinal)); err != nil {
			return err
		}
		if err := b.deviceEvents(devices.get(ordinal), list); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) deviceEvents(d *Device, list []pickle.Value) error {
	if d.Events = b.stretch(list); d.Events == nil {
		d.Events = make([]Event, len(list))
		for i, v := range list {
			var err error
			if d.Events[i], err = b.event(v, d.Ordinal, i); err != nil {
				return err
			}
		}
	}
	d.ownPools(b.pools.list)
	return nil
}

// stretch returns the events of a list without copying them. It returns nil if they are
// not consecutive in b.entries, which happens if two lists share entries.
func (b *builder) stretch(list []pickle.Value) []Event {
	first := -1
	for i, v := range list {
		number, ok := b.store.Folded(v)
		class, n := unfold(number)
		if i == 0 {
			first = n
		}
		if !ok || class != foldedEntry || n != first+i {
			return nil
		}
	}
	if first < b.taken {
		return nil
	}
	b.taken = first + len(list)
	return b.entries[first:b.taken:b.taken]
}

func (b *builder) event(v pickle.Value, ordinal, i int) (Event, error) {
	if number, ok := b.store.Folded(v); ok {
		if class, n := unfold(number); class == foldedEntry {
			return b.entries[n], nil
		}
	}
	d := b.dict(v, entryName(ordinal, i), "a trace entry")
	if d.err != nil {
		return Event{}, d.err
	}
	e, bad := b.entry(d.items)
	if bad != noKey {
		if bad == keyFrames {
			return e, b.badFrames(d.get(bad), d.where)
		}
		d.wrong(bad, wantEntry[bad])
	}
	return e, d.err
}

func deviceName(ordinal int) string { return fmt.Sprintf("device %d", ordinal) }

func entryName(ordinal, i int) string { return fmt.Sprintf("device %d: entry %d", ordinal, i) }
