package fit

import (
	"context"
	"fmt"
	"strings"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/trace"
)

// Advice is the best settings of PyTorch's allocator for a job, of those that were tried.
type Advice struct {
	// Conf is the value of PYTORCH_CUDA_ALLOC_CONF, "" for PyTorch's defaults.
	Conf string
	// Trial is what the job takes under them, and Recorded what it takes under the settings
	// of the recording.
	Trial, Recorded Answer
	Tried           int // number of settings that were simulated, those of the recording included
}

// choice is a point of the search: the values of settings, "" for the default.
type choice struct {
	expandable              bool
	split, divisions, limit string
}

// What is tried of each setting. The powers of two are those that people use; a finer
// step changes what is reserved by less than they differ.
var (
	// splits are in MiB. Blocks beyond are not split, so that large requests find whole
	// ones. Below the large segment of 20 MiB PyTorch refuses them.
	splits = []string{"32", "64", "128", "256", "512", "1024"}
	// divisions make sizes that differ little the same, so that blocks are used again. Few
	// divisions waste up to half of a block.
	divisions = []string{"2", "4", "8", "16", "32"}
	// thresholds are those of the garbage collector, as shares of what the process may take.
	thresholds = []string{"0.9", "0.8", "0.6"}
)

// rounds is how often the split sizes and the divisions are tried in turn: in the second
// round, split sizes with the divisions that were found for another one.
const rounds = 2

// MostAdvised is above the number of settings that Advise tries: those of the recording, the
// defaults, two rounds, expandable segments with and without divisions, and six with the
// garbage collector.
const MostAdvised = 40

// better is the share by which a setting has to take less than a simpler one to be
// preferred to it: less than that changes from run to run.
const better = 0.002

func (c choice) conf() string {
	var parts []string
	if c.expandable {
		parts = append(parts, "expandable_segments:True")
	}
	if c.split != "" {
		parts = append(parts, "max_split_size_mb:"+c.split)
	}
	if c.divisions != "" {
		parts = append(parts, "roundup_power2_divisions:"+c.divisions)
	}
	if c.limit != "" {
		parts = append(parts, c.limit)
	}
	return strings.Join(parts, ",")
}

// Advise looks for the settings under which a job takes least, and first of all fits into a
// budget, if there is one. It tries one setting after the other: every split size, then the
// divisions with the best of them, and both again; and expandable segments, with which
// split sizes do nothing. With a budget it tries the garbage collector too, if the job does
// not fit without: the collector needs a limit on the process.
func Advise(j *Job, b *Budget, progress func(done int)) (*Advice, error) {
	s := adviser{job: j, budget: b, progress: progress, done: map[choice]Answer{}}
	recorded, err := s.simulate("as recorded", j.Recorded)
	if err != nil {
		return nil, err
	}
	best, answer, err := s.search()
	if err != nil {
		return nil, err
	}
	if b != nil && !answer.Fits {
		if best, answer, err = s.collect(best, answer); err != nil {
			return nil, err
		}
	}
	return &Advice{Conf: best.conf(), Trial: answer, Recorded: recorded, Tried: len(s.done) + 1}, nil
}

type adviser struct {
	job      *Job
	budget   *Budget
	progress func(done int)
	done     map[choice]Answer
}

// simulate tries one configuration.
func (s *adviser) simulate(title string, c baseline.Config) (Answer, error) {
	usable, device := Unlimited, trace.Bytes(0)
	if s.budget != nil {
		usable, device = s.budget.Usable(), s.budget.Device
	}
	answer, err := Simulated(baseline.Caching("", title, c)).Try(context.Background(), s.job, usable, device)
	s.progress(len(s.done) + 1)
	return answer, err
}

// try tries settings in the place of those of the recording.
func (s *adviser) try(c choice) (Answer, error) {
	if answer, ok := s.done[c]; ok {
		return answer, nil
	}
	config := s.job.Recorded
	config.LargeSegmentSize = 0 // a new value of the variable replaces the whole old one
	if s.budget != nil {
		config.DeviceMemory = s.budget.Device // what a fraction is of
	}
	config, err := config.Apply("expandable_segments:False," + c.conf())
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", c.conf(), err)
	}
	answer, err := s.simulate(c.conf(), config)
	if err == nil {
		s.done[c] = answer
	}
	return answer, err
}

// search tries settings one after the other.
func (s *adviser) search() (choice, Answer, error) {
	var best choice
	answer, err := s.try(best)
	if err != nil {
		return best, answer, err
	}
	for range rounds {
		from := best
		for _, v := range splits {
			next := from
			next.split = v
			if err := s.improve(&best, &answer, next); err != nil {
				return best, answer, err
			}
		}
		from = best
		for _, v := range divisions {
			next := from
			next.divisions = v
			if err := s.improve(&best, &answer, next); err != nil {
				return best, answer, err
			}
		}
	}
	for _, v := range append([]string{""}, divisions...) {
		if err := s.improve(&best, &answer, choice{expandable: true, divisions: v}); err != nil {
			return best, answer, err
		}
	}
	return best, answer, nil
}

// collect tries the garbage collector with the best settings so far, and with none.
func (s *adviser) collect(best choice, answer Answer) (choice, Answer, error) {
	share := float64(s.budget.Usable()) / float64(s.budget.Device)
	for _, from := range []choice{{}, best} {
		if from.expandable {
			continue // whose segments the collector does not give back
		}
		for _, v := range thresholds {
			next := from
			next.limit = fmt.Sprintf("garbage_collection_threshold:%s,per_process_memory_fraction:%.3f", v, share-0.0005)
			if err := s.improve(&best, &answer, next); err != nil {
				return best, answer, err
			}
		}
	}
	return best, answer, nil
}

// improve takes settings in the place of the best ones if they are better.
func (s *adviser) improve(best *choice, answer *Answer, next choice) error {
	got, err := s.try(next)
	if err != nil {
		return err
	}
	if s.prefers(got, *answer) {
		*best, *answer = next, got
	}
	return nil
}

// prefers says whether an answer is better than that of simpler settings. What is taken
// without a limit counts also if there is one: the less that is, the less cached memory has
// to be given back on the way. Retries do not count all of that.
func (s *adviser) prefers(a, than Answer) bool {
	if a.Fits != than.Fits {
		return a.Fits
	}
	return float64(a.Reserved) < float64(than.Reserved)*(1-better)
}
