// Package examples embeds a recording in the stplan binary, so that an installed one has something
// to be tried on.
package examples

import _ "embed" // a recording

// Name is the file name of Recording.
const Name = "llama7b-pp4-VR.pickle.gz"

// Recording is a gzipped memory snapshot of PyTorch: llama7b-pp4-VR/README.md says what of.
//
//go:embed llama7b-pp4-VR/llama7b-pp4-VR.pickle.gz
var Recording []byte
