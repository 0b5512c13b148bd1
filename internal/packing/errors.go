package packing

import (
	"errors"
	"fmt"
	"strconv"
)

// errNotBelow is the error of a search in which no rule got below work.below.
var errNotBelow = errors.New("no placement below the given makespan")

// InputError says what is wrong with a problem or an instance file.
type InputError struct {
	Name    string // the file, as the user named it; empty for a problem in memory
	Where   string // "buffer 3" (from 0), "line 4, column 7" (both from 1, in bytes)
	Problem string // what was expected and what was found
}

func (e *InputError) Error() string {
	if e.Name == "" {
		return e.Where + ": " + e.Problem
	}
	return e.Name + ": " + e.Where + ": " + e.Problem
}

// CapacityError says that no placement within a capacity was found.
type CapacityError struct {
	Capacity   Bytes // as asked for
	Best       Bytes // the smallest makespan found
	LowerBound Bytes // no placement can be under it; see Placement.LowerBound
}

// Infeasible reports whether the lower bound proves that no placement fits.
func (e *CapacityError) Infeasible() bool { return e.LowerBound > e.Capacity }

func (e *CapacityError) Error() string {
	if e.Infeasible() {
		return fmt.Sprintf("does not fit in %d bytes: the lower bound is %d bytes", e.Capacity, e.LowerBound)
	}
	return fmt.Sprintf("no placement found in %d bytes: the best takes %d bytes, the lower bound is %d bytes, so it is undecided",
		e.Capacity, e.Best, e.LowerBound)
}

// BugError says that a heuristic made a placement that is not valid. That is a defect
// of this package, never of its input.
type BugError struct {
	Heuristic string
	Err       error // what Validate found
}

func (e *BugError) Error() string {
	return fmt.Sprintf("internal error: heuristic %s made an invalid placement: %v", e.Heuristic, e.Err)
}

func (e *BugError) Unwrap() error { return e.Err }

func itoa[T ~int64](v T) string { return strconv.FormatInt(int64(v), 10) }
