package trace

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/trace/pickle"
)

// annotations gives each device that has a list in device_traces its annotations, and
// places them among its events. Annotations of other devices are dropped.
func (b *builder) annotations(list []pickle.Value, devices *deviceTable) error {
	for i, v := range list {
		d := b.dict(v, fmt.Sprintf("annotation %d", i), "an annotation")
		ordinal := d.signed(keyDevice)
		a := Annotation{Name: d.text(keyName), End: d.end(), TimeUS: d.integer(keyTimeUS)}
		if d.err != nil {
			return d.err
		}
		if ordinal >= 0 && ordinal < int64(devices.recorded) {
			device := devices.get(int(ordinal))
			device.Annotations = append(device.Annotations, a)
		}
	}
	for _, d := range devices.list {
		placeAnnotations(d)
	}
	return nil
}

func (d *dict) end() bool {
	switch d.text(keyStage) {
	case "START":
		return false
	case "END":
		return true
	}
	d.wrong(keyStage, "START or END")
	return false
}

// placeAnnotations sets At and sorts by it. Only the clock relates annotations to
// entries, and its readings may be equal. So a START is placed before the entries of its
// microsecond and an END after them: the range then has all events that may belong to
// it. If the clock stepped back, the first entry that is late enough counts.
func placeAnnotations(d *Device) {
	byTime := make([]*Annotation, len(d.Annotations))
	for i := range d.Annotations {
		byTime[i] = &d.Annotations[i]
	}
	slices.SortStableFunc(byTime, func(a, b *Annotation) int { return cmp.Compare(a.TimeUS, b.TimeUS) })
	var atOrAfter, after int // the first event at or after the annotation's time, and after it
	for _, a := range byTime {
		for atOrAfter < len(d.Events) && d.Events[atOrAfter].TimeUS < a.TimeUS {
			atOrAfter++
		}
		after = max(after, atOrAfter)
		for after < len(d.Events) && d.Events[after].TimeUS <= a.TimeUS {
			after++
		}
		a.At = Time(atOrAfter)
		if a.End {
			a.At = Time(after)
		}
	}
	slices.SortStableFunc(d.Annotations, func(a, b Annotation) int { return cmp.Compare(a.At, b.At) })
}
