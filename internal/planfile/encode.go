package planfile

import (
	"encoding/binary"
	"fmt"
)

// Encode writes a plan. Equal plans give equal bytes. A plan that breaks a rule of the
// format is refused, with an error that names the record and the rule.
func Encode(p *Plan) ([]byte, error) {
	if n := len(p.Devices); n == 0 || n > maxDevices {
		return nil, fmt.Errorf("invalid plan: %d devices, expected 1 to %d", n, maxDevices)
	}
	if f := check(p); f.is() {
		return nil, fmt.Errorf("invalid plan: %s: %s", f.where(p), f.problem)
	}
	return encode(p), nil
}

// encode writes a plan without checking it.
func encode(p *Plan) []byte {
	table, length := layOut(p)
	w := &writer{buf: make([]byte, 0, length)}
	w.buf = append(w.buf, magic...)
	w.buf = binary.LittleEndian.AppendUint32(w.buf, p.Version())
	w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(len(table)))
	w.buf = binary.LittleEndian.AppendUint64(w.buf, length)
	w.buf = append(w.buf, make([]byte, headerBytes-checksumAt)...)
	for i := range table {
		table[i].visit(w)
	}
	w.raw("", []byte(p.Producer))
	w.pad()
	for i := range p.Devices {
		w.device(&p.Devices[i])
	}
	binary.LittleEndian.PutUint64(w.buf[checksumAt:], checksum(w.buf))
	return w.buf
}

// layOut gives every section its place, and the file its length.
func layOut(p *Plan) (table []entry, length uint64) {
	table = make([]entry, 1+len(p.Devices)*len(deviceSections))
	at := uint64(headerBytes + len(table)*entryBytes)
	for i := range table {
		kind, device := expectedSection(i)
		count := uint64(len(p.Producer))
		if device != noDevice {
			count = p.Devices[device].records(kind)
		}
		length := count * sections[kind].record
		table[i] = entry{uint32(kind), device, at, length, count}
		at += padded(length)
	}
	return table, at
}

// records is the number of records of the device in one of its sections.
func (d *Device) records(kind sectionKind) uint64 {
	switch kind {
	case sectionStreams:
		return uint64(len(d.Streams))
	case sectionSlots:
		return uint64(len(d.Slots))
	case sectionWaits:
		return uint64(len(d.Waits))
	case sectionPhases:
		return uint64(len(d.Phases))
	case sectionPasses:
		return uint64(len(d.Passes))
	case sectionPresence:
		words := uint64(0)
		for i := range d.Passes {
			words += uint64(len(d.Passes[i].Present))
		}
		return words
	case sectionWitness:
		return uint64(len(d.Certificate.Witness))
	}
	return 1
}

// device appends the sections of one device.
func (w *writer) device(d *Device) {
	d.visit(w)
	writeList(w, d.Streams, visitStream)
	writeList(w, d.Slots, (*Slot).visit)
	writeList(w, d.Waits, (*Wait).visit)
	writeList(w, d.Phases, (*Phase).visit)
	for i := range d.Passes {
		(&passRecord{firstEvent: d.Passes[i].FirstEvent, phase: d.Passes[i].Phase}).visit(w)
	}
	for i := range d.Passes {
		writeList(w, d.Passes[i].Present, visitWord)
	}
	writeList(w, d.Certificate.Witness, visitIndex)
}
