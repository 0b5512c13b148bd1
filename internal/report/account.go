// Package report turns results into what people and machines read: tables for a
// terminal, JSON for scripts, CSV for outside checkers. It computes nothing itself
// but the terms of account that every table shares.
//
// What a command prints as JSON is a type of this package, in the file of the
// command's name, with the method that prints the same as text (docs/json.md).
package report

// Account is one allocator's memory over one run, in bytes. The terms are the
// glossary's (docs/glossary.md), the same for every allocator:
//
//	efficiency          = peak allocated / peak reserved
//	fragmentation ratio = 1 − efficiency
//	waste               = peak reserved − peak allocated
type Account struct {
	PeakReserved  int64
	PeakAllocated int64
}

// Efficiency is the share of the reserved bytes that the program needed at its
// peak. An allocator that reserved nothing wasted nothing.
func (a Account) Efficiency() float64 {
	if a.PeakReserved == 0 {
		return 1
	}
	return float64(a.PeakAllocated) / float64(a.PeakReserved)
}

// FragmentationRatio is 1 − Efficiency.
func (a Account) FragmentationRatio() float64 { return 1 - a.Efficiency() }

// Waste is the bytes reserved beyond what the program needed at its peak.
func (a Account) Waste() int64 { return a.PeakReserved - a.PeakAllocated }

// Reduction is the share of base's waste that a avoids: 1 − a.Waste/base.Waste.
// ok is false if base wastes nothing, so that there is nothing to reduce.
func (a Account) Reduction(base Account) (share float64, ok bool) {
	if base.Waste() <= 0 {
		return 0, false
	}
	return 1 - float64(a.Waste())/float64(base.Waste()), true
}
