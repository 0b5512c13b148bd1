package main

import (
	"errors"
	"os"
	"strings"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/report"
)

// negative is an answer of "no": the command worked and what it was asked
// about does not hold.
type negative struct{ reason string }

func (n *negative) Error() string { return n.reason }

// bug is a result that stplan itself finds to be wrong.
type bug struct{ err error }

func (b *bug) Error() string { return "internal error: " + b.err.Error() }
func (b *bug) Unwrap() error { return b.err }

// isBug says whether an error is a defect of stplan's.
func isBug(err error) bool {
	var ours *bug
	var compiler *compile.BugError
	var packer *packing.BugError
	return errors.As(err, &ours) || errors.As(err, &compiler) || errors.As(err, &packer)
}

// hinted is an error with advice that is printed on a line of its own.
type hinted struct {
	err  error
	hint string
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }

// message is an error's text, on a line of its own for each of several joined ones.
func message(err error) string {
	joined, several := err.(interface{ Unwrap() []error })
	if !several {
		return report.Printable(err.Error())
	}
	var lines []string
	for _, e := range joined.Unwrap() {
		lines = append(lines, message(e))
	}
	return strings.Join(lines, "\n")
}

// errAbandoned is of an output that an interruption has kept from being finished.
var errAbandoned = errors.New("interrupted")

// cause strips the temporary name that the user never chose from a path error.
func cause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err
	}
	return err
}
