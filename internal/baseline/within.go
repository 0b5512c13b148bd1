package baseline

import "github.com/stplan/stplan/internal/trace"

// Within is what an allocator does with a program if memory is limited.
type Within struct {
	// PeakReserved is what it takes without a limit, in bytes.
	PeakReserved trace.Bytes
	// Limited is the run within the limit. It is the one without a limit if that stays
	// below it. Its OOM says where the program stops, if it does not get by.
	Limited Result
}

// Fits says that the program gets by within the limit.
func (w *Within) Fits() bool { return w.Limited.OOM == nil }

// SimulateWithin runs a program on an allocator with usable bytes of memory to have, of a
// device with so much, 0 if that is not known. A model that knows no limit runs out of memory with the first
// request that takes it beyond.
func SimulateWithin(p *Program, a Allocator, usable, device trace.Bytes, progress func(done, total int64)) (Within, error) {
	usable = max(1, usable) // 0 is no limit to the models
	free := a
	if a.Within != nil {
		free = a.Within(0, 0)
	}
	whole, err := Simulate(p, free, progress)
	w := Within{PeakReserved: whole.PeakReserved, Limited: whole}
	switch {
	case err != nil || whole.PeakReserved <= usable:
		return w, err
	case a.Within != nil:
		w.Limited, err = Simulate(p, a.Within(usable, device), progress)
	default:
		w.Limited, err = follow(p, a, usable, progress, nil)
	}
	return w, err
}
