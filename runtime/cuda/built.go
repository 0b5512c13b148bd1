//go:build cgo

package cuda

// Built says whether this build has the runtime: it is C, bound by cgo.
const Built = true
