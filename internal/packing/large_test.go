package packing

import "os"

// large reports whether tests take their larger inputs too, as "make large" asks.
func large() bool { return os.Getenv("STPLAN_LARGE") != "" }
