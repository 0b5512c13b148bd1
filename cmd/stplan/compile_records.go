package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/store"
)

// maxRecord bounds a record's file, in bytes. A summary has some kilobytes for each device.
const maxRecord = 16 << 20

// planFolderRecords are the records of one folder of plans, for plans of some options.
type planFolderRecords struct {
	place   planPlace
	folder  string
	options string // compile.Options.ID

	mu       sync.Mutex
	programs map[string]*programRecord // that were found, with their plans
}

// fileStat is what tells one state of a file or an object from another without reading it.
type fileStat struct {
	Size     int64  `json:"size_bytes"`            // -1 if the server does not say
	Modified int64  `json:"modified_ns,omitempty"` // Unix time, of a file
	Version  string `json:"version,omitempty"`     // of an object
}

// known says that a change of the content would show.
func (s fileStat) known() bool { return s.Modified != 0 || s.Version != "" }

// rank is what is left of a recording once it has been read and its program is known.
type rank struct {
	index    int
	path     string
	output   string
	stat     fileStat
	program  string
	notes    []string
	ordinals []int
}

// programRecord is what is known of a program.
type programRecord struct {
	Program string          `json:"program"`
	Plan    string          `json:"plan_sha256"`
	Summary report.Compiled `json:"summary"` // of the recording that was compiled
}

// rankRecord is what has become of a recording.
type rankRecord struct {
	Trace    string   `json:"trace"`
	Stat     fileStat `json:"file,omitzero"`
	Options  string   `json:"options"`
	Program  string   `json:"program,omitempty"`
	Plan     string   `json:"plan_sha256,omitempty"`
	Ordinals []int    `json:"devices,omitempty"`
	Notes    []string `json:"notes,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// expectedRecord are the plans that a batch is to make.
type expectedRecord struct {
	Plans []string `json:"plans"` // names without .bin
}

// recordsOf are the records of a folder of plans.
func (a *app) recordsOf(folder, options string) *planFolderRecords {
	return &planFolderRecords{place: a.planPlace(folder), folder: folder, options: options, programs: map[string]*programRecord{}}
}

// recordName is the name of a record within its folder of plans.
func recordName(name string) string { return recordsFolder + "/" + name }

// plan is the path of a plan of the folder.
func (f *planFolderRecords) plan(name string) string { return inFolder(f.folder, name) }

// expect notes the names of a batch, so that what no shard has done can be told from what
// nobody asked for.
func (f *planFolderRecords) expect(outputs []string) error {
	var names []string
	for _, o := range outputs {
		names = append(names, planName(o))
	}
	slices.Sort(names)
	data, err := json.Marshal(expectedRecord{names})
	if err != nil {
		return &bug{err}
	}
	return f.keep("expected-"+sumOf(data)+".json", data)
}

// keep writes a record, if it is not there already.
func (f *planFolderRecords) keep(name string, data []byte) error {
	if f.has(recordName(name), sumOf(data)) {
		return nil
	}
	return f.place.write(recordName(name), data)
}

func (f *planFolderRecords) keepJSON(name string, record any) error {
	data, err := json.Marshal(record)
	if err != nil {
		return &bug{err}
	}
	return f.keep(name, append(data, '\n'))
}

// read reads a record; false if there is none that makes sense.
func (f *planFolderRecords) read(name string, record any) bool {
	data, err := readBounded(f.place, recordName(name), maxRecord)
	return err == nil && json.Unmarshal(data, record) == nil
}

// program finds a program whose plan is there and whole.
func (f *planFolderRecords) program(id string) *programRecord {
	f.mu.Lock()
	known := f.programs[id]
	f.mu.Unlock()
	if known != nil {
		return known
	}
	p := &programRecord{}
	if !f.read("program-"+id+".json", p) || p.Program != id || !f.has(recordName(p.Plan+".bin"), p.Plan) {
		return nil
	}
	f.mu.Lock()
	f.programs[id] = p
	f.mu.Unlock()
	return p
}

// has says whether a file is there and has the bytes of that SHA-256.
func (f *planFolderRecords) has(name, sum string) bool {
	found, err := f.place.sum(name)
	return err == nil && found == sum
}

// keepProgram keeps the plan of a program.
func (f *planFolderRecords) keepProgram(id string, plan []byte, sum report.Compiled) (*programRecord, error) {
	p := &programRecord{Program: id, Summary: sum}
	var err error
	if p.Plan, err = f.keepPlan(plan); err != nil {
		return nil, err
	}
	return p, f.keepJSON("program-"+id+".json", p)
}

// keepPlan writes a plan under the name of its content.
func (f *planFolderRecords) keepPlan(data []byte) (sum string, err error) {
	sum = sumOf(data)
	return sum, f.keep(sum+".bin", data)
}

// keepRank gives a recording the plan of its program, under the recording's own name.
func (f *planFolderRecords) keepRank(p *programRecord, r rank) (*report.Compiled, error) {
	plan, err := f.planOf(p, r.ordinals)
	if err != nil {
		if !isBug(err) { // the folder had this plan a moment before
			err = &environment{err}
		}
		return nil, fmt.Errorf("%s: %w", r.path, err)
	}
	if err := f.place.share(recordName(plan+".bin"), planName(r.output)+".bin"); err != nil {
		return nil, err
	}
	record := &rankRecord{Trace: r.path, Stat: r.stat, Options: f.options, Program: p.Program, Plan: plan, Ordinals: r.ordinals, Notes: r.notes}
	if err := f.keepJSON("rank-"+planName(r.output)+".json", record); err != nil {
		return nil, err
	}
	return record.summary(p, r.path, r.output), nil
}

// planOf is the name of a program's plan for these devices. If they are not those that it was
// compiled on, only their ordinals differ.
func (f *planFolderRecords) planOf(p *programRecord, ordinals []int) (string, error) {
	same := slices.EqualFunc(p.Summary.Devices, ordinals, func(d report.CompiledDevice, ordinal int) bool { return d.Device == ordinal })
	if same {
		return p.Plan, nil
	}
	file, err := f.place.open(recordName(p.Plan + ".bin"))
	if err != nil {
		return "", err
	}
	defer file.Close()
	plan, err := planfile.Read(file)
	if err != nil {
		return "", err
	}
	other, err := compile.WithOrdinals(plan, ordinals)
	if err != nil {
		return "", err
	}
	data, err := planfile.Encode(other)
	if err != nil {
		return "", &bug{err}
	}
	return f.keepPlan(data)
}

// summary is what is said of a recording's plan.
func (r *rankRecord) summary(p *programRecord, path, output string) *report.Compiled {
	sum := p.Summary
	sum.Trace, sum.Plan, sum.Notes, sum.Program = path, output, r.Notes, p.Program
	sum.Devices = slices.Clone(sum.Devices)
	for i := range min(len(sum.Devices), len(r.Ordinals)) {
		sum.Devices[i].Device = r.Ordinals[i]
	}
	return &sum
}

// keepFailure notes that a recording has no plan, and why. A plan that an earlier state of it
// had stays.
func (f *planFolderRecords) keepFailure(path, output string, failure error) error {
	return f.keepJSON("rank-"+planName(output)+".json", &rankRecord{Trace: path, Options: f.options, Error: message(failure)})
}

// doneBefore is the summary of a recording that has its plan: the file is as it was then, and
// so are the options and the plan. A recording that failed is tried again.
func (f *planFolderRecords) doneBefore(path, output string, stat fileStat) *report.Compiled {
	var r rankRecord
	if !f.read("rank-"+planName(output)+".json", &r) || r.Error != "" || r.Options != f.options || r.Trace != path || r.Stat != stat || !stat.known() {
		return nil
	}
	p := f.program(r.Program)
	if p == nil || !f.has(planName(output)+".bin", r.Plan) {
		return nil
	}
	return r.summary(p, path, output)
}

// readsAtOnce is how many records are read at once. An answer of a store takes some 30 ms, so
// the records of a thousand ranks take some seconds.
const readsAtOnce = 16

// table is what the records say of all recordings of the folder, by name.
func (f *planFolderRecords) table() (plans []report.Compiled, failed []report.FailedTrace, missing []string, err error) {
	files, err := f.place.list(recordsFolder)
	if err != nil {
		return nil, nil, nil, err
	}
	if len(files) == 0 {
		return nil, nil, nil, fmt.Errorf("%s: no plans of several recordings here", f.folder)
	}
	ranks := make([]batchRow, len(files))
	lists := make([]expectedRecord, len(files))
	var work errgroup.Group
	work.SetLimit(readsAtOnce)
	for i, file := range files {
		name, isJSON := strings.CutSuffix(file, ".json")
		if !isJSON {
			continue
		}
		work.Go(func() error {
			if name, ok := strings.CutPrefix(name, "rank-"); ok {
				ranks[i] = f.row(name)
			} else if strings.HasPrefix(name, "expected-") && !f.read(file, &lists[i]) {
				lists[i] = expectedRecord{}
			}
			return nil
		})
	}
	_ = work.Wait() // no error is returned
	known := map[string]bool{}
	for _, row := range ranks {
		switch {
		case row.plan != nil:
			plans = append(plans, *row.plan)
		case row.err != nil:
			failed = append(failed, report.FailedTrace{Trace: row.path, Error: row.err.Error()})
		default:
			continue
		}
		known[row.output] = true
	}
	expected := map[string]bool{}
	for _, list := range lists {
		for _, name := range list.Plans {
			if output := f.plan(name + ".bin"); !known[output] {
				expected[output] = true
			}
		}
	}
	return plans, failed, slices.Sorted(maps.Keys(expected)), nil
}

// batchRow is what has become of one recording: a plan or an error.
type batchRow struct {
	path   string // of the recording
	output string
	plan   *report.Compiled
	err    error
}

// row is what has become of the recording whose plan has this name.
func (f *planFolderRecords) row(name string) batchRow {
	output := f.plan(name + ".bin")
	row := batchRow{path: output, output: output}
	var r rankRecord
	if !f.read("rank-"+name+".json", &r) {
		row.err = fmt.Errorf("%s: cannot read the record", f.plan(recordName("rank-"+name+".json")))
		return row
	}
	row.path = r.Trace
	if r.Error != "" {
		row.err = errors.New(r.Error)
		return row
	}
	p := f.program(r.Program)
	if p == nil || !f.has(name+".bin", r.Plan) {
		row.err = fmt.Errorf("%s: expected the plan that was compiled, found none or another one", output)
		return row
	}
	row.plan = r.summary(p, r.Trace, output)
	return row
}

// statRecording looks at a recording's file or object.
func (a *app) statRecording(path string) (fileStat, error) {
	if store.Is(path) {
		info, err := a.outputs.remote.store.Stat(a.outputs.remote.ctx, path)
		return fileStat{Size: info.Size, Version: info.Version}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return fileStat{}, fmt.Errorf("%s: cannot read: %w", path, cause(err))
	}
	return fileStat{Size: info.Size(), Modified: info.ModTime().UnixNano()}, nil
}

// planName is the name of a plan's file without its folder and suffix.
func planName(output string) string {
	return strings.TrimSuffix(filepath.Base(inputName(output)), ".bin")
}
