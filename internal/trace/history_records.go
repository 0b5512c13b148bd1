package trace

import (
	"encoding/binary"
	"fmt"
	"math"
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

	historyKindBits = 3
)

// maxMark is the largest mark: 0 is stplan_mark, N is a step of optimizer N.
const maxMark = 255

// markAnnotation names marks of stplan_mark in a trace.
const markAnnotation = "stplan.mark"

// stepAnnotation names the steps of an optimizer as torch.optim does, so that they are
// found as in a snapshot.
const stepAnnotation = "Optimizer.step#"

// historyBlock is a block of a history: addr is 0 when it has been freed.
type historyBlock struct {
	addr   uint64
	size   Bytes
	stream uint32
}

// historyDevice turns the records of a device into events.
type historyDevice struct {
	reader *historyReader
	part   *historyPart
	at     int    // byte of the records that is read next
	stream uint32 // of the last allocation
	blocks []historyBlock
	places places
	out    *Device
}

func (h *historyReader) device(p *historyPart) (*Device, error) {
	d := &historyDevice{reader: h, part: p, places: newPlaces(), blocks: make([]historyBlock, 0, p.allocations)}
	// An allocation is one event and a free two.
	d.out = &Device{Ordinal: int(p.ordinal), AddressesInvented: true, Events: make([]Event, 0, 2*p.count-p.allocations)}
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
	return d.out, nil
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
		return d.mark(from, v)
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
	addr, ok := d.places.take(Bytes(size))
	if !ok {
		return d.fail(from, "with these %d B, allocations take more than the address space", size)
	}
	d.blocks = append(d.blocks, historyBlock{addr, Bytes(size), d.stream})
	d.event(ActionAlloc, &d.blocks[len(d.blocks)-1])
	return nil
}

// onStream reads the index of a stream, which must not be `but`.
func (d *historyDevice) onStream(from int, but uint32) (uint32, error) {
	v, err := d.number()
	switch {
	case err != nil:
		return 0, err
	case v >= uint64(len(d.part.streams)):
		return 0, d.fail(from, "stream %d is not one of %d", v, len(d.part.streams))
	case v == uint64(but):
		return 0, d.fail(from, "stream %d is named where it goes without saying", v)
	}
	return uint32(v), nil
}

// block finds the live block that was allocated `back` allocations before the last one.
func (d *historyDevice) block(from int, back uint64) (*historyBlock, error) {
	if back >= uint64(len(d.blocks)) {
		return nil, d.fail(from, "%d allocations back of %d there is none", back, len(d.blocks))
	}
	b := &d.blocks[uint64(len(d.blocks))-1-back]
	if b.addr == 0 {
		return nil, d.fail(from, "allocation %d has been freed before", uint64(len(d.blocks))-1-back)
	}
	return b, nil
}

// free ends a block. The runtime does not see when a free completes: streams that reuse
// the memory wait on the device. So it completes at once.
func (d *historyDevice) free(from int, back uint64) error {
	b, err := d.block(from, back)
	if err != nil {
		return err
	}
	d.event(ActionFreeRequested, b)
	d.event(ActionFreeCompleted, b)
	d.places.give(b.addr, b.size)
	b.addr = 0
	return nil
}

// use checks a use by another stream. A trace has no event for it, nor has a snapshot.
func (d *historyDevice) use(from int, back uint64) error {
	b, err := d.block(from, back)
	if err != nil {
		return err
	}
	_, err = d.onStream(from, b.stream)
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
	d.out.Annotations = append(d.out.Annotations, Annotation{Name: name, End: mark > 0, At: Time(len(d.out.Events))})
	return nil
}

func (d *historyDevice) event(action Action, b *historyBlock) {
	d.out.Events = append(d.out.Events, Event{
		Addr: b.addr, Size: b.size, Stream: d.part.streams[b.stream],
		Stack: None, UserMetadata: None, CompileContext: None, Pool: int16(None), Action: action,
	})
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
