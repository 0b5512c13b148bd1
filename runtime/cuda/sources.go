package cuda

import "embed"

// Sources are the C sources of the runtime. A process that it serves compiles them for
// itself.
//
//go:embed *.c *.h
var Sources embed.FS
