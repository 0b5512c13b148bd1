package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/stalloc"
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
	return f.parse(ranks)
}

// parse is what the flags give, and the defaults of those that are not given. The device's
// memory has none: it is 0 then, and otherwise more than what is beside tensors.
func (f *memoryFlags) parse(ranks bool) (*fit.Budget, error) {
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
	if f.device != "" && b.Usable() == 0 {
		return nil, fmt.Errorf("--device-memory: expected more than the %s that the process takes beside its tensors, found %s",
			report.Bytes(int64(b.Context+b.NCCL)), report.Bytes(int64(b.Device)))
	}
	return b, nil
}

func besideTensors(b fit.Budget) report.Beside {
	return report.Beside{Context: int64(b.Context), NCCL: int64(b.NCCL)}
}

func deviceMemory(b fit.Budget) report.DeviceMemory {
	return report.DeviceMemory{Device: int64(b.Device), Beside: besideTensors(b), Usable: int64(b.Usable())}
}

// leastAll looks for the least memory in which a job gets by, on each allocator.
func (a *app) leastAll(ctx context.Context, all []fit.Allocator, job *fit.Job, b fit.Budget) ([]report.LeastRow, error) {
	var rows []report.LeastRow
	for _, al := range all {
		bar := a.waiting("looking for the least memory under "+al.Title, 0)
		found, err := fit.FindLeast(ctx, al, job, b)
		bar.done()
		if err != nil {
			return nil, err
		}
		rows = append(rows, leastRow(al, found))
	}
	return rows, nil
}

func leastRow(al fit.Allocator, found fit.Least) report.LeastRow {
	row := report.LeastRow{
		Key: al.Key, Title: al.Title, PeakReserved: int64(found.Reserved), Least: int64(found.Bytes), Retries: found.Retries,
		ServedBy: found.Instead, Unfit: found.Unfit,
	}
	if al.Error > 0 && row.Unfit == "" {
		row.Title = report.Estimated(row.Title, al.Error)
	}
	return row
}

// tryAll tries a job on allocators.
func (a *app) tryAll(ctx context.Context, all []fit.Allocator, job *fit.Job, b fit.Budget) ([]report.FittedRow, error) {
	var rows []report.FittedRow
	for _, al := range all {
		answer, err := a.try(ctx, al, job, b)
		if err != nil {
			return nil, err
		}
		rows = append(rows, fittedRow(al, answer, b))
	}
	return rows, nil
}

// try tries a job on an allocator, and says on the terminal that it does.
func (a *app) try(ctx context.Context, al fit.Allocator, job *fit.Job, b fit.Budget) (fit.Answer, error) {
	bar := a.waiting("trying "+al.Title, 0)
	defer bar.done()
	return al.Try(ctx, job, b.Usable(), b.Device)
}

func fittedRow(al fit.Allocator, answer fit.Answer, b fit.Budget) report.FittedRow {
	row := report.FittedRow{
		Key: al.Key, Title: al.Title, PeakReserved: int64(answer.Reserved), Fits: answer.Fits, Retries: answer.Retries,
		ServedBy: answer.Instead, Unfit: answer.Unfit,
	}
	switch {
	case row.Unfit != "":
		return row
	case answer.Fits:
		within, spare := int64(answer.Within), int64(b.Usable()-answer.Within)
		row.Within, row.Spare = &within, &spare
	default:
		row.OutOfMemory = &report.FitFailure{Event: int64(answer.At), Requested: int64(answer.Requested)}
	}
	if al.Error > 0 {
		row.Estimated(al.Error, int64(b.Usable()))
	}
	return row
}

// peerFitAllocators are the rows of --allocators, but for the pool and the plan: every table
// has those.
func peerFitAllocators(names []string, recorded baseline.Config) []fit.Allocator {
	var all []fit.Allocator
	for _, name := range names {
		switch name {
		case report.KeyPool, report.KeyServed:
		case stalloc.Key, stalloc.KeyByPosition:
			all = append(all, plannedPeer(name, recorded))
		default:
			all = append(all, fit.Simulated(named(baseline.Peers(recorded), name)[0]))
		}
	}
	return all
}

// plannedPeer is STAlloc, which plans each job by itself.
func plannedPeer(name string, recorded baseline.Config) fit.Allocator {
	of := func(tl *lifespan.Timeline, it lifespan.Iterations) fit.Allocator {
		return fit.Simulated(named(stalloc.Allocators(tl, it, recorded), name)[0])
	}
	al := of(nil, lifespan.Iterations{}) // its names
	al.Slow = true
	al.Try = func(ctx context.Context, j *fit.Job, usable, device trace.Bytes) (fit.Answer, error) {
		it, err := lifespan.FindIterations(&j.Trace.Stacks, j.Device, j.Timeline, nil)
		if err != nil {
			return fit.Answer{}, err
		}
		return of(j.Timeline, it).Try(ctx, j, usable, device)
	}
	return al
}
