package trace

// Options changes how a recording is read. The zero Options is the default.
type Options struct {
	// Base is a snapshot that was taken right after recording began. Its Final is
	// then the state in which this recording begins. Without a Base, that state is
	// inferred if it was not empty.
	Base *Trace
	// Progress, unless nil, is called from time to time, by one goroutine at a time.
	// done is the number of bytes of the file that are read, compressed ones if it is
	// compressed. total is the file's size, or 0 if it is not known.
	Progress func(done, total int64)
	// AllowNoEvents accepts a recording without events or without allocations, such
	// as a base snapshot.
	AllowNoEvents bool
}
