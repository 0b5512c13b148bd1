// Package fusion makes a packing problem smaller before it is packed, and gives the
// buffers their offsets afterwards. The packer cannot tell a composite from a buffer.
//
// Fold leaves out repetitions. A stretch of time that begins and ends with the same
// buffers live is a problem of its own. If another stretch beside the same buffers is
// equal to it, both get one layout. So an iteration, the temporaries of a layer or an
// optimizer step are packed once, however often they are repeated.
//
// Group joins buffers to composites with a fixed inner layout. There are two kinds, and
// composites of composites:
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
// A stack holds buffers that begin close together and end close together, such as
// the activations of a layer or of a whole micro-batch; its height is the sum of
// their sizes. A chain holds buffers that follow one another, such as the gradients
// of a backward; its height is the largest size. A composite lives from its first
// start to its last end, and takes up the dotted area too, which no buffer uses.
// Buffers are not joined if that area would add to the load while it is near its
// maximum, or bring it there. So the max load, and with it the lower bound, is the
// same before and after. A packing of the composites may still be worse than one of
// the buffers: the packer tries both.
package fusion

import (
	"fmt"
	"math"
)

// Time is an instant. Only the order of instants matters, not their distance.
type Time int64

// Bytes is a size or an offset in bytes.
type Bytes int64

// Buffer is one allocation, live in [Start, End). Fold and Group take Size as it is;
// the caller rounds it up to the alignment before.
type Buffer struct {
	Start, End Time
	Size       Bytes
}

// Reduced is a smaller problem with the same max load, reached first at the same
// instant. Expand turns a placement of it into one of the problem that it was made
// from.
type Reduced struct {
	Buffers []Buffer // in the order of their starts
	home    []home   // of each original buffer
	first   []int32  // of each of Buffers: the index of the original that starts first
}

// home is the place of an original buffer in the reduced problem.
type home struct {
	object int32 // index in Reduced.Buffers
	inner  Bytes // its offset within that buffer
}

// Expand turns the offsets of the reduced problem into those of the original one, in
// the order of its buffers.
func (r *Reduced) Expand(offsets []Bytes) []Bytes {
	out := make([]Bytes, len(r.home))
	for i, h := range r.home {
		out[i] = offsets[h.object] + h.inner
	}
	return out
}

// First is, for each reduced buffer, the index of the original buffer that starts first
// in it. In a folded problem that is the kept buffer itself.
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

// check refuses buffers without a size or a life, and sizes whose sum overflows.
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
