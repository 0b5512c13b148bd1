package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/runtime/torch"
)

// mostCached is how many plans a cache keeps. A plan has a megabyte or so, and every
// change of a script makes a new name.
const mostCached = 512

// planCache is the folder with the plans that were learned, NAME-HASH-HASH.bin each, their
// marks, and how their programs were called. The processes of a job make up the names (_plankey.py).
type planCache struct{ folder string }

// openPlanCache makes the folder if it is missing; "" is the user's own. It has to be the
// user's, and nobody else may write there: a plan of somebody else's could be large or
// useless, although it could break nothing. So folders above it may be others', as on file
// systems that a team shares; the caches of code are checked up to the root.
func openPlanCache(folder string) (*planCache, error) {
	if folder == "" {
		cache := torch.UserCache()
		if cache == "" {
			return nil, errors.New("no folder for plans: the user has neither XDG_CACHE_HOME nor a home")
		}
		folder = filepath.Join(cache, "plans")
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("%s: cannot make the folder for plans: %w", folder, cause(err))
	}
	info, err := os.Stat(folder)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", folder, cause(err))
	case !info.IsDir():
		return nil, fmt.Errorf("%s: expected a folder for plans", folder)
	}
	if problem := openToOthers(info); problem != "" {
		return nil, &hinted{fmt.Errorf("%s: the folder for plans %s", folder, problem),
			"chmod go-w it if it is yours, or name another one with --cache"}
	}
	return &planCache{folder}, nil
}

// cacheVersions is the part of a plan's name in the cache that this stplan decides.
func cacheVersions() string {
	return fmt.Sprintf("%s, plan %d, history %d", producer, planfile.VersionShares, trace.HistoryVersion)
}

// path is where a plan of this name lies. The name comes from a process of the job.
func (c *planCache) path(name string) (string, error) {
	if name != filepath.Base(name) || !strings.HasSuffix(name, ".bin") || strings.HasPrefix(name, ".") {
		return "", fmt.Errorf("%q is not the name of a plan in the cache", name)
	}
	return filepath.Join(c.folder, name), nil
}

// markOf is the mark of a plan in the cache: a file beside it, which says that a run has followed
// it. The runtime then takes memory for it in larger granules. A mark is of the bytes that it names,
// so that of a plan which has been replaced means nothing, and it appears whole or not at all.
func markOf(plan string) string { return strings.TrimSuffix(plan, ".bin") + ".proven" }

// callOf is the file beside a plan in the cache that tells how the program of its run was called: a digest of the
// script's path, one of its content and one of each argument. A run that has no plan of its own takes that of the
// run that was called the most alike (_similar.py).
func callOf(plan string) string { return strings.TrimSuffix(plan, ".bin") + ".call" }

// copyPlan gives a plan of the cache another name there as well.
func (a *app) copyPlan(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("%s: cannot read: %w", from, cause(err))
	}
	return a.outputs.write(to, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// besides are the ends of the files that the cache has beside a plan.
var besides = []string{filepath.Ext(markOf("")), filepath.Ext(callOf(""))}

// prune removes the plans that were not used for longest, if there are too many, and what lay beside plans
// that are gone. A process that uses a plan has read it before.
func (c *planCache) prune() error {
	entries, err := os.ReadDir(c.folder)
	if err != nil {
		return err
	}
	var plans []fs.FileInfo
	var beside []string
	for _, e := range entries {
		if slices.Contains(besides, filepath.Ext(e.Name())) {
			beside = append(beside, e.Name())
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && filepath.Ext(e.Name()) == ".bin" {
			plans = append(plans, info)
		}
	}
	slices.SortFunc(plans, func(x, y fs.FileInfo) int {
		return cmp.Or(x.ModTime().Compare(y.ModTime()), cmp.Compare(x.Name(), y.Name()))
	})
	old := max(0, len(plans)-mostCached)
	for _, plan := range plans[:old] {
		if err := removeFile(filepath.Join(c.folder, plan.Name())); err != nil {
			return err
		}
	}
	kept := map[string]bool{}
	for _, plan := range plans[old:] {
		kept[strings.TrimSuffix(plan.Name(), ".bin")] = true
	}
	for _, name := range beside {
		if kept[strings.TrimSuffix(name, filepath.Ext(name))] {
			continue
		}
		if err := removeFile(filepath.Join(c.folder, name)); err != nil {
			return err
		}
	}
	return nil
}

// removeFile removes a file that may be gone.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cause(err)
	}
	return nil
}
