package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
)

// recordsFolder is the folder within a folder of plans that has what compile knows of them:
//
//	PLAN-SHA256.bin          a plan, named by its bytes; NAME.bin is a link to it
//	program-IDENTITY.json    a program: its summary and its plan
//	rank-NAME.json           a recording: its program, or why it has none
//	expected-SHA256.json     the names of a whole batch, named by their bytes
//
// All names but the ranks' come from content, and a file is only ever renamed into place
// when it is whole. So any number of processes can work in one folder, and one that is
// killed leaves nothing that another one would believe.
const recordsFolder = ".stplan"

// maxRecord bounds a record's file, in bytes. A summary has some kilobytes for each device.
const maxRecord = 16 << 20

// planFolderRecords are the records of one folder of plans, for plans of some options.
type planFolderRecords struct {
	outputs *outputs
	folder  string
	options string // compile.Options.ID
}

// fileStat is what tells one state of a file from another without reading it.
type fileStat struct {
	Size     int64 `json:"size_bytes"`
	Modified int64 `json:"modified_ns"` // Unix time
}

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
	Stat     fileStat `json:"file"`
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

// openRecords makes the folder for plans, with what is above it, and that for their records.
func (a *app) openRecords(folder, options string) (*planFolderRecords, error) {
	f := &planFolderRecords{outputs: &a.outputs, folder: folder, options: options}
	if err := os.MkdirAll(f.path(""), 0o777); err != nil {
		return nil, fmt.Errorf("%s: cannot make the folder for plans: %w", folder, cause(err))
	}
	for _, dir := range []string{folder, f.path("")} {
		if err := probeFolder(dir); err != nil {
			return nil, fmt.Errorf("%s: cannot write: %w", dir, cause(err))
		}
	}
	return f, nil
}

func (f *planFolderRecords) path(name string) string {
	return filepath.Join(f.folder, recordsFolder, name)
}

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
	path := f.path(name)
	if old, err := readBounded(path); err == nil && string(old) == string(data) {
		return nil
	}
	return f.outputs.write(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
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
	data, err := readBounded(f.path(name))
	return err == nil && json.Unmarshal(data, record) == nil
}

// readBounded reads a file of at most maxRecord bytes.
func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxRecord+1))
	if err == nil && len(data) > maxRecord {
		err = fmt.Errorf("%s: expected at most %d B", path, maxRecord)
	}
	return data, err
}

// program finds a program whose plan is there and whole.
func (f *planFolderRecords) program(id string) *programRecord {
	var p programRecord
	if !f.read("program-"+id+".json", &p) || p.Program != id || !f.has(f.path(p.Plan+".bin"), p.Plan) {
		return nil
	}
	return &p
}

// has says whether a file is there and has the bytes of that SHA-256.
func (f *planFolderRecords) has(path, sum string) bool {
	data, err := os.ReadFile(path)
	return err == nil && sumOf(data) == sum
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
		return nil, fmt.Errorf("%s: %w", r.path, err)
	}
	if err := f.outputs.share(f.path(plan+".bin"), r.output); err != nil {
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
	file, err := os.Open(f.path(p.Plan + ".bin"))
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
	stat, _ := statFile(path) // a file that is missing has none
	return f.keepJSON("rank-"+planName(output)+".json", &rankRecord{Trace: path, Stat: stat, Options: f.options, Error: message(failure)})
}

// doneBefore is the summary of a recording that has its plan: the file is as it was then, and
// so are the options and the plan. A recording that failed is tried again.
func (f *planFolderRecords) doneBefore(path, output string) *report.Compiled {
	var r rankRecord
	if !f.read("rank-"+planName(output)+".json", &r) || r.Error != "" || r.Options != f.options || r.Trace != path {
		return nil
	}
	if stat, err := statFile(path); err != nil || stat != r.Stat {
		return nil
	}
	p := f.program(r.Program)
	if p == nil || !f.has(output, r.Plan) {
		return nil
	}
	return r.summary(p, path, output)
}

// table is what the records say of all recordings of the folder, by name.
func (f *planFolderRecords) table() (plans []report.Compiled, failed []report.FailedTrace, missing []string, err error) {
	entries, err := os.ReadDir(f.path(""))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: no plans of several recordings here: %w", f.folder, cause(err))
	}
	programs := map[string]*programRecord{}
	known, expected := map[string]bool{}, map[string]bool{}
	for _, e := range entries { // by name
		file, isJSON := strings.CutSuffix(e.Name(), ".json")
		if !isJSON {
			continue
		}
		if name, ok := strings.CutPrefix(file, "rank-"); ok {
			known[name] = true
			output := filepath.Join(f.folder, name+".bin")
			var r rankRecord
			switch {
			case !f.read(e.Name(), &r):
				failed = append(failed, report.FailedTrace{Trace: output, Error: f.path(e.Name()) + ": cannot read the record"})
				continue
			case r.Error != "":
				failed = append(failed, report.FailedTrace{Trace: r.Trace, Error: r.Error})
				continue
			}
			p, read := programs[r.Program]
			if !read {
				p = f.program(r.Program)
				programs[r.Program] = p
			}
			if p == nil || !f.has(output, r.Plan) {
				failed = append(failed, report.FailedTrace{Trace: r.Trace, Error: output + ": expected the plan that was compiled, found none or another one"})
				continue
			}
			plans = append(plans, *r.summary(p, r.Trace, output))
		} else if strings.HasPrefix(file, "expected-") {
			var x expectedRecord
			if f.read(e.Name(), &x) {
				for _, name := range x.Plans {
					expected[name] = true
				}
			}
		}
	}
	for name := range expected {
		if !known[name] {
			missing = append(missing, filepath.Join(f.folder, name+".bin"))
		}
	}
	slices.Sort(missing)
	return plans, failed, missing, nil
}

// statFile looks at a file.
func statFile(path string) (fileStat, error) {
	info, err := os.Stat(path)
	if err != nil {
		return fileStat{}, fmt.Errorf("%s: cannot read: %w", path, cause(err))
	}
	return fileStat{info.Size(), info.ModTime().UnixNano()}, nil
}

// planName is the name of a plan's file without its folder and suffix.
func planName(output string) string { return strings.TrimSuffix(filepath.Base(output), ".bin") }

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
