package packing

import (
	"fmt"
	"slices"
)

// Apart places the buffers of each class by themselves, one class above the
// other in ascending order, so that no byte is ever used by two classes. classes has one element for each buffer; pack places the buffers
// of one class, which members lists.
//
// MaxLoad.Load and LowerBound are the sums over the classes: no placement that
// keeps them apart has a smaller makespan. MaxLoad.At is when the class with the
// largest load has it, the first class among equals.
func Apart(p *Problem, classes []int32, pack func(part *Problem, members []int32) (Placement, error)) (Placement, error) {
	if len(classes) != len(p.Buffers) {
		return Placement{}, &InputError{Where: "classes", Problem: fmt.Sprintf("expected %d, one per buffer, found %d", len(p.Buffers), len(classes))}
	}
	out := Placement{Offsets: make([]Bytes, len(p.Buffers))}
	largest := Bytes(0)
	for k, members := range byClass(classes) {
		part := &Problem{Alignment: p.Alignment}
		gaps := p.Gaps
		for i, b := range members {
			part.Buffers = append(part.Buffers, p.Buffers[b])
			for ; len(gaps) > 0 && gaps[0].Buffer <= int(b); gaps = gaps[1:] {
				if gaps[0].Buffer == int(b) {
					part.Gaps = append(part.Gaps, Gap{i, gaps[0].From, gaps[0].To})
				}
			}
		}
		pl, err := pack(part, members)
		if err != nil {
			return Placement{}, err
		}
		for i, b := range members {
			out.Offsets[b] = out.Makespan + pl.Offsets[i]
		}
		out.Makespan += pl.Makespan
		out.LowerBound += pl.LowerBound
		out.MaxLoad.Load += pl.MaxLoad.Load
		if pl.MaxLoad.Load > largest {
			largest, out.MaxLoad.At = pl.MaxLoad.Load, pl.MaxLoad.At
		}
		out.TimeLimitHit = out.TimeLimitHit || pl.TimeLimitHit
		if k > 0 {
			out.Heuristic += "|"
		}
		out.Heuristic += pl.Heuristic
	}
	if err := Validate(p, out); err != nil {
		return Placement{}, &BugError{Heuristic: out.Heuristic, Err: err}
	}
	return out, nil
}

// byClass lists the buffers of each class, in ascending order of the classes.
func byClass(classes []int32) [][]int32 {
	order := slices.Clone(classes)
	slices.Sort(order)
	order = slices.Compact(order)
	lists := make([][]int32, len(order))
	for b, class := range classes {
		k, _ := slices.BinarySearch(order, class)
		lists[k] = append(lists[k], int32(b))
	}
	return lists
}
