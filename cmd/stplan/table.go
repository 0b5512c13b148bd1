package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/store"
)

func (a *app) tableCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "table PLANS/...",
		Short: "Show what compile has made of many recordings, by all shards",
		Long: `table prints what "compile" prints at the end of many recordings, for all that
was ever compiled into a folder: by one call, by several, or by the shards of a
job (compile --shard). Several folders, such as one of each node, make one
table.

It reads what compile has kept beside the plans, and checks that each plan is
the one that was compiled. Nothing is compiled.

The exit code is 1 if a recording failed, if its plan is gone or another one, or
if a recording of a batch was not compiled yet.`,
		Example: `  stplan table plans/
  stplan table node*/plans --json
  stplan table s3://traces/plans/`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(cmd, "expected at least one folder of plans, found none")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.runTable(args, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the table as JSON, as compile does")
	cmd.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	return cmd
}

func (a *app) runTable(folders []string, asJSON bool) error {
	var plans []report.Compiled
	var failed []report.FailedTrace
	missing := map[string][]string{} // by name of the plan: where it was expected
	found := map[string]bool{}
	for _, folder := range folders {
		if err := demandFolder(folder); err != nil {
			return err
		}
		p, bad, gone, err := a.recordsOf(folder, "").table()
		if err != nil {
			return err
		}
		for i := range p {
			found[filepath.Base(p[i].Plan)] = true
		}
		plans, failed = append(plans, p...), append(failed, bad...)
		for _, path := range gone {
			missing[filepath.Base(path)] = append(missing[filepath.Base(path)], path)
		}
	}
	all := report.NewCompiledAll(plans, failed)
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if !found[name] { // another node's folder has it
			all.Missing = append(all.Missing, missing[name][0])
		}
	}
	if err := a.print(all, asJSON); err != nil {
		return err
	}
	var no []error
	if n := len(all.Failed); n > 0 {
		no = append(no, &negative{fmt.Sprintf("%d of %d recordings failed", n, n+len(plans))})
	}
	if n := len(all.Missing); n > 0 {
		no = append(no, &negative{fmt.Sprintf("%d recordings are not compiled yet", n)})
	}
	return errors.Join(no...)
}

// demandFolder refuses what is no folder. In a bucket only what lies in one can tell.
func demandFolder(path string) error {
	if store.Is(path) {
		return nil
	}
	if info, err := os.Stat(path); err != nil {
		return fmt.Errorf("%s: cannot read: %w", path, cause(err))
	} else if !info.IsDir() {
		return &hinted{fmt.Errorf("%s: expected a folder of plans", path), "inspect shows one plan"}
	}
	return nil
}
