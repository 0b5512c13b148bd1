package packing

import (
	"cmp"
	"fmt"
	"slices"
)

// Apart packs each class of buffers by itself and stacks the arenas of the classes in
// ascending order, so that no byte is ever used by two classes. classes has one element
// for each buffer. pack places the buffers of one class; members are their indices in
// p.
//
// MaxLoad.Load and LowerBound are the sums over the classes: no placement that
// keeps the classes apart has a smaller makespan. MaxLoad.At is the instant at
// which the class with the largest load reaches it, the first class among equals.
// The errors are an *InputError if classes has the wrong length, pack's own, and a
// *BugError if the result is not valid.
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

// ApartLoad is the sum of the max loads of the classes, in bytes: no placement that
// keeps the classes apart is smaller. The errors are those of Pack for gaps that it
// refuses. O(n log n).
func ApartLoad(p *Problem, classes []int32) (Bytes, error) {
	pieces, of, err := splitAtGaps(p)
	if err != nil {
		return 0, err
	}
	type change struct {
		class int32
		at    Time
		bytes Bytes
	}
	changes := make([]change, 0, 2*len(pieces))
	for i, b := range pieces {
		whole := int32(i)
		if of != nil {
			whole = of[i]
		}
		class := classes[whole]
		size := roundUp(b.Size, max(p.Alignment, 1))
		changes = append(changes, change{class, b.Start, size}, change{class, b.End, -size})
	}
	// Ends come before starts at the same instant: live ranges are half-open.
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.at, b.at), cmp.Compare(a.bytes, b.bytes))
	})
	var sum, live, most Bytes
	for i, c := range changes {
		live += c.bytes
		most = max(most, live)
		if i+1 == len(changes) || changes[i+1].class != c.class {
			sum, most = sum+most, 0
		}
	}
	return sum, nil
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
