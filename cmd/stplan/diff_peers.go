package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/stalloc"
	"github.com/stplan/stplan/internal/trace"
)

// allPeers is the value of --allocators that chooses every one of peerNames.
const allPeers = "all"

// peerNames are the values of --allocators, in the order of the table: the keys of their
// rows in JSON.
var peerNames = []string{
	baseline.KeyGMLake, baseline.KeyGMLakePaper, stalloc.Key, stalloc.KeyByPosition, baseline.KeyAsync, report.KeyPool, report.KeyServed,
}

func addPeers(cmd *cobra.Command, into *[]string) {
	cmd.Flags().StringSliceVar(into, "allocators", nil, "also simulate these `names`: "+strings.Join(peerNames, ", ")+" or "+allPeers)
	_ = cmd.RegisterFlagCompletionFunc("allocators", // it fails for unknown flags only
		completeList(append(slices.Clone(peerNames), allPeers)))
}

// choosePeers checks the names of --allocators and puts them in order.
func choosePeers(names []string) (chosen []string, err error) {
	for _, n := range names {
		if n != allPeers && !slices.Contains(peerNames, n) {
			return nil, fmt.Errorf("--allocators: expected %s or %s, found %q", strings.Join(peerNames, ", "), allPeers, n)
		}
	}
	for _, n := range peerNames {
		if slices.Contains(names, n) || slices.Contains(names, allPeers) {
			chosen = append(chosen, n)
		}
	}
	return chosen, nil
}

// contender is an allocator to be compared.
type contender struct {
	key, title string
	band       float64 // by which its peak may be off, a share
	run        func(progress func(done, total int64)) (contended, error)
}

// contended is what an allocator did with the program.
type contended struct {
	baseline.Result
	moved *int64
}

// contend runs an allocator and accounts for it.
func (a *app) contend(c contender, row func(key, title string, peakReserved int64) report.ComparedRow) (report.ComparedRow, error) {
	bar := a.progress("simulating " + c.title)
	res, err := c.run(bar.update)
	bar.done()
	r := row(c.key, c.title, int64(res.PeakReserved))
	var unfit *baseline.UnfitError
	if errors.As(err, &unfit) {
		r.CannotServe(unfit.Why)
		return r, nil
	}
	if err != nil {
		return r, err
	}
	at := int64(res.PeakAt)
	r.Retries, r.PeakEvent, r.Moved = res.Retries, &at, res.moved
	if c.band > 0 {
		r.Estimated(c.band)
	}
	if o := res.OOM; o != nil {
		r.RanOut(report.OutOfMemory{Event: int64(o.Event), Requested: int64(o.Requested), Reserved: int64(o.Reserved)})
	}
	return r, nil
}

// simulatedContenders are allocators that package baseline drives.
func simulatedContenders(program *baseline.Program, allocators []baseline.Allocator) (all []contender) {
	for _, al := range allocators {
		all = append(all, contender{al.Key, al.Title, al.Error, func(progress func(done, total int64)) (contended, error) {
			res, err := baseline.Simulate(program, al, progress)
			return contended{Result: res}, err
		}})
	}
	return all
}

// peerInput is what the allocators of --allocators are simulated with.
type peerInput struct {
	stacks   *trace.Stacks // of the device's events
	device   *trace.Device
	plan     *planfile.Device
	timeline *lifespan.Timeline
	program  *baseline.Program
	recorded baseline.Config
}

// peerContenders are the allocators of these names. What needs the C runtime is left out,
// with a note, if this build has none.
func (a *app) peerContenders(names []string, in *peerInput) (all []contender, err error) {
	peers := baseline.Peers(in.recorded)
	for _, name := range names {
		switch name {
		case stalloc.Key, stalloc.KeyByPosition:
			found, err := in.stalloc()
			if err != nil {
				return nil, err
			}
			all = append(all, simulatedContenders(in.program, named(found, name))...)
		case report.KeyPool, report.KeyServed:
			if !simdevice.Built {
				a.note("--allocators: %s is left out: this stplan was built without its C runtime", name)
				continue
			}
			all = append(all, in.runtime(name))
		default:
			all = append(all, simulatedContenders(in.program, named(peers, name))...)
		}
	}
	return all, nil
}

// named is the allocator with this key.
func named(all []baseline.Allocator, key string) []baseline.Allocator {
	i := slices.IndexFunc(all, func(al baseline.Allocator) bool { return al.Key == key })
	return all[i : i+1]
}

func (in *peerInput) stalloc() ([]baseline.Allocator, error) {
	it, err := lifespan.FindIterations(in.stacks, in.device, in.timeline, nil)
	return stalloc.Allocators(in.timeline, it, in.recorded), err
}

// runtime is stplan's runtime, as a run has it or without a plan.
func (in *peerInput) runtime(key string) contender {
	byPlan := key == report.KeyServed && in.plan.Advice == planfile.AdviceNone
	title := map[string]string{report.KeyPool: "stplan's pool", report.KeyServed: "a run, by its plan"}[key]
	if key == report.KeyServed && !byPlan {
		title = "a run, by the pool"
	}
	return contender{key: key, title: title, run: func(func(done, total int64)) (contended, error) {
		var data []byte
		if byPlan {
			var err error
			if data, err = encodeDevice(in.plan); err != nil {
				return contended{}, err
			}
		}
		return in.serve(data)
	}}
}

func (in *peerInput) serve(plan []byte) (contended, error) {
	s, err := simdevice.Simulate(replay.NewProgram(in.timeline), plan, int(in.plan.Ordinal), in.recorded.Memory())
	if err != nil {
		return contended{}, &bug{err}
	}
	c := contended{moved: &s.Moved}
	c.PeakReserved, c.PeakAt = trace.Bytes(s.Reserved), trace.Time(s.PeakAt)
	if o := s.Out; o != nil {
		c.OOM = &baseline.OOM{Event: trace.Time(o.Event), Requested: trace.Bytes(o.Requested)}
		c.OOM.Reserved = trace.Bytes(o.Reserved)
	}
	return c, nil
}

// encodeDevice is a plan of one device as its file.
func encodeDevice(pd *planfile.Device) ([]byte, error) {
	data, err := planfile.Encode(&planfile.Plan{Producer: producer, Devices: []planfile.Device{*pd}})
	if err != nil {
		return nil, &bug{err}
	}
	return data, nil
}
