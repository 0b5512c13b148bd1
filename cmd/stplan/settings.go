package main

import (
	"fmt"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// recordedConfig is what a recording ran under, with what --recorded-config adds.
func recordedConfig(t *trace.Trace, more string) (baseline.Config, error) {
	recorded, err := baseline.RecordedConfig(t.Settings)
	if err != nil {
		return recorded, fmt.Errorf("%s: recorded settings: %w", t.Name, err)
	}
	if more == "" {
		return recorded, nil
	}
	if recorded, err = recorded.Apply(more); err != nil {
		return recorded, fmt.Errorf("--recorded-config: %w", err)
	}
	return recorded, nil
}

// configuredAllocators are one for each --config.
func configuredAllocators(recorded baseline.Config, configs []string) ([]baseline.Allocator, error) {
	var all []baseline.Allocator
	for _, conf := range configs {
		if conf == "" {
			continue
		}
		c, err := recorded.Apply(conf)
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		all = append(all, baseline.Caching(report.KeyConfigured, conf, c))
	}
	return all, nil
}

// selfCheck checks the simulation by a device's recording. A history has nothing to check
// it by.
func (a *app) selfCheck(d *trace.Device, program *baseline.Program, recorded baseline.Config) (report.SelfCheck, error) {
	if d.AddressesInvented {
		return report.SelfCheck{}, nil
	}
	bar := a.progress(fmt.Sprintf("checking device %d", d.Ordinal))
	defer bar.done()
	c, err := baseline.SelfCheck(program, recorded, bar.update)
	out := report.SelfCheck{Matched: c.Matched, Total: c.Total, Hints: c.Hints}
	if c.First != nil {
		out.Mismatch = c.First.String()
	}
	return out, err
}
