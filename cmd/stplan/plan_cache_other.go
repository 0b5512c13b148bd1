//go:build !unix

package main

import "io/fs"

// openToOthers is empty: systems of this kind keep folders apart by other means.
func openToOthers(fs.FileInfo) string { return "" }
