package parquet

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// budget is what reading the pages of a file may cost. All row groups share it, so that many
// of them cost no more than one.
type budget struct {
	inflated meter
	kept     meter
	large    sync.Mutex // held while a page of more than largePage is inflated and decoded
	page     []byte     // buffer for it
}

const (
	// A file of any size may have inflateFree bytes of uncompressed pages, and inflatePerByte
	// more for each of its bytes. That bounds the time, at about half a second for each megabyte.
	// Recorded traces have 7 B for each byte, but writers that repeat texts instead of coding
	// them by dictionary reach 400. What keepFree and freeRows allow has to fit.
	inflateFree    = 192 << 20
	inflatePerByte = 512

	// A file of any size may have keepFree bytes of dictionaries and distinct texts, and
	// keepPerByte more for each of its bytes. That bounds the memory. Recorded traces have at
	// most 7 B for each byte.
	keepFree    = 64 << 20
	keepPerByte = 64

	// entryCost is what a text of a dictionary counts as in addition to its bytes in the page:
	// where it ends, and its number.
	entryCost = 8

	// textCost is what a distinct text counts as in addition to its length, in bytes: the
	// tables that it is in.
	textCost = 64

	// largePage is the size above which pages are decoded one at a time, on however many
	// cores the others are, in bytes. Writers make pages of about 1 MiB.
	largePage = 8 << 20
)

func newBudget(size int64) *budget {
	inflate, keep := allowance(size, inflateFree, inflatePerByte), allowance(size, keepFree, keepPerByte)
	// Both have one error, so it does not depend on which goroutine comes first.
	err := &Error{Problem: fmt.Sprintf("a file of %d B may have pages of %d B uncompressed, and %d B of dictionaries and distinct texts; this one has more", size, inflate, keep)}
	return &budget{inflated: meter{most: inflate, err: err}, kept: meter{most: keep, err: err}}
}

// allowance is free plus perByte for each byte of a file's size.
func allowance(size, free, perByte int64) int64 {
	return free + perByte*min(size, math.MaxInt64/perByte-free)
}

// meter counts bytes, up to a limit. Several goroutines may use it.
type meter struct {
	used atomic.Int64
	most int64
	err  error // for more than that
}

// add counts n bytes, or refuses them. After that it refuses everything.
func (m *meter) add(n int64) error {
	if m.used.Add(n) > m.most {
		return m.err
	}
	return nil
}
