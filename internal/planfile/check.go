package planfile

import (
	"fmt"
	"math"
	"unicode"
	"unicode/utf8"
)

// Limits of the format. Every sum of two sizes or times stays below 2^63.
const (
	maxProducer  = 255
	maxDevices   = 1 << 16
	maxStreams   = 1 << 16
	maxRecords   = math.MaxUint32 // slots, waits and passes of a device
	maxPhases    = 256
	maxNumber    = 1 << 62 // a size, an offset, a time
	minAlignment = 512
	maxAlignment = 1 << 30
)

// fault is a broken rule of the format: the record, its field and what is
// wrong. A zero kind means no fault.
type fault struct {
	kind    sectionKind
	device  int // index into Plan.Devices
	record  int
	field   string
	problem string
}

func (f fault) is() bool { return f.kind != 0 }

// where names the record and field for people, who know devices by ordinal.
func (f fault) where(p *Plan) string {
	s := sections[f.kind].name
	if f.kind != sectionProducer {
		s = fmt.Sprintf("device %d", p.Devices[f.device].Ordinal)
	}
	if f.kind != sectionProducer && f.kind != sectionDevice {
		s += fmt.Sprintf(": %s %d", sections[f.kind].name, f.record)
	}
	if f.field != "" {
		s += ": " + f.field
	}
	return s
}

// check finds the first rule of docs/planfile.md that a plan breaks. It looks
// at records one by one, and at what refers to what: whether two slots may share
// memory is not the format's business but that of a verifier.
func check(p *Plan) fault {
	if problem := producerProblem(p.Producer); problem != "" {
		return fault{kind: sectionProducer, problem: problem}
	}
	for i := range p.Devices {
		c := checker{d: &p.Devices[i], device: i}
		f := c.header(p)
		for _, rule := range [...]func() fault{c.streams, c.phases, c.slots, c.cells, c.passes, c.waits, c.witness} {
			if !f.is() {
				f = rule()
			}
		}
		if f.is() {
			return f
		}
	}
	return fault{}
}

func producerProblem(s string) string {
	if s == "" || len(s) > maxProducer {
		return fmt.Sprintf("%d bytes, expected 1 to %d", len(s), maxProducer)
	}
	if !utf8.ValidString(s) {
		return fmt.Sprintf("%q is not UTF-8", s)
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fmt.Sprintf("%q has a control character", s)
		}
	}
	return ""
}

// checker holds one device while its records are checked.
type checker struct {
	d      *Device
	device int
}

func (c *checker) fault(kind sectionKind, record int, field, format string, args ...any) fault {
	return fault{kind, c.device, record, field, fmt.Sprintf(format, args...)}
}
