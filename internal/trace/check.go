package trace

import (
	"fmt"
	"math"
	"slices"
)

// maxSize is the largest size of an entry, in bytes: 256 TiB, all of a 48-bit
// address space.
const maxSize Bytes = 1 << 48

// maxOrdinal is the largest device ordinal. Torch stores ordinals in 16 bits or
// fewer.
const maxOrdinal = math.MaxInt16

// entryOf names an entry as a snapshot counts them.
func entryOf(d *Device, entry int) string { return entryName(d.Ordinal, entry) }

// validate checks all that later stages rely on: sizes and indices are in range,
// sums do not overflow, allocations and frees pair up and do not overlap,
// annotations are in order, blocks tile their segments, and the settings are
// possible. Both readers end in it, so every Trace that they return has passed.
// where is the reader's way to name an entry. The first violation is returned.
//
// An address that is freed before it was ever allocated was live before the
// recording began. This is refused only if the device's initial state is recorded
// exactly (Initial is given and not inferred) and does not have the address.
func (t *Trace) validate(allowNoEvents bool, where func(*Device, int) string) *InputError {
	return newChecker(t, where).validate(allowNoEvents)
}

func (c *checker) validate(allowNoEvents bool) *InputError {
	err := c.trace(allowNoEvents)
	if err != nil {
		err.Name = c.t.Name
	}
	return err
}

type checker struct {
	t     *Trace
	where func(*Device, int) string
	texts utf8Check
	pasts map[*Event]*past // by a device's first event, if the reader has made them
}

func newChecker(t *Trace, where func(*Device, int) string) *checker {
	return &checker{t: t, where: where, texts: utf8Check{}}
}

func (c *checker) trace(allowNoEvents bool) *InputError {
	if err := c.tables(); err != nil {
		return err
	}
	if err := c.settings(); err != nil {
		return err
	}
	var events, allocs int
	for i := range c.t.Devices {
		d := &c.t.Devices[i]
		if i > 0 && d.Ordinal <= c.t.Devices[i-1].Ordinal {
			return &InputError{Problem: fmt.Sprintf("device %d after device %d; devices must be in ascending order", d.Ordinal, c.t.Devices[i-1].Ordinal)}
		}
		found, err := c.shape(d)
		if err == nil {
			err = c.reserved(d, &found)
		}
		if err == nil {
			err = c.pairs(d, &found)
		}
		if err != nil {
			return err
		}
		events += len(d.Events)
		allocs += found.count[ActionAlloc]
	}
	switch {
	case allowNoEvents: // a base needs only its segments
	case events == 0:
		return &InputError{Problem: "empty trace: no device has an event; " + advice}
	case allocs == 0:
		return &InputError{Problem: fmt.Sprintf("trace without allocations: none of %d events is an alloc; %s", events, advice)}
	}
	return nil
}

// tables checks the tables that events index into.
func (c *checker) tables() *InputError {
	for i, s := range c.t.Strings {
		if !c.texts.valid(s) {
			return &InputError{Where: fmt.Sprintf("string %d", i), Problem: notUTF8(s)}
		}
	}
	for i, n := range c.t.Notes {
		if !c.texts.valid(n) {
			return &InputError{Where: fmt.Sprintf("note %d", i), Problem: notUTF8(n)}
		}
	}
	return c.stacks()
}

// settings refuses numbers that JSON cannot hold or that no allocator accepts.
func (c *checker) settings() *InputError {
	s := &c.t.Settings
	key, problem := 0, ""
	switch g := s.GarbageCollectionThreshold; {
	case !(g >= 0) || math.IsInf(g, 1):
		key, problem = keyGarbageCollectionThreshold, fmt.Sprintf("expected a finite number from 0 up, found %v", g)
	case s.MaxSplitSize < -1:
		key, problem = keyMaxSplitSize, fmt.Sprintf("expected bytes, or -1 for no limit, found %d", s.MaxSplitSize)
	case slices.Min(s.RoundupPower2Divisions[:]) < 0:
		key, problem = keyRoundupPower2Divisions, fmt.Sprintf("expected numbers from 0 up, found %d", slices.Min(s.RoundupPower2Divisions[:]))
	default:
		return nil
	}
	return &InputError{Where: keyNames[keyAllocatorSettings], Column: keyNames[key], Problem: problem}
}

func (c *checker) stacks() *InputError {
	s := &c.t.Stacks
	for i, f := range s.Frames {
		if !c.texts.valid(f.File) || !c.texts.valid(f.Name) {
			return &InputError{Where: fmt.Sprintf("frame %d", i), Problem: notUTF8(f.File + " " + f.Name)}
		}
	}
	for i, f := range s.Index {
		if f < 0 || int(f) >= len(s.Frames) {
			return &InputError{Where: fmt.Sprintf("stack frame %d", i), Problem: outOfRange("frame", int(f), len(s.Frames))}
		}
	}
	last := int32(0)
	for i, b := range s.Bounds {
		if b < last || int(b) > len(s.Index) {
			return &InputError{Where: fmt.Sprintf("stack %d", i), Problem: fmt.Sprintf("bound %d, expected %d to %d", b, last, len(s.Index))}
		}
		last = b
	}
	return nil
}

// census counts a device's events.
type census struct {
	count    [ActionOOM + 1]int // events of each action
	segments []int32            // the entries about segments
}

// shape checks everything about a device except how its events pair up.
func (c *checker) shape(d *Device) (found census, err *InputError) {
	switch {
	case d.Ordinal < 0 || d.Ordinal > maxOrdinal:
		return found, &InputError{Problem: fmt.Sprintf("device ordinal %d is outside 0 to %d", d.Ordinal, maxOrdinal)}
	case len(d.Events) > math.MaxInt32:
		return found, &InputError{Where: fmt.Sprintf("device %d", d.Ordinal), Problem: fmt.Sprintf("%d events, more than %d", len(d.Events), math.MaxInt32)}
	case len(d.Pools) > math.MaxInt16+1:
		return found, &InputError{Where: fmt.Sprintf("device %d", d.Ordinal), Problem: fmt.Sprintf("%d pools, more than %d", len(d.Pools), math.MaxInt16+1)}
	}
	if err = c.annotations(d); err == nil {
		err = c.segments(d, "initial", d.Initial)
	}
	if err == nil {
		err = c.segments(d, "final", d.Final)
	}
	if err == nil {
		found, err = c.events(d)
	}
	return found, err
}

func (c *checker) annotations(d *Device) *InputError {
	var last Time
	for i, a := range d.Annotations {
		where := fmt.Sprintf("device %d: annotation %d", d.Ordinal, i)
		switch {
		case a.At < 0 || a.At > Time(len(d.Events)):
			return &InputError{Where: where, Problem: fmt.Sprintf("placed before event %d, expected 0 to %d", a.At, len(d.Events))}
		case a.At < last:
			return &InputError{Where: where, Problem: fmt.Sprintf("placed before event %d, but the annotation before it before event %d", a.At, last)}
		case !c.texts.valid(a.Name):
			return &InputError{Where: where, Problem: notUTF8(a.Name)}
		}
		last = a.At
	}
	return nil
}

// segments checks one of a device's two recorded states.
func (c *checker) segments(d *Device, state string, segments []Segment) *InputError {
	var free uint64 // first address after the previous segment
	var sum Bytes
	for i := range segments {
		s := &segments[i]
		where := fmt.Sprintf("device %d: %s segment %d", d.Ordinal, state, i)
		switch {
		case s.Size <= 0 || s.Size > maxSize:
			return &InputError{Where: where, Problem: sizeProblem(s.Size, 1)}
		case overflows(s.Address, s.Size):
			return &InputError{Where: where, Problem: overflowProblem(s.Address, s.Size)}
		case s.Address < free:
			return &InputError{Where: where, Problem: fmt.Sprintf("starts at %#x, inside or before the previous segment, which ends at %#x", s.Address, free)}
		}
		if sum += s.Size; sum > maxHeld {
			return &InputError{Where: where, Problem: fmt.Sprintf("segments of %d B so far, expected at most %d B", sum, maxHeld)}
		}
		if err := c.blocks(s); err != nil {
			err.Where = where + ": " + err.Where
			return err
		}
		free = s.Address + uint64(s.Size)
	}
	return nil
}

// blocks checks that a segment's blocks tile it.
func (c *checker) blocks(s *Segment) *InputError {
	next := s.Address
	end := s.Address + uint64(s.Size)
	for i, b := range s.Blocks {
		where := fmt.Sprintf("block %d", i)
		switch {
		case b.Address != next:
			return &InputError{Where: where, Problem: fmt.Sprintf("starts at %#x, expected %#x: blocks must tile their segment", b.Address, next)}
		case b.Size <= 0 || uint64(b.Size) > end-next:
			return &InputError{Where: where, Problem: fmt.Sprintf("size %d B, expected 1 to %d B: blocks must tile their segment", b.Size, end-next)}
		case b.State > BlockPendingFree:
			return &InputError{Where: where, Problem: fmt.Sprintf("state %d is unknown", b.State)}
		case b.State != BlockInactive && (b.Requested < 0 || b.Requested > b.Size):
			return &InputError{Where: where, Problem: fmt.Sprintf("requested size %d B, expected 0 to %d B, the block's size", b.Requested, b.Size)}
		case !inTable(b.Stack, c.t.Stacks.Len()):
			return &InputError{Where: where, Problem: outOfRange("stack", int(b.Stack), c.t.Stacks.Len())}
		}
		next += uint64(b.Size)
	}
	if next != end {
		return &InputError{Where: fmt.Sprintf("block %d", len(s.Blocks)),
			Problem: fmt.Sprintf("missing: the blocks end at %#x, the segment at %#x", next, end)}
	}
	return nil
}

// events checks a device's events one by one.
func (c *checker) events(d *Device) (found census, err *InputError) {
	stacks, texts, pools := c.t.Stacks.Len(), len(c.t.Strings), len(d.Pools)
	for i := range d.Events {
		e := &d.Events[i]
		column, problem := "", ""
		switch {
		case e.Action > ActionOOM:
			column, problem = colAction, fmt.Sprintf("action %d is unknown", e.Action)
		case e.Size < 0 || e.Size > maxSize:
			column, problem = colSize, sizeProblem(e.Size, 0)
		case e.Action != ActionOOM && overflows(e.Addr, e.Size):
			column, problem = colAddr, overflowProblem(e.Addr, e.Size)
		case !inTable(e.Stack, stacks):
			column, problem = colStack, outOfRange("stack", int(e.Stack), stacks)
		case !inTable(e.UserMetadata, texts):
			column, problem = colUserMetadata, outOfRange("string", int(e.UserMetadata), texts)
		case !inTable(e.CompileContext, texts):
			column, problem = colCompileContext, outOfRange("string", int(e.CompileContext), texts)
		case !inTable(int32(e.Pool), pools):
			column, problem = colPool, outOfRange("pool", int(e.Pool), pools)
		default:
			found.count[e.Action]++
			if e.Action >= ActionSegmentAlloc && e.Action <= ActionSegmentUnmap {
				found.segments = append(found.segments, int32(i))
			}
			continue
		}
		return found, &InputError{Where: c.where(d, i), Column: column, Problem: problem}
	}
	return found, nil
}

// pairs checks that a device's allocations and frees pair up.
func (c *checker) pairs(d *Device, found *census) *InputError {
	if len(d.Events) == 0 {
		return nil
	}
	known := c.pasts[&d.Events[0]]
	if known == nil {
		known = pastOf(d.Events)
	}
	p := newPairing(d, found, known)
	for i := range d.Events {
		if e := &d.Events[i]; e.pairs() {
			if err := p.step(c, i, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// tame makes an event of an unknown kind valid: its size has no meaning.
func tame(e Event) Event {
	if e.Size < 0 || e.Size > maxSize || overflows(e.Addr, e.Size) {
		e.Size = 0
	}
	return e
}

func overflows(addr uint64, size Bytes) bool { return addr > math.MaxUint64-uint64(size) }

func inTable(i int32, n int) bool { return i >= None && int(i) < n }

func overflowProblem(addr uint64, size Bytes) string {
	return fmt.Sprintf("address %#x plus %d B is beyond the 64-bit address space", addr, size)
}

func sizeProblem(size, least Bytes) string {
	return fmt.Sprintf("size %d B, expected %d to %d B", size, least, maxSize)
}

func outOfRange(what string, i, n int) string {
	return fmt.Sprintf("%s %d is not one of the trace's %d", what, i, n)
}

func notUTF8(s string) string { return quoteShort(s) + " is not UTF-8" }
