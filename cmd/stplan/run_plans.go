package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/store"
)

// jobPlans are the plans for the processes of a job: one for all of them, or
// one for each rank.
type jobPlans struct {
	path   string // of the one plan; by rank, what comes before "0.bin" in that of rank 0; absolute
	byRank bool
	facts  map[string][]planFacts // of each plan, by absolute path
	copies string                 // folder with copies of plans from a store, "" for none
}

// discard removes the copies, once the job has ended.
func (p *jobPlans) discard() {
	if p.copies != "" {
		os.RemoveAll(p.copies)
	}
}

// planFacts is what a summary needs of one device of a plan.
type planFacts struct {
	ordinal                      int
	arenaBytes, recordedReserved int64
}

// readJobPlans finds and reads the plans that path means: a plan, a folder with
// the plans of one job's ranks, or such a folder and the job's NAME in it.
func (a *app) readJobPlans(path string) (p *jobPlans, err error) {
	p = &jobPlans{facts: map[string][]planFacts{}}
	defer func() {
		if err != nil {
			p.discard()
		}
	}()
	if store.Is(path) {
		if p.copies, path, err = a.copyPlans(path); err != nil {
			return p, err
		}
	}
	return p, a.readLocalPlans(p, path)
}

// readLocalPlans finds and reads plans of this machine.
func (a *app) readLocalPlans(p *jobPlans, path string) error {
	files, prefix, err := findPlans(path)
	if err != nil {
		return err
	}
	p.path, p.byRank = files[0], prefix != ""
	if p.byRank {
		p.path = prefix
	}
	if p.path, err = filepath.Abs(p.path); err != nil {
		return err
	}
	for _, file := range files {
		if err := a.demandInputs(file); err != nil {
			return err
		}
		plan, err := a.readPlan(file)
		if err != nil {
			return err
		}
		p.facts[filepath.Join(filepath.Dir(p.path), filepath.Base(file))] = factsOf(plan)
	}
	return nil
}

func factsOf(p *planfile.Plan) []planFacts {
	var all []planFacts
	for i := range p.Devices {
		d := &p.Devices[i]
		all = append(all, planFacts{int(d.Ordinal), int64(d.ArenaBytes), int64(d.RecordedPeakReserved)})
	}
	return all
}

// mostPlan is the largest plan that is copied from a store, in bytes. The plan of a recording of
// a million events has some 100 MB.
const mostPlan = 4 << 30

// copyPlans copies a plan, or the plans of a folder, from a store to a temporary folder, as the
// job's processes open plans by themselves. local is what was copied, in that folder.
func (a *app) copyPlans(path string) (folder, local string, err error) {
	objects := []string{path}
	if store.IsFolder(path) {
		if objects, err = a.outputs.remote.store.List(a.outputs.remote.ctx, path); err != nil {
			return "", "", err
		}
		objects = slices.DeleteFunc(objects, func(o string) bool { return filepath.Ext(o) != ".bin" })
		if len(objects) == 0 {
			return "", "", fmt.Errorf("%s: expected a plan, or plans NAME-rankR.bin, found no .bin object", path)
		}
	}
	if folder, err = os.MkdirTemp("", "stplan-plans-*"); err != nil {
		return "", "", err
	}
	for _, object := range objects {
		local = filepath.Join(folder, filepath.Base(inputName(object)))
		if err := a.copyObject(object, local); err != nil {
			os.RemoveAll(folder)
			return "", "", err
		}
	}
	if store.IsFolder(path) {
		local = folder
	}
	return folder, local, nil
}

func (a *app) copyObject(object, local string) error {
	r, err := a.open(object)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.Create(local)
	if err != nil {
		return fmt.Errorf("%s: keep a copy: %w", inputName(object), cause(err))
	}
	n, err := io.Copy(f, io.LimitReader(r, mostPlan+1))
	if err == nil && n > mostPlan {
		err = fmt.Errorf("more than %d B, the most that a plan may have", int64(mostPlan))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: cannot read: %w", inputName(object), err)
	}
	return nil
}

// findPlans lists the files that path means, at least one. prefix is empty if
// that is one plan for all processes, and otherwise what the files' paths begin
// with, up to the rank.
func findPlans(path string) (files []string, prefix string, err error) {
	if path == "-" {
		return nil, "", fmt.Errorf("PLAN.bin: expected a file, found -: standard input is the job's")
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return []string{path}, "", nil
	case err == nil:
		folder, err := readPlanFolder(path)
		if err != nil {
			return nil, "", fmt.Errorf("%s: cannot read: %w", path, cause(err))
		}
		return folder.onlyJob()
	}
	if folder, unread := readPlanFolder(filepath.Dir(path)); unread == nil {
		job := filepath.Base(path)
		if folder.jobs[job] != nil {
			return folder.job(job)
		}
	}
	return nil, "", fmt.Errorf("%s: cannot read: %w", path, cause(err))
}

// planFolder is what a folder holds in .bin files.
type planFolder struct {
	path   string
	all    []string
	jobs   map[string][]string // plans NAME-rankR.bin, by NAME
	twice  map[string]error    // jobs with two plans of one rank, such as rank1 and rank01
	others []string            // plans of other names
}

// rankPlan is the name that "compile" gives the plan of a rank's trace. A second
// process of the same rank has its id in the name: its plan serves nobody, as a
// rank does not tell the two apart.
// The rank may have up to 9 digits, so zeros may be before it: the Python package tries as many.
var rankPlan = regexp.MustCompile(`^(.+)-rank([0-9]{1,9})(-pid[0-9]+)?\.bin$`)

func readPlanFolder(path string) (*planFolder, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	f := &planFolder{path: path, jobs: map[string][]string{}, twice: map[string]error{}}
	ranks := map[string]string{} // the file of each job's rank
	for _, e := range entries {
		if e.IsDir() || filepath.Ext(e.Name()) != ".bin" {
			continue
		}
		file := filepath.Join(path, e.Name())
		f.all = append(f.all, file)
		name := rankPlan.FindStringSubmatch(e.Name())
		switch {
		case name == nil:
			f.others = append(f.others, e.Name())
		case name[3] == "":
			rank := name[1] + "-rank" + strings.TrimLeft(name[2], "0")
			if other, twice := ranks[rank]; twice {
				f.twice[name[1]] = fmt.Errorf("%s: expected one plan of each rank, found %s and %s", path, other, e.Name())
			}
			ranks[rank] = e.Name()
			f.jobs[name[1]] = append(f.jobs[name[1]], file)
		}
	}
	return f, nil
}

// prefix is what the paths of a job's plans begin with, up to the rank.
func (f *planFolder) prefix(job string) string { return filepath.Join(f.path, job) + "-rank" }

// onlyJob is the folder's only plan, of any name, or the plans of its only
// job.
func (f *planFolder) onlyJob() (files []string, prefix string, err error) {
	jobs := slices.Sorted(maps.Keys(f.jobs))
	switch {
	case len(f.all) == 1:
		return f.all, "", nil
	case len(f.all) == 0:
		return nil, "", fmt.Errorf("%s: expected a plan, or plans NAME-rankR.bin, found no .bin file", f.path)
	case len(f.others) > 0 || len(jobs) == 0:
		others := append(f.others, filepath.Base(f.all[0]))
		return nil, "", &hinted{fmt.Errorf("%s: expected one plan, or plans NAME-rankR.bin, found %d, among them %s", f.path, len(f.all), others[0]),
			"name the plan in place of the folder"}
	case len(jobs) > 1:
		for i, job := range jobs {
			jobs[i] = filepath.Join(f.path, job)
		}
		return nil, "", &hinted{fmt.Errorf("%s: expected the plans of one job, found those of %d", f.path, len(jobs)),
			"name one in place of the folder: " + strings.Join(jobs, ", ")}
	}
	return f.job(jobs[0])
}

// job is the plans of one job.
func (f *planFolder) job(name string) (files []string, prefix string, err error) {
	return f.jobs[name], f.prefix(name), f.twice[name]
}

// of finds what a plan says of one device of a process. A plan with one device
// serves whichever the process uses.
func (p *jobPlans) of(path string, ordinal int) (planFacts, bool) {
	all := p.facts[path]
	if len(all) == 1 {
		return all[0], true
	}
	for _, f := range all {
		if f.ordinal == ordinal {
			return f, true
		}
	}
	return planFacts{}, false
}
