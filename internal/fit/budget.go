package fit

import "github.com/stplan/stplan/internal/trace"

// What a process takes of a device beside the memory of its tensors. Both differ with the
// GPU, the driver and the libraries, so every command that uses them prints them and has a
// flag for each.
const (
	// ContextBytes is what the CUDA context, the loaded kernels and the handles of cuBLAS
	// and cuDNN take, in bytes. Measured with the driver on an H200, in 45 processes of nine
	// jobs: 684 MiB in most, up to 759 MiB with Megatron-LM and FSDP2, whatever the allocator
	// (docs/results/serve.md, "outside GiB"). This is the next multiple of 128 MiB. Other GPUs,
	// drivers and builds of torch were not measured.
	ContextBytes trace.Bytes = 768 << 20
	// NCCLBytes is what NCCL's buffers and kernels take in a process of a job with several,
	// in bytes. An estimate that was not measured: it grows with the number of communicators,
	// from about 0.3 GiB for one on a single host to several GiB.
	NCCLBytes trace.Bytes = 640 << 20
)

// Budget is the memory of a device, in bytes.
type Budget struct {
	Device trace.Bytes
	// Context and NCCL are what the process takes beside its tensors.
	Context, NCCL trace.Bytes
}

// Usable is what an allocator can have, at least 0.
func (b Budget) Usable() trace.Bytes { return max(0, b.Device-b.Context-b.NCCL) }
