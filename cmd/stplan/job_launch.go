package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stplan/stplan/runtime/torch"
)

// launch runs a command of the user's, with the Python package at work in each
// of its Python processes: what start returns is in the environment variable
// there, as JSON. start is called right before the job begins. reports is a folder where
// the processes report, each in a .json file of its own; it lasts until tell, which gets
// the job's exit code, has returned.
func (a *app) launch(command []string, variable string, start func(reports string) any, tell func(reports string, code int) error) error {
	reports, err := os.MkdirTemp("", "stplan-")
	if err != nil {
		return fmt.Errorf("cannot make a temporary folder: %w", cause(err))
	}
	defer os.RemoveAll(reports)
	bootstrap, refused, err := torch.InstallForUser()
	if err != nil {
		return fmt.Errorf("cannot install the Python package: %w", err)
	}
	if refused != nil {
		fmt.Fprintf(a.stderr, "stplan: the cache %s, a temporary folder serves instead; %s\n", refused, refused.Advice)
	}
	value, err := json.Marshal(start(reports))
	if err != nil {
		return &bug{err}
	}
	path := bootstrap
	if old := os.Getenv("PYTHONPATH"); old != "" {
		path += string(os.PathListSeparator) + old
	}
	// Of a variable that stands there twice, the last value counts.
	environment := append(os.Environ(), "PYTHONPATH="+path, variable+"="+string(value))
	if folder := installedPackage(); folder != "" {
		environment = append(environment, packageVariable+"="+folder)
	}
	code, err := a.runJob(command, environment)
	if err != nil {
		return err
	}
	return tell(reports, code)
}

// packageVariable names installedPackage in the environment of the job: the copy of the
// package that a job gets has nothing compiled.
const packageVariable = "STPLAN_PACKAGE"

// installedPackage is the Python package that this binary is part of, as pip installs it:
// the binary is its bin/stplan. Empty if it is part of none.
func installedPackage() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	if path, err = filepath.EvalSymlinks(path); err != nil || filepath.Base(filepath.Dir(path)) != "bin" {
		return ""
	}
	folder := filepath.Dir(filepath.Dir(path))
	if _, err := os.Stat(filepath.Join(folder, "csrc", "stplan.h")); err != nil {
		return ""
	}
	return folder
}

// readReports reads what every process reported, in the order of the files'
// names. A process that was killed while it wrote the first one is left out.
func readReports[T any](dir string) ([]T, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []T
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, cause(err))
		}
		if len(data) == 0 {
			continue
		}
		var r T
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// demandWritable proves, before a job starts, that files can be written in a
// folder.
func demandWritable(folder string) error {
	if err := probeFolder(folder); err != nil {
		return fmt.Errorf("%s: cannot write: %w", folder, cause(err))
	}
	return nil
}
