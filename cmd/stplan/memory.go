package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// memoryFlags say how much memory a device has, and how much of that a process takes
// beside its tensors.
type memoryFlags struct {
	device, context, nccl string
}

func (f *memoryFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.device, "device-memory", "", "the GPU's memory, in bytes or with a unit: `80GiB`")
	cmd.Flags().StringVar(&f.context, "context-memory", "", fmt.Sprintf("what the CUDA context and libraries take of it (default %d MiB)", fit.ContextBytes>>20))
	cmd.Flags().StringVar(&f.nccl, "nccl-memory", "", fmt.Sprintf("what NCCL takes of it (default: nothing for one rank, else %d MiB)", fit.NCCLBytes>>20))
}

// budget is the memory that the flags give, nil if there is no --device-memory. ranks says
// that the job has several.
func (f *memoryFlags) budget(ranks bool) (*fit.Budget, error) {
	if f.device == "" {
		if f.context != "" || f.nccl != "" {
			return nil, &hinted{fmt.Errorf("--context-memory and --nccl-memory are parts of the GPU's memory"), "--device-memory 80GiB"}
		}
		return nil, nil
	}
	b := &fit.Budget{Context: fit.ContextBytes}
	if ranks {
		b.NCCL = fit.NCCLBytes
	}
	for _, v := range []struct {
		flag, text string
		into       *trace.Bytes
	}{
		{"--device-memory", f.device, &b.Device}, {"--context-memory", f.context, &b.Context}, {"--nccl-memory", f.nccl, &b.NCCL},
	} {
		if v.text == "" {
			continue
		}
		if v.text == "0" && v.into != &b.Device {
			*v.into = 0
			continue
		}
		n, err := baseline.ParseMemory(v.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.flag, err)
		}
		*v.into = n
	}
	if b.Usable() == 0 {
		return nil, fmt.Errorf("--device-memory: expected more than the %s that the process takes beside its tensors, found %s",
			report.Bytes(int64(b.Context+b.NCCL)), report.Bytes(int64(b.Device)))
	}
	return b, nil
}

func deviceMemory(b fit.Budget) report.DeviceMemory {
	return report.DeviceMemory{Device: int64(b.Device), Context: int64(b.Context), NCCL: int64(b.NCCL), Usable: int64(b.Usable())}
}
