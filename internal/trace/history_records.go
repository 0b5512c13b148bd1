package trace

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// The kinds of records, in the lowest bits of a record's first number.
const (
	historyBytes   = iota // an allocation, its size in bytes
	historyUnits          // an allocation, its size in units of 512 B
	historyBytesOn        // the same on another stream than the allocation before
	historyUnitsOn
	historyFree
	historyUse
	historyMark
	historyExchange

	historyKindBits = 3
)

// maxMark is the largest mark: 0 is stplan_mark, N is a step of optimizer N. failedMark stands for
// a request that got no memory.
const (
	maxMark    = 255
	failedMark = 256
)

// markAnnotation names marks of stplan_mark in a trace.
const markAnnotation = "stplan.mark"

// stepAnnotation names the steps of an optimizer as torch.optim does, so that they are
// found as in a snapshot.
const stepAnnotation = "Optimizer.step#"

// historyBlock is a block of a history.
type historyBlock struct {
	addr   uint64
	size   Bytes
	stream uint32
	used   bool // by other streams
	freed  bool
}

// historyAct is an allocation, a free, or a request that got no memory.
type historyAct struct {
	block  int // index into blocks, or into failures
	action Action
}

// historyDevice turns the records of a device into events: first into acts, with annotations and
// exchanges that count acts, as a free may complete later than those that follow it.
type historyDevice struct {
	reader    *historyReader
	part      *historyPart
	at        int    // byte of the records that is read next
	stream    uint32 // of the last allocation
	blocks    []historyBlock
	failures  []historyBlock // what the process could have stands for the address
	acts      []historyAct
	marks     []Annotation
	exchanges []Exchange
}

func (h *historyReader) device(p *historyPart) (*Device, error) {
	d := &historyDevice{reader: h, part: p, blocks: make([]historyBlock, 0, p.allocations), acts: make([]historyAct, 0, p.count)}
	count := uint64(0)
	for ; d.at < len(p.records); count++ {
		if err := d.record(); err != nil {
			return nil, err
		}
	}
	if count != p.count || uint64(len(d.blocks)) != p.allocations {
		return nil, h.fail(p.at, "device %d: found %d records, %d of them allocations, expected %d and %d",
			p.ordinal, count, len(d.blocks), p.count, p.allocations)
	}
	out, ok := d.events()
	if !ok {
		return nil, h.fail(p.at, "device %d: its allocations take more than the address space", p.ordinal)
	}
	return out, nil
}

// fail makes an error about the record at byte `from` of the records.
func (d *historyDevice) fail(from int, format string, args ...any) error {
	return d.reader.fail(d.part.at+from, "device %d: %s", d.part.ordinal, fmt.Sprintf(format, args...))
}

// number reads a number. It has to be written in as few bytes as possible.
func (d *historyDevice) number() (uint64, error) {
	v, n := binary.Uvarint(d.part.records[d.at:])
	switch {
	case n == 0:
		return 0, d.fail(d.at, "the records end within a number")
	case n < 0:
		return 0, d.fail(d.at, "a number of more than 64 bits")
	case n > 1 && d.part.records[d.at+n-1] == 0:
		return 0, d.fail(d.at, "a number in %d bytes that fits in fewer", n)
	}
	d.at += n
	return v, nil
}

func (d *historyDevice) record() error {
	from := d.at
	v, err := d.number()
	if err != nil {
		return err
	}
	v, kind := v>>historyKindBits, v&(1<<historyKindBits-1)
	switch kind {
	case historyBytes, historyUnits, historyBytesOn, historyUnitsOn:
		return d.alloc(from, kind, v)
	case historyFree:
		return d.free(from, v)
	case historyUse:
		return d.use(from, v)
	case historyMark:
		if v == failedMark && d.reader.version >= historyWithFailures {
			return d.failure(from)
		}
		return d.mark(from, v)
	case historyExchange:
		if d.reader.version >= historyWithExchanges {
			return d.exchange(from, v)
		}
	}
	return d.fail(from, "a record of the unknown kind %d", kind)
}

func (d *historyDevice) alloc(from int, kind, size uint64) error {
	if kind == historyUnits || kind == historyUnitsOn {
		if size > uint64(maxSize/Granularity) {
			return d.fail(from, "an allocation of %d units of %d B, expected at most %d B", size, Granularity, maxSize)
		}
		size *= uint64(Granularity)
	} else if size%uint64(Granularity) == 0 && size > 0 {
		return d.fail(from, "an allocation of %d B in bytes, expected it in units of %d B", size, Granularity)
	}
	if size < 1 || size > uint64(maxSize) {
		return d.fail(from, "an allocation of %d B, expected 1 to %d B", size, maxSize)
	}
	if kind == historyBytesOn || kind == historyUnitsOn {
		stream, err := d.onStream(from, d.stream)
		if err != nil {
			return err
		}
		d.stream = stream
	}
	if uint64(len(d.blocks)) == d.part.allocations {
		return d.fail(from, "more than %d allocations", d.part.allocations)
	}
	if int(d.stream) >= len(d.part.streams) {
		return d.fail(from, "stream %d is not one of %d", d.stream, len(d.part.streams))
	}
	d.acts = append(d.acts, historyAct{len(d.blocks), ActionAlloc})
	d.blocks = append(d.blocks, historyBlock{size: Bytes(size), stream: d.stream})
	return nil
}

// onStream reads the index of a stream, which must not be `but`.
func (d *historyDevice) onStream(from int, but uint32) (uint32, error) {
	v, err := d.anyStream(from)
	if err == nil && v == but {
		err = d.fail(from, "stream %d is named where it goes without saying", v)
	}
	return v, err
}

// block finds the live block that was allocated `back` allocations before the last one.
func (d *historyDevice) block(from int, back uint64) (int, error) {
	if back >= uint64(len(d.blocks)) {
		return 0, d.fail(from, "%d allocations back of %d there is none", back, len(d.blocks))
	}
	i := len(d.blocks) - 1 - int(back)
	if d.blocks[i].freed {
		return 0, d.fail(from, "allocation %d has been freed before", i)
	}
	return i, nil
}

func (d *historyDevice) free(from int, back uint64) error {
	i, err := d.block(from, back)
	if err != nil {
		return err
	}
	d.blocks[i].freed = true
	d.acts = append(d.acts, historyAct{i, ActionFreeRequested})
	return nil
}

// use is a use by another stream. A trace has no event for it, nor has a snapshot.
func (d *historyDevice) use(from int, back uint64) error {
	i, err := d.block(from, back)
	if err != nil {
		return err
	}
	d.blocks[i].used = true
	_, err = d.onStream(from, d.blocks[i].stream)
	return err
}

// mark becomes an annotation: the end of an optimizer's step, or the beginning of a step of
// the program.
func (d *historyDevice) mark(from int, mark uint64) error {
	if mark > maxMark {
		return d.fail(from, "mark %d, expected at most %d", mark, maxMark)
	}
	name := markAnnotation
	if mark > 0 {
		name = fmt.Sprintf("%s%d", stepAnnotation, mark)
	}
	d.marks = append(d.marks, Annotation{Name: name, End: mark > 0, At: Time(len(d.acts))})
	return nil
}

// failure is a request that got no memory.
func (d *historyDevice) failure(from int) error {
	size, err := d.number()
	if err != nil {
		return err
	}
	if size < 1 || size > uint64(maxSize) {
		return d.fail(from, "a request of %d B, expected 1 to %d B", size, maxSize)
	}
	stream, err := d.anyStream(from)
	if err != nil {
		return err
	}
	had, err := d.number()
	if err != nil {
		return err
	}
	if had > uint64(maxSize/Granularity) {
		return d.fail(from, "%d units of %d B to have, expected at most %d B", had, Granularity, maxSize)
	}
	d.acts = append(d.acts, historyAct{len(d.failures), ActionOOM})
	d.failures = append(d.failures, historyBlock{addr: had * uint64(Granularity), size: Bytes(size), stream: stream})
	return nil
}

// anyStream reads the index of a stream.
func (d *historyDevice) anyStream(from int) (uint32, error) {
	v, err := d.number()
	if err == nil && v >= uint64(len(d.part.streams)) {
		err = d.fail(from, "stream %d is not one of %d", v, len(d.part.streams))
	}
	return uint32(v), err
}

// exchange is an exchange that begins, or one of those before, that a stream waits for.
func (d *historyDevice) exchange(from int, back uint64) error {
	now := Time(len(d.acts))
	if back == 0 {
		d.exchanges = append(d.exchanges, Exchange{Begins: now})
		return nil
	}
	if back > uint64(len(d.exchanges)) {
		return d.fail(from, "%d exchanges back of %d there is none", back-1, len(d.exchanges))
	}
	v, err := d.anyStream(from)
	if err != nil {
		return err
	}
	e := &d.exchanges[len(d.exchanges)-int(back)]
	e.Awaits = append(e.Awaits, Await{d.part.streams[v], now})
	return nil
}

// events makes the device's events. A free completes at once, as streams that reuse the
// memory wait on the device, unless other streams use the block and an exchange is in the way of
// such a wait. ok is false without addresses.
func (d *historyDevice) events() (out *Device, ok bool) {
	out = &Device{Ordinal: int(d.part.ordinal), AddressesInvented: true, Events: make([]Event, 0, 2*len(d.acts)-len(d.blocks))}
	passes := NewPasses(d.exchanges)
	places := newPlaces()
	complete := func(b *historyBlock) {
		out.Events = append(out.Events, d.event(ActionFreeCompleted, b))
		places.give(b.addr, b.size)
	}
	begins := make([]Time, 0, len(d.acts)+1) // by act: its event, or the first one after what completes before it
	held := map[Time][]int{}                 // by act before which they complete
	for i, a := range d.acts {
		for _, k := range held[Time(i)] {
			complete(&d.blocks[k])
		}
		begins = append(begins, Time(len(out.Events)))
		if a.action == ActionOOM {
			out.Events = append(out.Events, d.event(ActionOOM, &d.failures[a.block]))
			continue
		}
		b := &d.blocks[a.block]
		if a.action == ActionAlloc {
			if b.addr, ok = places.take(b.size); !ok {
				return nil, false
			}
			out.Events = append(out.Events, d.event(ActionAlloc, b))
			continue
		}
		out.Events = append(out.Events, d.event(ActionFreeRequested, b))
		from := Time(i)
		if b.used {
			from = passes.From(from, d.part.streams[b.stream])
		}
		if from == Time(i) {
			complete(b)
		} else {
			held[from] = append(held[from], a.block)
		}
	}
	for _, k := range held[Time(len(d.acts))] {
		complete(&d.blocks[k])
	}
	begins = append(begins, Time(len(out.Events)))
	d.annotate(out, begins)
	return out, true
}

// annotate gives the device its marks and exchanges. begins has the event of each act.
func (d *historyDevice) annotate(out *Device, begins []Time) {
	out.Annotations = append(out.Annotations, d.marks...)
	for i := range d.exchanges {
		out.Annotations = append(out.Annotations, d.exchanges[i].Annotations(i+1)...)
	}
	for i := range out.Annotations {
		a := &out.Annotations[i]
		a.At = begins[a.At]
	}
	slices.SortStableFunc(out.Annotations, func(a, b Annotation) int { return cmp.Compare(a.At, b.At) })
}

func (d *historyDevice) event(action Action, b *historyBlock) Event {
	return Event{
		Addr: b.addr, Size: b.size, Stream: d.part.streams[b.stream],
		Stack: None, UserMetadata: None, CompileContext: None, Pool: int16(None), Action: action,
	}
}

// places invents addresses for blocks: those of a freed block of the same size, the latest
// first, or new ones behind all others.
type places struct {
	free map[Bytes][]uint64 // by size in whole units
	next uint64
}

// newPlaces begins at an address that is not 0, which stands for none.
func newPlaces() places { return places{free: map[Bytes][]uint64{}, next: 1 << 40} }

func (p *places) take(size Bytes) (addr uint64, ok bool) {
	size = RoundUp(size)
	if freed := p.free[size]; len(freed) > 0 {
		addr = freed[len(freed)-1]
		p.free[size] = freed[:len(freed)-1]
		return addr, true
	}
	if p.next > math.MaxInt64-uint64(size) {
		return 0, false
	}
	addr, p.next = p.next, p.next+uint64(size)
	return addr, true
}

func (p *places) give(addr uint64, size Bytes) {
	size = RoundUp(size)
	p.free[size] = append(p.free[size], addr)
}
