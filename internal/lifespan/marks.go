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

// fromOptimizer ends an iteration at the end of its last optimizer step. The recording
// tells which steps belong to one iteration: those with no forward and backward pass
// between them are chained, and the shortest pattern of names that repeats through all
// chains is one iteration. So chained optimizers (dense and expert parameters) make one
// iteration, and so do those of a generator and a discriminator. With gradient
// accumulation the optimizer steps only once an iteration.
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

// optimizerMarks pairs the starts and ends of optimizer steps, by end. A step inside
// another one (a wrapper's) is part of it. The step of an end without a start began
// before recording did. open has the starts whose ends the recording does not have.
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

// finish is the step that is still open when the recording ends, and whether it counts
// as whole: it does if it made the same number of allocations as the last step of that
// name. A recorder that stops in a hook after the step stops before the step's end is
// recorded.
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

// body is what ran between a mark and the end of the one before it.
type body struct {
	allocations int
	rise        trace.Bytes // its largest load less the load at its beginning
}

// bodies are the bodies before each of the marks.
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

// smallBody is the divisor that tells a forward and backward pass from the few
// allocations of, say, gradient clipping: what runs between two marks is no pass if it is
// at most 1/8 of a large one, in number of allocations and in the rise of the load.
const smallBody = 8

// chain joins marks that have no forward and backward pass between them. A body counts as
// one if it is more than 1/smallBody of a large body. The large one is the upper decile,
// not the largest, because a rare evaluation can be far larger than any training step.
// The first body is left out because it includes building the model.
func chain(marks []mark, bodies []body) []mark {
	var allocations, rises []float64
	for _, b := range bodies[1:] {
		allocations = append(allocations, float64(b.allocations))
		rises = append(rises, float64(b.rise))
	}
	few, low := upperDecile(allocations)/smallBody, upperDecile(rises)/smallBody
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

// upperDecile is the upper decile of values, 0 if there are none. It sorts them.
func upperDecile(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return stat.Quantile(0.9, stat.Empirical, values, nil)
}

// namePeriod is the length of the shortest pattern of names that repeats through all
// steps, at least twice. It is 1 if there is none.
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

// fromMarker begins an iteration at the start of each annotation with a name that marker
// matches, or at each of its ends if the name has no starts. What comes before the first
// belongs to the first iteration. The last one runs to the end of the recording, because
// nothing says where it ends.
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

// listedNames is the number of names that an error message lists at most, so that it
// stays readable.
const listedNames = 12

// namesOf lists the names of annotations in order of appearance, for error messages.
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
