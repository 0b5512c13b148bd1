package lifespan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/stplan/stplan/internal/trace"
)

// optimizerPrefix begins the names of the ranges that torch.optim records
// around every optimizer's step, for example "Optimizer.step#AdamW.step".
const optimizerPrefix = "Optimizer.step#"

// mark is an optimizer's step: it runs in [start, end).
type mark struct {
	name       string
	start, end trace.Time
}

// fromOptimizer ends an iteration at the end of its last optimizer step. Which
// steps belong to one iteration is read off the recording: those with no
// forward and backward pass between them, and then the shortest pattern of
// names that repeats. So chained optimizers (dense and expert parameters) make
// one iteration, and so do a generator's and a discriminator's; a step of
// gradient accumulation has one mark anyhow.
func fromOptimizer(d *trace.Device, tl *Timeline) Iterations {
	marks, open := optimizerMarks(d.Annotations)
	if len(marks) == 0 {
		return Iterations{}
	}
	var names []string
	for _, m := range marks {
		if !slices.Contains(names, m.name) {
			names = append(names, m.name)
		}
	}
	steps := chain(marks, bodies(marks, tl))
	if last, ok := finish(open, marks, tl); ok {
		marks = append(marks, last)
		steps = chain(marks, bodies(marks, tl))
	}
	k := len(steps) - 1
	if n := namePeriod(steps[:k]); k >= n && strings.HasPrefix(steps[k-n].name, steps[k].name+chained) {
		steps = steps[:k] // the recording ends before the last optimizer of a step
	}
	n := namePeriod(steps)
	var cuts []trace.Time
	for i := n - 1; i < len(steps); i += n {
		cuts = append(cuts, steps[i].end)
	}
	return newIterations(cuts, "annotation "+strings.Join(names, chained))
}

// optimizerMarks pairs the starts and ends of optimizer steps, by end. A step
// inside another (a wrapper's) is part of it; an end without a start began before
// recording did. What is still open is a step that the recording does not see end.
func optimizerMarks(annotations []trace.Annotation) (marks []mark, open []trace.Annotation) {
	for _, a := range annotations {
		if !strings.HasPrefix(a.Name, optimizerPrefix) {
			continue
		}
		if !a.End {
			open = append(open, a)
			continue
		}
		m := mark{name: a.Name, start: a.At, end: a.At}
		if i := lastNamed(open, a.Name); i >= 0 {
			m.start = open[i].At
			open = open[:i]
		}
		if len(open) == 0 {
			marks = append(marks, m)
		}
	}
	return marks, open
}

// finish is the step that is still open, if the recording, which ends before it
// does, has all of its allocations: as many as the last one of that name made. A
// recorder that stops in a hook behind a step stops inside it.
func finish(open []trace.Annotation, marks []mark, tl *Timeline) (m mark, ok bool) {
	if len(open) == 0 {
		return m, false
	}
	made := func(m mark) int { return tl.bufferAt(m.end) - tl.bufferAt(m.start) }
	m = mark{name: open[0].Name, start: open[0].At, end: tl.Events}
	for _, before := range slices.Backward(marks) {
		if before.name == m.name {
			return m, made(m) == made(before)
		}
	}
	return m, false
}

func lastNamed(open []trace.Annotation, name string) int {
	for i := len(open) - 1; i >= 0; i-- {
		if open[i].Name == name {
			return i
		}
	}
	return -1
}

// body is what ran before a mark, back to the end of the one before.
type body struct {
	allocations int
	rise        trace.Bytes // from the load at its beginning to its largest
}

func bodies(marks []mark, tl *Timeline) []body {
	load := tl.Load(EndRequested)
	out := make([]body, len(marks))
	var from trace.Time
	for i, m := range marks {
		out[i].allocations = tl.bufferAt(m.start) - tl.bufferAt(from)
		for t := from; t < m.start; t++ {
			out[i].rise = max(out[i].rise, load[t]-load[from])
		}
		from = m.end
	}
	return out
}

// chain joins marks with no body between them. The few allocations of, say,
// gradient clipping are told from a body by comparison with a large one: they
// are at most an eighth of it, in number and in the rise of the load. The
// large one is the upper decile, and not the largest, because a rare
// evaluation can be far larger than any training step. The first body is left
// out: it has the building of the model.
func chain(marks []mark, bodies []body) []mark {
	var allocations, rises []float64
	for _, b := range bodies[1:] {
		allocations = append(allocations, float64(b.allocations))
		rises = append(rises, float64(b.rise))
	}
	few, low := upperDecile(allocations)/8, upperDecile(rises)/8
	steps := []mark{marks[0]}
	for i := 1; i < len(marks); i++ {
		if float64(bodies[i].allocations) > few || float64(bodies[i].rise) > low {
			steps = append(steps, marks[i])
			continue
		}
		last := &steps[len(steps)-1]
		*last = mark{name: last.name + chained + marks[i].name, start: last.start, end: marks[i].end}
	}
	return steps
}

// chained joins the names of optimizers that step together.
const chained = " + "

// upperDecile sorts values and is 0 where there are none.
func upperDecile(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return stat.Quantile(0.9, stat.Empirical, values, nil)
}

// namePeriod is the length of the shortest pattern of names that repeats
// through all steps, twice at least; 1 where there is none.
func namePeriod(steps []mark) int {
	for n := 1; 2*n <= len(steps); n++ {
		repeats := true
		for i := n; i < len(steps) && repeats; i++ {
			repeats = steps[i].name == steps[i-n].name
		}
		if repeats {
			return n
		}
	}
	return 1
}

// fromMarker begins an iteration at each annotation that marker matches: at
// its start, or, where a name has no starts, wherever it occurs. What comes
// before the first belongs to the first iteration, and the last runs to the
// end of the recording, since nothing says where it ends.
func fromMarker(d *trace.Device, events trace.Time, marker *regexp.Regexp) (Iterations, error) {
	hasStart := map[string]bool{}
	for _, a := range d.Annotations {
		hasStart[a.Name] = hasStart[a.Name] || !a.End
	}
	var begins []trace.Time
	for _, a := range d.Annotations {
		if a.End != hasStart[a.Name] && marker.MatchString(a.Name) {
			begins = append(begins, a.At)
		}
	}
	if len(begins) == 0 {
		return Iterations{}, fmt.Errorf("iteration marker %q matches no annotation; %s", marker, namesOf(d.Annotations))
	}
	return newIterations(append(slices.Compact(begins)[1:], events), fmt.Sprintf("marker %s", marker)), nil
}

// listedNames bounds how many names an error message lists.
const listedNames = 12

// namesOf says which names there are, in order of appearance.
func namesOf(annotations []trace.Annotation) string {
	var names []string
	seen := map[string]bool{}
	for _, a := range annotations {
		if !seen[a.Name] {
			seen[a.Name] = true
			names = append(names, fmt.Sprintf("%q", a.Name))
		}
	}
	switch {
	case len(names) == 0:
		return "the recording has none"
	case len(names) > listedNames:
		return fmt.Sprintf("the recording has %s and %d more", strings.Join(names[:listedNames], ", "), len(names)-listedNames)
	}
	return "the recording has " + strings.Join(names, ", ")
}
