package baseline

import (
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// KeyAsync is the key of cudaMallocAsync's row.
const KeyAsync = "cuda_malloc_async"

// asyncChunk is the unit, in bytes, in which CUDA's memory pool takes memory: every growth
// that was measured is a multiple of it.
const asyncChunk = 32 * mib

// asyncError is the share by which the estimate of a peak may be wrong. There is one log of
// the driver to go by, 2,500 random requests and frees on one stream of an H200: the
// estimate of its peak is 11.5 % low, and 3.3 % off on average over the log
// (TestAsyncIsTheDriverNearly).
const asyncError = 0.12

// CudaMallocAsync estimates PyTorch's backend:cudaMallocAsync. The driver does not say how
// it places blocks, and exact addresses cannot be told from outside. The model is one range
// of addresses that grows at its end and is backed in chunks; each request gets the smallest
// sufficient hole. As in PyTorch 2.11, nothing is given back to serve a request.
//
// One stream's freed memory is another's once any later free is complete. What the driver
// does there, and near the end of the card's memory, is not known.
func CudaMallocAsync(recorded Config) Allocator {
	c := Config{DeviceMemory: recorded.DeviceMemory, UsableMemory: recorded.UsableMemory}
	return Allocator{
		Key: KeyAsync, Title: "cudaMallocAsync", Error: asyncError,
		New: func(p *Program) (Model, error) {
			r, err := c.rules()
			if err != nil {
				return nil, err
			}
			return newAsync(min(r.capacity, chunkedMemory), len(p.buffers)), nil
		},
		Within: func(usable, device trace.Bytes) Allocator {
			return CudaMallocAsync(Config{UsableMemory: usable, DeviceMemory: device})
		},
	}
}

// async is the Model of cudaMallocAsync. Its addresses begin at 0.
type async struct {
	capacity trace.Bytes
	full     bool // no memory at present

	// Blocks and holes cover the addresses up to the end of last; nil if there are none.
	last    *block
	holes   shelf[*block]
	backed  map[uint64]bool // the chunks that have memory
	latest  *block          // freed last, and not a hole yet: other streams may not have it
	live    []*block        // by buffer, until completed
	waiting []int32         // buffers with a pending free

	stats Stats
}

func newAsync(capacity trace.Bytes, buffers int) *async {
	return &async{capacity: capacity, backed: make(map[uint64]bool), live: make([]*block, buffers)}
}

func (a *async) Stats() Stats { return a.stats }

func (a *async) Alloc(buffer int32, r Request) bool {
	if a.latest != nil && a.latest.stream == r.Stream {
		a.settle()
	}
	b := a.place(trace.RoundUp(max(r.Size, 1)))
	if !a.back(b) {
		a.vacate(b)
		return false
	}
	b.stream = r.Stream
	a.live[buffer] = b
	a.stats.Allocated += b.size
	a.stats.Active += b.size
	return true
}

// place takes the front of the smallest sufficient hole, or what is missing behind the
// last block.
func (a *async) place(size trace.Bytes) *block {
	i, ok := a.holes.smallest(key{size: size})
	if !ok {
		return a.extend(size)
	}
	b := a.holes.items[i]
	a.holes.remove(holeKey(b))
	b.used = true
	if b.size == size {
		return b
	}
	rest := &block{addr: b.addr + uint64(size), size: b.size - size, prev: b, next: b.next}
	b.size, b.next = size, rest
	if rest.next != nil {
		rest.next.prev = rest
	} else {
		a.last = rest
	}
	a.holes.insert(holeKey(rest), rest)
	return b
}

// extend takes a block at the end. A hole there becomes part of it.
func (a *async) extend(size trace.Bytes) *block {
	if b := a.last; b != nil && !b.used {
		a.holes.remove(holeKey(b))
		b.size, b.used = size, true
		return b
	}
	b := &block{size: size, used: true, prev: a.last}
	if a.last != nil {
		b.addr = a.last.end()
		a.last.next = b
	}
	a.last = b
	return b
}

// holeKey orders holes by size and address. Streams do not matter.
func holeKey(b *block) key { return key{size: b.size, addr: b.addr} }

// chunksOf are the chunks that a block touches: low up to but without high.
func chunksOf(b *block) (low, high uint64) {
	return b.addr / uint64(asyncChunk), (b.end() + uint64(asyncChunk) - 1) / uint64(asyncChunk)
}

// back takes memory for the chunks under b that have none. ok is false if there is not
// enough; then it takes none.
func (a *async) back(b *block) (ok bool) {
	low, high := chunksOf(b)
	missing := trace.Bytes(0)
	for c := low; c < high; c++ {
		if !a.backed[c] {
			missing += asyncChunk
		}
		if missing > 0 && (a.full || a.stats.Reserved+missing > a.capacity) {
			return false
		}
	}
	for c := low; c < high; c++ {
		a.backed[c] = true
	}
	a.stats.Reserve(missing)
	return true
}

// vacate makes a block a hole, joined with its neighbours.
func (a *async) vacate(b *block) {
	b.used = false
	for _, n := range [...]*block{b.prev, b.next} {
		if n != nil && !n.used {
			a.holes.remove(holeKey(n))
			b.absorb(n)
		}
	}
	if b.next == nil {
		a.last = b
	}
	a.holes.insert(holeKey(b), b)
}

// Free does nothing for a buffer that could not be served.
func (a *async) Free(buffer int32) {
	if b := a.live[buffer]; b != nil {
		a.stats.Allocated -= b.size
		a.waiting = append(a.waiting, buffer)
	}
}

// Complete does nothing for a buffer whose completion EmptyCache has waited for.
func (a *async) Complete(buffer int32) {
	b := a.live[buffer]
	if b == nil {
		return
	}
	a.settle()
	a.latest = b
	a.live[buffer] = nil
	a.stats.Active -= b.size
	i := slices.Index(a.waiting, buffer)
	a.waiting = slices.Delete(a.waiting, i, i+1)
}

// settle makes the block that was freed last a hole.
func (a *async) settle() {
	if a.latest != nil {
		a.vacate(a.latest)
		a.latest = nil
	}
}

// EmptyCache gives back the memory of every chunk that no block touches.
func (a *async) EmptyCache([]trace.PoolID) {
	for len(a.waiting) > 0 {
		a.Complete(a.waiting[0])
	}
	a.settle()
	touched := make(map[uint64]bool)
	for b := a.last; b != nil; b = b.prev {
		if low, high := chunksOf(b); b.used {
			for c := low; c < high; c++ {
				touched[c] = true
			}
		}
	}
	a.stats.Reserve(asyncChunk * trace.Bytes(len(touched)-len(a.backed)))
	a.backed = touched
}

// Refuse makes the attempt whose failure is recorded. A request that memory it has can
// serve after all is freed again at once.
func (a *async) Refuse(buffer int32, r Request) {
	a.full = true
	if a.Alloc(buffer, r) {
		a.Free(buffer)
		a.Complete(buffer)
	}
	a.full = false
}
