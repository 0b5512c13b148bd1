package main

import (
	"github.com/stplan/stplan/internal/report"
)

// runReportMany draws several plans, each with the recording of its name.
func (a *app) runReportMany(plans, traces inputs, f reportFlags, oneDevice bool) error {
	if err := traces.none(); err != nil {
		return err
	}
	pairs, failed := pair(plans, traces)
	drawn := make([]string, len(pairs))
	for i, p := range pairs {
		drawn[i] = p.plan
	}
	type form struct{ flag, folder, suffix string }
	pages, svgs, pngs := form{"-o", f.output, ".html"}, form{"--svg", f.svg, ".svg"}, form{"--png", f.png, ".png"}
	files := map[form][]string{}
	for _, to := range []form{pages, svgs, pngs} {
		if to.folder == "" && (to != pages || f.svg != "" || f.png != "") {
			files[to] = make([]string, len(pairs)) // none of this form
			continue
		}
		var err error
		if files[to], err = a.fileOfEach(drawn, to.flag, to.folder, to.suffix, "drawn"); err != nil {
			return err
		}
	}
	a.noteInputs(append(plans.paths, traces.paths...))
	all := report.ReportedAll{Plans: []report.Reported{}}
	s := several{app: a}
	s.lacks(failed)
	askEach(&s, "drawing", recordingsOf(pairs), func(a *app, i int) (*report.Reported, error) {
		of := f
		of.traces, of.svg, of.png = []string{pairs[i].trace}, files[svgs][i], files[pngs][i]
		return a.writeReport(pairs[i].plan, files[pages][i], of, oneDevice)
	}, func(one *report.Reported) {
		if one != nil {
			all.Plans = append(all.Plans, *one)
		}
	})
	all.Failed = reportFailed(s.failed)
	return s.printAnswer(&all, f.json, "plans")
}
