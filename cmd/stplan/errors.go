package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/store"
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

// environment is a fault of what a command runs on, and not of what it is asked about: a disk that
// is full, a folder that cannot be written, a server that does not answer. The same command may
// succeed once that is cured.
type environment struct{ err error }

func (e *environment) Error() string { return e.err.Error() }
func (e *environment) Unwrap() error { return e.err }

// ofRecording are the system's answers about a file that is not there, or is not one that this
// user can read. Whoever asks again gets the same.
var ofRecording = []error{
	fs.ErrNotExist, fs.ErrPermission, syscall.ELOOP, syscall.EISDIR, syscall.ENOTDIR, syscall.ENAMETOOLONG, syscall.EINVAL,
}

// ofEnvironment says whether an error is a fault of the environment. Outputs say so themselves; of
// inputs it is any answer of the system other than ofRecording, such as a disk's error or too many
// open files, and what a store says of the way to an object.
func ofEnvironment(err error) bool {
	var known *environment
	var server *store.Unavailable
	if errors.As(err, &known) || errors.As(err, &server) {
		return true
	}
	var system syscall.Errno
	return errors.As(err, &system) && !slices.ContainsFunc(ofRecording, func(no error) bool { return errors.Is(system, no) })
}

// cannotWrite is the error of an output.
func cannotWrite(path string, err error) error {
	return &environment{fmt.Errorf("%s: cannot write: %w", path, cause(err))}
}

// cannotWriteContent is the error of an output that was opened: the system's, or that of content
// which cannot be written anywhere.
func cannotWriteContent(path string, err error) error {
	var system syscall.Errno
	if errors.As(err, &system) {
		return cannotWrite(path, err)
	}
	return fmt.Errorf("%s: cannot write: %w", path, err)
}

// hinted is an error with advice that is printed on a line of its own.
type hinted struct {
	err  error
	hint string
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }

// failure is a file without an answer, and why.
type failure struct {
	name string
	err  error
}

// reportFailed is what a table says of failures. Without any it is an empty list in JSON.
func reportFailed(failed []failure) []report.FailedTrace {
	rows := []report.FailedTrace{}
	for _, f := range failed {
		rows = append(rows, report.FailedTrace{Trace: f.name, Error: message(f.err)})
	}
	return rows
}

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

// errIsInput is of an output that the command reads as well.
var errIsInput = errors.New("is also an input")

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
