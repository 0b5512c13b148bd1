package baseline

import "github.com/stplan/stplan/internal/trace"

// Allocator is one allocator that Simulate can run: a row of a comparison. To
// add one, write its Model in a file of its own and add a line to Allocators. A
// Model that needs what this package may not import can live elsewhere: pass its
// Allocator to Simulate.
type Allocator struct {
	Key   string // its name in JSON
	Title string // its name in text
	// Error is the share by which the reserved memory of a simulation may differ from the
	// allocator's own, 0 if every address is known.
	Error float64
	// New returns a model that has served nothing yet. It is given the whole
	// program, for allocators that plan ahead. An error says why the allocator
	// cannot run.
	New func(*Program) (Model, error)
	// Within is the same allocator with usable bytes of memory to have, of a device with
	// so much; 0 is no limit. It may give cached memory back to get by with less than it
	// would take. nil if the model knows no limit.
	Within func(usable, device trace.Bytes) Allocator
}

// Keys of Allocators.
const (
	KeyNative     = "native"
	KeyExpandable = "expandable"
)

// Allocators lists the allocators that every recording is compared with, in the
// order in which they are shown. recorded is what the recording ran under, from
// RecordedConfig.
func Allocators(recorded Config) []Allocator {
	return []Allocator{
		Caching(KeyNative, Native(recorded).Kind(), Native(recorded)),
		Caching(KeyExpandable, Expandable(recorded).Kind(), Expandable(recorded)),
	}
}

// Model is a simulated allocator at work. Simulate calls it in the order of the
// recorded program. The program numbers its buffers, and allocates each once at
// most.
type Model interface {
	// Alloc serves a request. ok is false if the allocator is out of memory;
	// Simulate then stops.
	Alloc(buffer int32, r Request) (ok bool)
	// Refuse is a request that ran out of memory in the recording. The program
	// went on without it, so it fails here too. The model does what it would do
	// before it gives up, such as giving back cached memory.
	Refuse(buffer int32, r Request)
	// Free says that the program frees the buffer, Complete that no stream uses
	// its memory any more. Complete comes right after Free if nothing delays the
	// free. It also comes if the model has waited for the free by itself.
	Free(buffer int32)
	Complete(buffer int32)
	// EmptyCache waits for every pending free, then gives back cached memory.
	// From now on that includes the memory of the private pools in unused, which
	// the program has let go of.
	EmptyCache(unused []trace.PoolID)
	Stats() Stats
}

// adopter is a Model that can begin with the segments that were there when the
// recording began. Any other Model begins by allocating the buffers in them.
type adopter interface {
	// adopt reports whether it took the segments over.
	adopt(*Program) (bool, error)
}

// Request is what a program asks for.
type Request struct {
	Size   trace.Bytes
	Stream uint64
	Pool   trace.PoolID // of a CUDA graph or a MemPool; zero for the default pool
}

// Usage is an allocator's state in bytes. Allocated and Active count whole
// blocks, including unsplit slack, as torch.cuda.memory_allocated does; Active
// also counts the blocks whose free waits for another stream.
type Usage struct {
	Reserved, Allocated, Active trace.Bytes
}

// Stats is what a model counts.
type Stats struct {
	Usage
	// PeakReserved is the most bytes reserved so far, also within a request.
	PeakReserved trace.Bytes
	// Retries counts the requests for which all cached memory was given back.
	Retries int
}

// Reserve counts n more bytes as reserved, or -n fewer.
func (s *Stats) Reserve(n trace.Bytes) {
	s.Reserved += n
	s.PeakReserved = max(s.PeakReserved, s.Reserved)
}

// Peers lists the allocators that are simulated only if they are asked for.
func Peers(recorded Config) []Allocator {
	return []Allocator{GMLake(recorded), GMLakePaper(recorded), CudaMallocAsync(recorded)}
}

// UnfitError says why an allocator cannot serve a program at all. It is an error of New.
type UnfitError struct{ Why string }

func (e *UnfitError) Error() string { return e.Why }
