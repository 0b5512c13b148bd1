package planfile

import (
	"errors"
	"fmt"
)

// Class is the kind of damage that a reader found. The test vectors, which are for
// readers in any language, use the same names.
type Class string

// The classes, in the order in which a reader checks.
const (
	ClassBadMagic     Class = "bad-magic"     // not a plan
	ClassBadVersion   Class = "bad-version"   // a version that was never written
	ClassNewerVersion Class = "newer-version" // a version this reader does not know yet
	ClassTruncated    Class = "truncated"     // shorter than its header says
	ClassTrailing     Class = "trailing-data" // longer than its header says
	ClassChecksum     Class = "checksum"      // not the bytes that were written
	ClassStructure    Class = "structure"     // undamaged, but breaks a rule of the format
)

// ErrNewerVersion is what errors.Is finds in the error for a plan of a newer format. The
// plan may be good, but only for a newer reader.
var ErrNewerVersion = errors.New("plan of a newer format version")

// FormatError says what is wrong with a plan file, and at which byte.
type FormatError struct {
	Class   Class
	Offset  int64  // byte of the file, from 0
	Field   string // e.g. "device 0: slot 3: offset"
	Problem string // what was found, and what was expected
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("byte %d: %s: %s", e.Offset, e.Field, e.Problem)
}

// Is makes errors.Is(err, ErrNewerVersion) tell that class apart.
func (e *FormatError) Is(target error) bool {
	return target == ErrNewerVersion && e.Class == ClassNewerVersion
}
