package cuda

import (
	"embed"
	"regexp"
)

// Sources are the C sources of the runtime. A process that it serves compiles them for
// itself.
//
//go:embed *.c *.h
var Sources embed.FS

// Version is the version of stplan, the STPLAN_VERSION of stplan.h.
var Version = version()

func version() string {
	header, err := Sources.ReadFile("stplan.h")
	if err != nil {
		panic(err) // it is embedded
	}
	found := regexp.MustCompile(`(?m)^#define STPLAN_VERSION "([^"]+)"$`).FindSubmatch(header)
	if found == nil {
		panic("stplan.h has no STPLAN_VERSION")
	}
	return string(found[1])
}
