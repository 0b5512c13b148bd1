package cuda

import "embed"

// Sources are the C sources of the runtime, which every process that it serves
// compiles for itself.
//
//go:embed *.c *.h
var Sources embed.FS
