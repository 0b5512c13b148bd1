package trace

// Failures are the requests of a device that its allocator could not serve, in order.
type Failures struct {
	// At are the times of the out-of-memory events.
	At []Time
	// Fatal says that the recording ends in the last of them: nothing is allocated
	// after it. The program went on after all others, without what it had asked for.
	Fatal bool
}

// Failures finds the out-of-memory events of the device.
func (d *Device) Failures() Failures {
	var f Failures
	for i := range d.Events {
		switch d.Events[i].Action {
		case ActionOOM:
			f.At = append(f.At, Time(i))
			f.Fatal = true
		case ActionAlloc:
			f.Fatal = false
		}
	}
	return f
}

// Room is what an out-of-memory event of the device says of memory: the bytes that the driver had
// free, or, if addresses are invented, those that the process could have in all. The other one is 0.
func (d *Device) Room(e *Event) (free, had Bytes) {
	const most = 1 << 62 // more than any device has, and no sum of a few overflows
	known := Bytes(min(e.Addr, most))
	if d.AddressesInvented {
		return 0, known
	}
	return known, 0
}

// Last is the time of the last failure, -1 if there is none.
func (f *Failures) Last() Time {
	if len(f.At) == 0 {
		return -1
	}
	return f.At[len(f.At)-1]
}

// FatalAt is the time of the failure that the recording ends in, -1 if it does not
// end in one.
func (f *Failures) FatalAt() Time {
	if !f.Fatal {
		return -1
	}
	return f.Last()
}
