package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
)

type diffFlags struct {
	trace     string
	device    int
	config    string
	recorded  string
	json      bool
	failUnder float64
}

func (a *app) diffCommand() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff PLAN.bin --trace TRACE",
		Short: "Compare a plan with what PyTorch's allocators reserve",
		Long: `diff puts a plan beside what the recording reserved, and what PyTorch's native
caching allocator and expandable segments reserve for the same program, under
one rule of account:

  efficiency     peak allocated / peak reserved
  fragmentation  1 - efficiency
  waste          peak reserved - peak allocated
  reduction      1 - the plan's waste / the other's waste

The allocators are simulated event by event. Each simulation first proves
itself: under the recorded settings it must reproduce every segment event and
every address of the recording. A snapshot does not hold the memory fraction nor
the card's size; where the job was limited by them, say so with
--recorded-config.

A periodic plan serves what comes before the steady state and every iteration of
it. What outlives an iteration without repeating, such as losses kept in a list,
is off plan and counted on top of it.

--config simulates other settings as well, in the syntax of PYTORCH_ALLOC_CONF:
max_split_size_mb, roundup_power2_divisions, garbage_collection_threshold,
expandable_segments, large_segment_size_mb, max_non_split_rounding_mb,
per_process_memory_fraction. Two keys are ours: device_memory, the card's size
in bytes or with a unit (80GiB), at which it runs out, and usable_memory, where
other users of the card leave less. As in PyTorch, settings that such a string
leaves out return to their defaults.`,
		Example: `  stplan diff run.bin --trace run.pickle.gz
  stplan diff run.bin --trace run.parquet --config max_split_size_mb:512
  stplan diff run.bin --trace run.parquet --json --fail-under 90`,
		Args: exactArgs("PLAN.bin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runDiff(args[0], f, cmd.Flags().Changed("device"), cmd.Flags().Changed("fail-under"))
		},
	}
	cmd.Flags().StringVar(&f.trace, "trace", "", "the recording that the plan was made from")
	cmd.Flags().IntVar(&f.device, "device", 0, "compare only this device")
	cmd.Flags().StringVar(&f.config, "config", "", "also simulate these settings")
	cmd.Flags().StringVar(&f.recorded, "recorded-config", "", "settings of the recording that it does not hold, e.g. per_process_memory_fraction:0.5,device_memory:80GiB")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the comparison as JSON")
	cmd.Flags().Float64Var(&f.failUnder, "fail-under", 0, "exit with code 1 if the plan avoids less than this percentage of native's waste")
	return cmd
}

func (a *app) runDiff(path string, f diffFlags, oneDevice, limited bool) error {
	if f.trace == "" {
		return &hinted{errors.New("diff needs the recording that the plan was made from"), "--trace TRACE"}
	}
	if err := oneStdin(path, f.trace, "PLAN.bin", "--trace"); err != nil {
		return err
	}
	if limited && math.IsNaN(f.failUnder) {
		return errors.New("--fail-under: expected a percentage, found NaN")
	}
	p, err := a.readPlan(path)
	if err != nil {
		return err
	}
	t, err := a.readTrace(f.trace, trace.Options{})
	if err != nil {
		return err
	}
	if err := provenPlan(inputName(path), p, t); err != nil {
		return err
	}
	devices := p.Devices
	if oneDevice {
		d, err := planDeviceByOrdinal(p, f.device, inputName(path))
		if err != nil {
			return err
		}
		devices = []planfile.Device{*d}
	}
	var all []report.Compared
	for i := range devices {
		row, err := a.compareDevice(inputName(path), &devices[i], t, f)
		if err != nil {
			return err
		}
		all = append(all, row)
	}
	if err := a.printCompared(all, f.json); err != nil {
		return err
	}
	if limited {
		return checkReduction(all, f.failUnder)
	}
	return nil
}

// provenPlan refuses to compare a plan that belongs to another trace (bad
// input) or does not verify (a negative): its size would mean nothing.
func provenPlan(name string, p *planfile.Plan, t *trace.Trace) error {
	for i := range p.Devices {
		pd := &p.Devices[i]
		if d := traceDevice(t, int(pd.Ordinal)); d == nil || d.Fingerprint() != pd.Fingerprint {
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

// compareDevice simulates one device's program and accounts for it.
func (a *app) compareDevice(planName string, pd *planfile.Device, t *trace.Trace, f diffFlags) (report.Compared, error) {
	none := report.Compared{}
	d := traceDevice(t, int(pd.Ordinal))
	configs, err := diffConfigs(t, f)
	if err != nil {
		return none, err
	}
	program, err := baseline.ReadProgram(d, configs.recorded)
	if err != nil {
		return none, fmt.Errorf("%s: device %d: %w", t.Name, d.Ordinal, err)
	}
	bar := a.progress(fmt.Sprintf("checking device %d", d.Ordinal))
	check, err := baseline.SelfCheck(program, configs.recorded, bar.update)
	bar.done()
	if err != nil {
		return none, fmt.Errorf("%s: device %d: %w", t.Name, d.Ordinal, err)
	}
	rec := baseline.FromRecording(d)
	account := report.Account{PeakReserved: int64(rec.PeakReserved), PeakAllocated: int64(rec.PeakAllocated)}
	tl, err := lifespan.Build(d)
	if err != nil {
		return none, fmt.Errorf("%s: %w", t.Name, err)
	}
	// What a periodic plan has no place for comes on top. Memory for what follows
	// the recorded passes is never less than what the program needs.
	strays := offPlan(pd, tl)
	plan := report.Account{PeakReserved: max(int64(pd.ArenaBytes)+strays, account.PeakAllocated), PeakAllocated: account.PeakAllocated}

	cmp := report.Compared{Trace: t.Name, Device: d.Ordinal, SelfCheck: selfCheck(check)}
	cmp.Recorded = report.NewRow(configs.recorded.Kind(), account.PeakReserved, account, int64(rec.PeakActive), plan)
	simulate := func(al baseline.Allocator) (report.ComparedRow, error) {
		bar := a.progress("simulating " + al.Title)
		res, err := baseline.Simulate(program, al, bar.update)
		bar.done()
		if err != nil {
			return report.ComparedRow{}, fmt.Errorf("%s: device %d: %s: %w", t.Name, d.Ordinal, al.Title, err)
		}
		row := report.NewRow(al.Title, int64(res.PeakReserved), account, int64(rec.PeakActive), plan)
		row.Retries = res.Retries
		if res.OOM != nil {
			row.OutOfMemory = &report.OutOfMemory{Event: int64(res.OOM.Event), Requested: int64(res.OOM.Requested), Reserved: int64(res.OOM.Reserved)}
			row.PlanReduction = nil
		}
		return row, nil
	}
	allocators := baseline.Allocators(configs.recorded)
	if f.config != "" {
		allocators = append(allocators, baseline.Caching("configured", f.config, configs.other))
	}
	for _, al := range allocators {
		row, err := simulate(al)
		if err != nil {
			return none, err
		}
		switch al.Key {
		case baseline.KeyNative:
			cmp.Simulated.Native = row
		case baseline.KeyExpandable:
			cmp.Simulated.Expandable = row
		default:
			cmp.Simulated.Configured = &row
		}
	}
	cmp.Plan = planRow(planName, pd, plan, &cmp)
	cmp.Plan.OffPlan = strays
	return cmp, nil
}

// diffConfig is what the recording ran under and what --config asks for.
type diffConfig struct {
	recorded, other baseline.Config
}

func diffConfigs(t *trace.Trace, f diffFlags) (diffConfig, error) {
	var c diffConfig
	var err error
	if c.recorded, err = baseline.RecordedConfig(t.Settings); err != nil {
		return c, fmt.Errorf("%s: recorded settings: %w", t.Name, err)
	}
	if f.recorded != "" {
		if c.recorded, err = c.recorded.Apply(f.recorded); err != nil {
			return c, fmt.Errorf("--recorded-config: %w", err)
		}
	}
	if c.other, err = c.recorded.Apply(f.config); err != nil {
		return c, fmt.Errorf("--config: %w", err)
	}
	return c, nil
}

func traceDevice(t *trace.Trace, ordinal int) *trace.Device {
	for i := range t.Devices {
		if t.Devices[i].Ordinal == ordinal {
			return &t.Devices[i]
		}
	}
	return nil
}

func planRow(name string, pd *planfile.Device, plan report.Account, cmp *report.Compared) report.PlanRow {
	return report.PlanRow{
		File: name, Mode: pd.Mode.String(), PlanBytes: int64(pd.ArenaBytes), PeakReserved: plan.PeakReserved, LowerBound: int64(pd.Certificate.LowerBound),
		Gap: report.GapShare(int64(pd.ArenaBytes), int64(pd.Certificate.LowerBound)), PeakAllocated: plan.PeakAllocated,
		Efficiency: plan.Efficiency(), FragmentationRatio: plan.FragmentationRatio(), Waste: plan.Waste(),
		Waits:           len(pd.Waits),
		ReductionNative: cmp.Simulated.Native.PlanReduction,
		ReductionExpand: cmp.Simulated.Expandable.PlanReduction,
	}
}

func (a *app) printCompared(all []report.Compared, asJSON bool) error {
	if asJSON {
		first := all[0]
		first.Others = all[1:]
		return report.WriteJSON(a.stdout, first)
	}
	for i := range all {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := all[i].Write(a.stdout); err != nil {
			return err
		}
		if m := all[i].SelfCheck.Mismatch; m != "" {
			a.note("device %d: first difference from the recording: %s", all[i].Device, m)
		}
		for _, h := range all[i].SelfCheck.Hints {
			a.note("device %d: %s", all[i].Device, h)
		}
	}
	return nil
}

// checkReduction answers --fail-under for every device. Where native wastes
// nothing there is nothing to reduce, and a plan that wastes nothing passes.
// Figures that the simulation could not establish do not pass.
func checkReduction(all []report.Compared, percent float64) error {
	for i := range all {
		c := &all[i]
		problem := ""
		switch r := c.Plan.ReductionNative; {
		case !c.SelfCheck.Exact():
			problem = "the simulation does not reproduce the recording, so there is nothing to judge by"
		case c.Simulated.Native.OutOfMemory != nil:
			problem = "native runs out of memory, so there is no figure to judge by"
		case r == nil && c.Plan.Waste > 0:
			problem = "native wastes nothing, and the plan " + report.Bytes(c.Plan.Waste)
		case r != nil && 100**r < percent:
			problem = fmt.Sprintf("the plan avoids %s of native's waste, less than the limit of %g %%", report.Percent(*r), percent)
		}
		if problem != "" {
			return &negative{fmt.Sprintf("%s: device %d: %s", c.Plan.File, c.Device, problem)}
		}
	}
	return nil
}

func selfCheck(c baseline.Check) report.SelfCheck {
	out := report.SelfCheck{Matched: c.Matched, Total: c.Total, Hints: c.Hints}
	if c.First != nil {
		out.Mismatch = c.First.String()
	}
	return out
}
