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
	// NCCLBytes is what NCCL takes in a process of a job with several, in bytes: what one
	// communicator of three or four A100 over NVLink was measured to take
	// (github.com/NVIDIA/nccl/issues/964; 544 MiB for two GPUs). It was not measured here. By
	// NCCL's defaults one takes 0.28 to 0.81 GiB for collectives on a host, and more for
	// all-to-all; each further communicator takes as much again (docs/fit.md has the sums).
	NCCLBytes trace.Bytes = 688 << 20
)

// Budget is the memory of a device, in bytes.
type Budget struct {
	Device trace.Bytes
	// Context and NCCL are what the process takes beside its tensors.
	Context, NCCL trace.Bytes
}

// Usable is what an allocator can have, at least 0.
func (b Budget) Usable() trace.Bytes { return max(0, b.Device-b.Context-b.NCCL) }
