// Package fusion makes a packing problem smaller before it is packed, and gives
// the buffers their offsets back afterwards. The packer cannot tell a composite
// from a buffer.
//
// Fold leaves out what repeats: a stretch of time that begins and ends with the
// same buffers live is a problem of its own, and where another one beside the
// same buffers is its equal, both get one layout. An iteration, a layer's
// temporaries, an optimizer step are packed once, however often they come.
//
// Group joins buffers to composites with a fixed inner layout. There are two
// kinds, and composites of composites:
//
//	offset                               offset
//	  ^   +-----------------------+        ^   +-------+.+-------+...........+
//	  |   |.......|     c     |...|        |   |       |.|       |.+-------+.|
//	  |   |...|       b         |.|        |   |   a   |.|   b   |.|   c   |.|
//	  |   | a                     |        |   |       |.|       |.|       |.|
//	  |   +-----------------------+        |   +-------+-+-------+-+-------+-+
//	  +----------------------------> time  +----------------------------> time
//	     stack: live together                 chain: live in turn
//
// A stack holds buffers that begin in one phase and end in another, such as the
// activations of a layer or of a whole micro-batch; its height is the sum. A
// chain holds buffers that take turns, such as the gradients of a backward; its
// height is the largest. A composite lives from its first start to its last end,
// and takes up the dotted area too. That is free where the load has room for it:
// no join is made that would add to the load where it is near its maximum, or
// bring it there. The max load, and with it the lower bound, is the same before
// and after. Whether a packing of the composites is as good as one of the
// buffers is another matter: that is for the packer to try.
package fusion

import (
	"fmt"
	"math"
)

// Time is an instant. Only the order of instants matters.
type Time int64

// Bytes is a size or an offset in bytes.
type Bytes int64

// Buffer is one allocation, live in [Start, End). Fold and Group take Size as it
// is, so the caller rounds it up to the alignment beforehand.
type Buffer struct {
	Start, End Time
	Size       Bytes
}

// Reduced is a smaller problem in the same time with the same max load, reached
// first at the same instant. An answer to it is one to the problem that it was
// made from.
type Reduced struct {
	Buffers []Buffer // in the order of their starts
	home    []home   // of each original buffer
	first   []int32  // of each of Buffers, the index of its first member
}

// home is where an original buffer went.
type home struct {
	object int32 // index in Reduced.Buffers
	inner  Bytes // its offset there
}

// Expand turns the offsets of the reduced problem into those of the original
// one, in its order.
func (r *Reduced) Expand(offsets []Bytes) []Bytes {
	out := make([]Bytes, len(r.home))
	for i, h := range r.home {
		out[i] = offsets[h.object] + h.inner
	}
	return out
}

// First is, for each reduced buffer, the index of the original that starts first
// in it. In a folded problem that is the buffer itself, its repetitions left out.
func (r *Reduced) First() []int32 { return r.first }

// Then is r followed by next, a reduction of r.Buffers.
func (r *Reduced) Then(next *Reduced) *Reduced {
	both := &Reduced{Buffers: next.Buffers, home: make([]home, len(r.home)), first: make([]int32, len(next.first))}
	for k, f := range next.first {
		both.first[k] = r.first[f]
	}
	for i, h := range r.home {
		n := next.home[h.object]
		both.home[i] = home{n.object, n.inner + h.inner}
	}
	return both
}

// maxBuffers keeps indices within int32.
const maxBuffers = math.MaxInt32 / 4

// check refuses what is no problem: then no sum of sizes overflows.
func check(buffers []Buffer) error {
	if len(buffers) > maxBuffers {
		return fmt.Errorf("expected at most %d buffers, found %d", maxBuffers, len(buffers))
	}
	var total Bytes
	for i, b := range buffers {
		switch {
		case b.Start < 0 || b.End <= b.Start:
			return fmt.Errorf("buffer %d: expected a start of 0 or later and an end after it, found [%d, %d)", i, b.Start, b.End)
		case b.Size <= 0 || total > math.MaxInt64-b.Size:
			return fmt.Errorf("buffer %d: size %d: expected sizes above 0 that add up to at most %d", i, b.Size, Bytes(math.MaxInt64))
		}
		total += b.Size
	}
	return nil
}
