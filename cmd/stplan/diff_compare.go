package main

import (
	"context"
	"fmt"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
)

type diffFlags struct {
	traces    []string
	device    int
	configs   []string
	peers     []string
	recorded  string
	oneDevice bool // --device was given
	advise    bool
	json      bool
	limits    limitFlags
	memory    memoryFlags
}

// comparePlan compares the devices of a plan with their recordings.
func (a *app) comparePlan(ctx context.Context, name string, p *planfile.Plan, t *trace.Trace, f diffFlags, peers []string, budget *fit.Budget) ([]report.Compared, error) {
	recorded, allocators, err := diffAllocators(t, f)
	if err != nil {
		return nil, err
	}
	var all []report.Compared
	for i := range p.Devices {
		c, err := a.compareDevice(name, &p.Devices[i], t, recorded, allocators, peers)
		if err != nil {
			return nil, err
		}
		if budget != nil {
			memory := deviceMemory(*budget)
			c.Memory = &memory
			if c.Fits, err = a.compareWithin(ctx, &p.Devices[i], t, recorded, allocators, peers, *budget); err != nil {
				return nil, err
			}
		}
		if f.advise {
			if c.Advice, err = a.advise(c.Device, t, recorded, budget); err != nil {
				return nil, err
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// provenPlan refuses to compare a plan that belongs to another trace (bad
// input) or does not verify (a negative): its size would mean nothing.
func provenPlan(name string, p *planfile.Plan, t *trace.Trace) error {
	for i := range p.Devices {
		pd := &p.Devices[i]
		if d := traceDevice(t, int(pd.Ordinal)); d == nil || !d.HasFingerprint(pd.Fingerprint) {
			return &hinted{
				fmt.Errorf("%s: device %d: the plan was made from another trace than %s", name, pd.Ordinal, t.Name),
				"compile this trace, or name the one that the plan was made from"}
		}
	}
	if v := append(verify.Plan(p, nil), verify.AgainstTrace(p, t)...); len(v) > 0 {
		return &negative{fmt.Sprintf("%s: does not verify: %s", name, v[0].Message)}
	}
	return nil
}

// diffAllocators lists what a plan is compared with: the allocators of every
// comparison, and one for each --config. recorded is what the recording ran
// under.
func diffAllocators(t *trace.Trace, f diffFlags) (recorded baseline.Config, all []baseline.Allocator, err error) {
	if recorded, err = recordedConfig(t, f.recorded); err != nil {
		return recorded, nil, err
	}
	configured, err := configuredAllocators(recorded, f.configs)
	return recorded, append(baseline.Allocators(recorded), configured...), err
}

// compareDevice simulates one device's program on each allocator and accounts
// for it.
func (a *app) compareDevice(planName string, pd *planfile.Device, t *trace.Trace, recorded baseline.Config, allocators []baseline.Allocator, peers []string) (report.Compared, error) {
	none := report.Compared{}
	d := traceDevice(t, int(pd.Ordinal))
	program, err := baseline.ReadProgram(d, recorded)
	if err != nil {
		return none, fmt.Errorf("%s: device %d: %w", t.Name, d.Ordinal, err)
	}
	check, err := a.selfCheck(d, program, recorded)
	if err != nil {
		return none, fmt.Errorf("%s: device %d: %w", t.Name, d.Ordinal, err)
	}
	rec := baseline.FromRecording(d)
	tl, err := lifespan.Build(d)
	if err != nil {
		return none, fmt.Errorf("%s: %w", t.Name, err)
	}
	// The request that a recording ends in counts, for every allocator.
	account := report.Account{PeakReserved: int64(rec.PeakReserved), PeakAllocated: int64(tl.PeakAllocated.Bytes)}
	program = program.Granted()
	// What a periodic plan has no place for is added to it. What follows the last
	// recorded pass is in neither, so the program's own peak may still be higher.
	strays := compile.OffPlan(pd, tl)
	plan := report.Account{PeakReserved: max(int64(pd.ArenaBytes)+strays, account.PeakAllocated), PeakAllocated: account.PeakAllocated}
	if tl.Failed() != nil {
		if plan.PeakReserved, err = servedBeyond(planName, pd, tl, plan.PeakReserved); err != nil {
			return none, err
		}
	}
	served := plan
	instead, err := a.servedInstead(planName, pd, tl, account.PeakAllocated)
	if err != nil {
		return none, err
	}
	if instead != nil {
		served.PeakReserved = instead.PeakReserved
	}
	row := func(key, title string, peakReserved int64) report.ComparedRow {
		return report.NewRow(key, title, peakReserved, account, int64(rec.PeakActive), served)
	}

	cmp := report.Compared{Trace: t.Name, Device: d.Ordinal, SelfCheck: check, Failure: compile.FailureOf(d)}
	cmp.Recorded = row("recorded", recorded.Kind(), account.PeakReserved)
	peakAt := int64(baseline.PeakReservedAt(d))
	cmp.Recorded.PeakEvent = &peakAt
	if f := cmp.Failure; f != nil && f.Fatal {
		cmp.Recorded.RanOut(report.OutOfMemory{Event: f.Event, Requested: f.Requested, Reserved: int64(baseline.ReservedAt(d, trace.Time(f.Event)))})
	}
	if cmp.WouldFit, err = compile.WouldFit(d, recorded, served.PeakReserved); err != nil {
		return none, fmt.Errorf("%s: device %d: %w", t.Name, d.Ordinal, err)
	}
	if d.AddressesInvented {
		cmp.Recorded.NotRecorded()
		cmp.Recorded.PeakEvent = nil
	}
	contenders, err := a.peerContenders(peers, &peerInput{
		stacks: &t.Stacks, device: d, plan: pd, timeline: tl, program: program, recorded: recorded,
	})
	if err != nil {
		return none, fmt.Errorf("%s: device %d: %w", t.Name, d.Ordinal, err)
	}
	for _, c := range append(simulatedContenders(program, allocators), contenders...) {
		r, err := a.contend(c, row)
		if err != nil {
			return none, fmt.Errorf("%s: device %d: %s: %w", t.Name, d.Ordinal, c.title, err)
		}
		cmp.Simulated = append(cmp.Simulated, r)
	}
	cmp.Plan = planRow(planName, pd, plan, strays, cmp.Simulated)
	cmp.Plan.Instead = instead
	return cmp, nil
}

// servedBeyond is what the runtime reserves to serve a recording that ends in an
// out-of-memory by its plan, with the unfinished iteration and the request that failed:
// a periodic plan has no places for these. Without the runtime it is at least what the
// plan takes.
func servedBeyond(name string, pd *planfile.Device, tl *lifespan.Timeline, atLeast int64) (int64, error) {
	if !simdevice.Built || pd.Advice != planfile.AdviceNone {
		return atLeast, nil
	}
	data, err := encodeDevice(pd)
	if err != nil {
		return 0, err
	}
	cost, err := simdevice.Serve(replay.NewProgram(tl), data, int(pd.Ordinal))
	if err != nil {
		return 0, &bug{fmt.Errorf("%s: device %d: %w", name, pd.Ordinal, err)}
	}
	return max(atLeast, cost.Reserved), nil
}

// servedInstead is what a run reserves if the plan advises against itself: the
// runtime follows the advice, and serves from its pool alone. It is nil if the plan
// is served.
func (a *app) servedInstead(name string, pd *planfile.Device, tl *lifespan.Timeline, allocated int64) (*report.ServedInstead, error) {
	if pd.Advice == planfile.AdviceNone {
		return nil, nil
	}
	if !simdevice.Built {
		a.note("%s: device %d: %s; this stplan was built without its C runtime and cannot say what that reserves", name, pd.Ordinal, pd.Advice)
		return nil, nil
	}
	cost, err := simdevice.Serve(replay.NewProgram(tl), nil, 0)
	if err != nil {
		return nil, &bug{fmt.Errorf("%s: device %d: %w", name, pd.Ordinal, err)}
	}
	return report.NewServedInstead("pool", report.Account{PeakReserved: cost.Reserved, PeakAllocated: allocated}), nil
}

func planRow(name string, pd *planfile.Device, plan report.Account, strays int64, others report.Simulated) report.PlanRow {
	size, bound := int64(pd.ArenaBytes), int64(pd.Certificate.LowerBound)
	waits := report.WaitsOf(pd)
	return report.PlanRow{
		File: name, Mode: pd.Mode.String(), PlanBytes: size, OffPlan: strays, PeakReserved: plan.PeakReserved,
		LowerBound: bound, Gap: report.GapShare(size, bound), PeakAllocated: plan.PeakAllocated,
		Efficiency: plan.Efficiency(), FragmentationRatio: plan.FragmentationRatio(), Waste: plan.Waste(),
		Waits: waits.Count, CrossWaits: waits.CrossStream,
		ReductionNative: others.Row(baseline.KeyNative).PlanReduction,
		ReductionExpand: others.Row(baseline.KeyExpandable).PlanReduction,
	}
}
