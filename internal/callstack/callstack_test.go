package callstack

import (
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// TestOrigins: whose code a frame is follows from its file alone.
func TestOrigins(t *testing.T) {
	for _, c := range []struct {
		file string
		line int32
		want Origin
	}{
		{"", 0, Native}, {"??", 0, Native}, {"??", 7, Native}, {"/home/me/train.py", 0, Native},
		{"/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", 1, Torch},
		{"/opt/venv/lib/python3.12/site-packages/torch/_tensor.py", 1, Torch},
		{"/opt/venv/lib/python3.12/site-packages/triton/runtime/jit.py", 1, Torch},
		{"/opt/venv/lib/python3.12/site-packages/torchvision/models/resnet.py", 1, Library},
		{"/opt/venv/lib/python3.12/site-packages/transformers/torch/nn/x.py", 1, Library},
		{"/home/me/pytorch/torch/nn/modules/linear.py", 1, Torch},
		{"/home/me/pytorch/torch/_dynamo/eval_frame.py", 1, Torch},
		{"/tmp/torchinductor_me/ab/cab.py", 1, Torch},
		{"/home/me/torch/train.py", 1, Own}, // a folder of that name is not torch
		{"/home/me/torch/model/nn.py", 1, Own},
		{"/usr/lib/python3.11/threading.py", 1, Python}, {"/usr/lib64/python3.9/runpy.py", 1, Python}, {"<frozen runpy>", 1, Python},
		{"/home/me/train.py", 1, Own}, {"train.py", 1, Own}, {"<string>", 1, Own},
	} {
		if got := originOf(&trace.Frame{File: c.file, Line: c.line, Name: "f"}); got != c.want {
			t.Errorf("%s:%d is of %d, expected %d", c.file, c.line, got, c.want)
		}
	}
}
