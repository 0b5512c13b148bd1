package trace

// Options changes how a recording is read. The zero Options is the usual way.
type Options struct {
	// Base is a snapshot taken right after recording began; its Final is then
	// the state in which this recording begins. Without one that state is
	// inferred where it was not empty.
	Base *Trace
	// Progress, unless nil, is called now and then by the reading goroutine
	// with the bytes of the file read so far, compressed where it is, and the
	// file's size, 0 where that is not known.
	Progress func(done, total int64)
	// AllowNoEvents accepts a recording without events or without allocations, as
	// a base snapshot is.
	AllowNoEvents bool
}
