package planfile

import (
	"fmt"
	"math"
	"unicode"
	"unicode/utf8"
)

// Limits of the format, from docs/planfile.md. Other values are another version.
const (
	// maxProducer is the longest producer, in bytes. It is printed on one line.
	maxProducer = 255
	// maxDevices is the largest number of devices of a file, far above those of a
	// machine.
	maxDevices = 1 << 16
	// maxStreams is the largest number of streams of a device, far above what a program
	// uses.
	maxStreams = 1 << 16
	// maxRecords is the largest number of slots, waits or passes of a device. Indices are
	// u32 in the file.
	maxRecords = math.MaxUint32
	// maxPhases is the largest number of phases of a device. It bounds the work of
	// readers and verifiers, which handle every body by itself.
	maxPhases = 256
	// maxNumber is the largest size, in bytes, and the largest time. The sum of two of
	// them stays below 2^63.
	maxNumber = 1 << 62
	// minAlignment is the smallest alignment, in bytes: the granularity of PyTorch's
	// allocator.
	minAlignment = 512
	// maxAlignment is the largest alignment, in bytes, far above any page size.
	maxAlignment = 1 << 30
)

// fault is a broken rule of the format: the record, its field and what is wrong. If the
// kind is 0 there is no fault.
type fault struct {
	kind    sectionKind
	device  int // index into Plan.Devices
	record  int // index into the records of the section
	field   string
	problem string
}

func (f fault) is() bool { return f.kind != 0 }

// where names the record and the field for messages. Devices are named by ordinal.
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

// check finds the first rule of docs/planfile.md that a plan breaks. It looks at records
// one by one and at the references between them. Whether two slots may share memory is
// for a verifier to judge, not for the format.
func check(p *Plan) fault {
	if problem := producerProblem(p.Producer); problem != "" {
		return fault{kind: sectionProducer, problem: problem}
	}
	for i := range p.Devices {
		c := checker{d: &p.Devices[i], device: i}
		f := c.header(p)
		for _, rule := range [...]func() fault{c.streams, c.phases, c.slots, c.places, c.cells, c.passes, c.waits, c.witness} {
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

// producerProblem says what is wrong with a producer, "" if nothing is.
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
