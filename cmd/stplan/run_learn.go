package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// learnSteps is the number of optimizer steps that a plan is made of, as record's default:
// what differs in the first one, and enough later ones to compare.
const learnSteps = 4

// lookEvery is how often the launcher looks for histories while the job runs. They come
// a few times in a job, and a folder is read in microseconds.
const lookEvery = 500 * time.Millisecond

// learner makes plans of the histories that processes of a job leave in the folder of
// reports, in processes beside the job.
//
// A plan is ready when `ready` is called, while the job runs or afterwards. It is kept for the
// next run, and the process whose history it was made of is told of it: if that still runs, it
// puts the plan in place. Each process leaves the files NAME.N.history for N from 1 on: the
// Nth one when its run goes beyond the plan of the one before, and NAME.N.last.history when it ends. The answer is NAME.N.plan, which
// holds the path of the plan, or nothing if there is none.
type learner struct {
	app     *app
	cache   *planCache
	reports string
	limit   time.Duration // after the job's end
	learns  bool

	stop  context.CancelFunc
	ended chan struct{} // closed when the job has ended
	idle  sync.WaitGroup
	// compile is compileBeside.
	compile func(context.Context, compileJob) (summary []byte, err error)

	mu     sync.Mutex             // of what follows, if several plans are made at once
	seen   map[string]bool        // histories, by file name
	done   map[string]bool        // those that a plan was made of, or cannot be
	of     map[[32]byte]string    // the plan of a program
	ofRun  map[string]bool        // plans of whole runs whose iterations have none that pays, by path
	fresh  []string               // names of processes with plans that nobody was told of
	plans  map[string]string      // by the name of the process
	failed map[string]string      // likewise: why there is none
	ranOut map[string]*ranOut     // likewise: those that ran out of memory, and nobody was told of
	before map[string][]planFacts // of plans that were replaced, by path
	told   bool                   // that a plan of an earlier run is served
}

func (a *app) newLearner(cache *planCache, f runFlags) *learner {
	return &learner{
		app: a, cache: cache, limit: f.learnLimit, learns: !f.noLearn, compile: compileBeside,
		ended: make(chan struct{}), seen: map[string]bool{}, done: map[string]bool{}, of: map[[32]byte]string{}, ofRun: map[string]bool{},
		plans: map[string]string{}, failed: map[string]string{}, ranOut: map[string]*ranOut{}, before: map[string][]planFacts{},
	}
}

// steps is the number of optimizer steps after which processes write their histories; 0 if
// nothing is learned.
func (l *learner) steps() int {
	if l.learns {
		return learnSteps
	}
	return 0
}

// begin looks for histories from now on, until the job has ended or ctx is done. A run
// that has a plan, or wants none, has a nil learner.
func (l *learner) begin(ctx context.Context, reports string) {
	if l == nil {
		return
	}
	l.reports = reports
	ctx, l.stop = context.WithCancel(ctx)
	l.idle.Add(1)
	go func() {
		defer l.idle.Done()
		l.watch(ctx)
	}()
}

func (l *learner) watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for over := false; !over && ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-l.ended:
			over = true
		case <-tick.C:
		}
		l.tellFound()
		l.learnAll(ctx, l.histories())
		l.tellLearned()
		l.tellRanOut()
	}
}

// tellFound says once that a process of the job is served by a plan of an earlier run.
func (l *learner) tellFound() {
	if l.told {
		return
	}
	files, _ := filepath.Glob(filepath.Join(l.reports, "*.json"))
	for _, file := range files {
		if r, err := readRunReport(file); err == nil && r.State == stateServing && r.Plan != nil {
			l.told = true
			run := "an earlier run"
			if r.Similar {
				run = "a similar run"
			}
			l.app.note("a plan of %s serves this one: %s", run, *r.Plan)
			return
		}
	}
}

func readRunReport(file string) (r runReport, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(data, &r)
}

// histories are the files that are new, in the order of their ranks.
func (l *learner) histories() []string {
	files, _ := filepath.Glob(filepath.Join(l.reports, "*.history"))
	files = slices.DeleteFunc(files, func(file string) bool { return l.seen[file] })
	slices.SortFunc(files, byRankThenName)
	return files
}

// equal are histories of one program, by file. Of these one plan is made.
type equal struct {
	program [32]byte
	err     error // it cannot be read
	files   []string
}

func equalHistories(files []string) (all []*equal) {
	of := map[[32]byte]*equal{}
	for _, file := range files {
		program, err := programOf(file)
		e := of[program]
		if err != nil || e == nil {
			e = &equal{program: program, err: err}
			all = append(all, e)
		}
		if err == nil {
			of[program] = e
		}
		e.files = append(e.files, file)
	}
	return all
}

// learnAll makes plans of histories: one after the other while the job runs, whose processors they would take. Behind it as many are made at
// once as there are processors, and as fit into half of the memory that is free, since what is waited for has a limit.
func (l *learner) learnAll(ctx context.Context, files []string) {
	all := equalHistories(files)
	for len(all) > 0 && !l.hasEnded() {
		l.learnEach(ctx, all[0], 1)
		all = all[1:]
	}
	memory, atOnce := newMemoryShare(), min(len(all), runtime.GOMAXPROCS(0))
	next := make(chan *equal, len(all))
	for _, e := range all {
		next <- e
	}
	close(next)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for e := range next {
				release := memory.acquire(historyMemory(e.files[0]))
				l.learnEach(ctx, e, atOnce)
				release()
			}
		}()
	}
	wg.Wait()
}

// learnEach learns of equal histories, of which the first has the plan made.
func (l *learner) learnEach(ctx context.Context, e *equal, atOnce int) {
	for _, file := range e.files {
		if ctx.Err() == nil {
			l.learn(ctx, file, e, atOnce)
		}
	}
}

// learn makes a plan of a history, or takes that of an equal one. atOnce is how many plans may be made at the same time.
func (l *learner) learn(ctx context.Context, file string, e *equal, atOnce int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[file] = true
	if l.superseded(file) {
		l.done[file] = true
		os.Remove(file)
		return
	}
	h := historyOf(file)
	name := filepath.Base(h.of)
	plan, made, err := l.planOf(ctx, file, h.of+".json", e, atOnce)
	switch {
	case err == nil && !made:
		plan = "" // it has that already
	case err == nil:
		l.ready(name, plan)
	case ctx.Err() == nil:
		l.failed[name] = err.Error()
	}
	if err == nil || ctx.Err() == nil {
		l.done[file] = true
	}
	os.Remove(file)
	answer(fmt.Sprintf("%s.%d.plan", h.of, h.number), plan, err)
}

// history is what the name of its file says.
type history struct {
	of     string // the path of its process's files, without what is behind the name
	number int
	last   bool // the process has ended
}

func historyOf(file string) history {
	numbered, last := strings.CutSuffix(strings.TrimSuffix(file, ".history"), ".last")
	number, _ := strconv.Atoi(strings.TrimPrefix(filepath.Ext(numbered), "."))
	return history{strings.TrimSuffix(numbered, filepath.Ext(numbered)), number, last}
}

// superseded says whether the process of a history has ended, and left one that has all that this one has.
func (l *learner) superseded(file string) bool {
	h := historyOf(file)
	files, _ := filepath.Glob(filepath.Join(l.reports, "*.history"))
	return slices.ContainsFunc(files, func(file string) bool {
		other := historyOf(file)
		return other.of == h.of && other.last && other.number > h.number
	})
}

func (l *learner) hasEnded() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// ready is called when the plan of a process lies in the cache. That it replaces one of this run
// need not be told again.
func (l *learner) ready(name, plan string) {
	if l.plans[name] == "" {
		l.fresh = append(l.fresh, name)
	}
	l.plans[name] = plan
	delete(l.failed, name)
}

// answer tells a process of the plan that was made of its history, or that there is none. If
// that cannot be written the process goes on as it is.
func answer(file, plan string, failed error) {
	if failed != nil {
		plan = ""
	}
	if os.WriteFile(file+".tmp", []byte(plan), 0o666) == nil {
		_ = os.Rename(file+".tmp", file)
	}
}

// planOf makes the plan of a history, unless the one in the cache is of more. l.mu is held, but while it compiles.
func (l *learner) planOf(ctx context.Context, history, reported string, e *equal, atOnce int) (plan string, made bool, err error) {
	r, err := readRunReport(reported)
	if err != nil {
		return "", false, err
	}
	if r.Cached == nil {
		return "", false, errors.New("its report names no plan")
	}
	if plan, err = l.cache.path(*r.Cached); err != nil {
		return "", false, err
	}
	if e.err != nil {
		return "", false, e.err
	}
	before, err := l.app.readPlan(plan)
	if err != nil {
		before = nil // there is none, or none that can be read
	}
	if knowsMore(before, history) {
		return plan, false, nil
	}
	if _, replaced := l.before[plan]; before != nil && !replaced {
		l.before[plan] = factsOf(before)
	}
	if made, ok := l.of[e.program]; ok && made != plan {
		if err := l.app.copyPlan(made, plan); err != nil {
			return "", false, err
		}
		l.ofRun[plan] = l.ofRun[made]
		l.offer(plan, r.Call)
		return plan, true, nil
	}
	last := historyOf(history).last
	candidate := strings.TrimSuffix(history, ".history") + ".bin"
	defer os.Remove(candidate)
	job := compileJob{history: history, plan: candidate, last: last, limit: l.searchLimit(), environment: l.processors(last, atOnce)}
	compiling, cancel := context.WithCancel(ctx)
	defer cancel()
	if before != nil {
		job.against = plan
		go l.giveUp(compiling, cancel, history)
	}
	l.mu.Unlock()
	summary, err := l.compile(compiling, job)
	l.mu.Lock()
	if err != nil && ctx.Err() == nil && compiling.Err() != nil {
		return plan, false, nil // of the later history there will be one
	}
	if err != nil {
		return "", false, err
	}
	devices := compiledDevices(summary)
	if out := ranOutOf(devices); out != nil {
		l.ranOut[r.Name] = out
	}
	if _, err := os.Stat(candidate); errors.Is(err, fs.ErrNotExist) {
		return plan, false, nil // the plan that was there before serves this run better
	}
	if err := l.app.copyPlan(candidate, plan); err != nil {
		return "", false, err
	}
	l.of[e.program] = plan
	l.ofRun[plan] = slices.ContainsFunc(devices, func(d report.CompiledDevice) bool { return d.OfRun })
	l.offer(plan, r.Call)
	return plan, true, l.cache.prune()
}

// giveUp ends what compiles a history once that is superseded. The last one would wait for it, and what is waited for has a limit.
func (l *learner) giveUp(compiling context.Context, cancel context.CancelFunc, file string) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !l.superseded(file) {
		select {
		case <-compiling.Done():
			return
		case <-tick.C:
		}
	}
	cancel()
}

// offer has a plan serve similar runs too, but for one that serves only a run that does the same. Without that it is still the plan of
// its own run.
func (l *learner) offer(plan string, call []string) {
	if l.ofRun[plan] {
		call = nil
	}
	if err := l.app.offerPlan(plan, call); err != nil {
		l.app.note("%s: it serves no similar run: %v", plan, err)
	}
}

func programOf(history string) (sum [32]byte, err error) {
	f, err := os.Open(history)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	return trace.HistoryProgram(f, filepath.Base(history))
}

// processors is the environment of a compile that runs beside the job: one processor. With sixteen it takes no
// less time and twice the work, since it is mostly of one thread and a garbage collector that uses all there
// are, whose hyper-threads and caches are the job's (docs/results/learned.md). Behind the job, or its last one of a process that has ended, it may have all
// of them, or its part if several are made at once. A user who has said how many always has them.
func (l *learner) processors(last bool, atOnce int) []string {
	const variable = "GOMAXPROCS"
	switch {
	case os.Getenv(variable) != "", (last || l.hasEnded()) && atOnce == 1:
		return nil
	case l.hasEnded():
		return []string{fmt.Sprintf("%s=%d", variable, max(1, runtime.GOMAXPROCS(0)/atOnce))}
	}
	return []string{variable + "=1"}
}

// searchLimit is the time for a plan, so that there is one when learnLimit is over: on a machine whose processors others use
// a compile that takes ten seconds alone did not end in 90. What is not searched for then is a plan that is
// smaller by a little. No limit if nobody waits.
func (l *learner) searchLimit() time.Duration { return l.limit / 4 * 3 }

// compileJob is what compileBeside does.
type compileJob struct {
	history, plan string
	against       string        // the plan that was there before: if that serves the history clearly better, none is written. "" if there was none
	last          bool          // the history is of a process that has ended
	limit         time.Duration // no limit if it is 0
	environment   []string      // added to its own
}

// compileBeside runs "stplan compile" in a process of its own, at the lowest priority, which writes the plan whole or not at all, and returns
// what it says as JSON.
func compileBeside(ctx context.Context, job compileJob) (summary []byte, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"compile", "--quiet", "--json", job.history, "-o", job.plan}
	if job.against != "" {
		args = append(args, "--against", job.against)
	}
	if job.last {
		args = append(args, "--whole-run")
	}
	if job.limit > 0 {
		args = append(args, "--time-limit", job.limit.String())
	}
	cmd := exec.CommandContext(ctx, self, args...)
	var said, out bytes.Buffer
	cmd.Stderr, cmd.Stdout = &said, &out
	cmd.Env = append(os.Environ(), job.environment...)
	cmd.Cancel = func() error { return cmd.Process.Signal(stopSignal) }
	cmd.WaitDelay = 5 * time.Second
	apart(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	yieldProcessor(cmd.Process.Pid)
	if err := cmd.Wait(); err != nil {
		if text, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(said.String()), "stplan: "), "\n"); text != "" {
			return nil, errors.New(text)
		}
		return nil, fmt.Errorf("compile: %w", err)
	}
	return out.Bytes(), nil
}

// unfinished says whether a history was left that is no plan.
func (l *learner) unfinished() bool {
	return len(l.histories()) > 0 || len(l.seen) > len(l.done)
}

// facts are those of a plan in the cache as it was before it was replaced; nil if there is
// none that can be read.
func (l *learner) facts(plan string) []planFacts {
	if facts, ok := l.before[plan]; ok {
		return facts
	}
	p, err := l.app.readPlan(plan)
	if err != nil {
		return nil
	}
	return factsOf(p)
}

// tellLearned says whose plans have come to the cache since it was said last.
func (l *learner) tellLearned() {
	if len(l.fresh) > 0 {
		slices.Sort(l.fresh)
		l.app.note("learned a plan for the next run of %s: %s", report.Names(slices.Compact(l.fresh)), l.cache.folder)
	}
	l.fresh = nil
}

// finish waits until every history is a plan, for as long as the limit says, after the
// job has ended. An interruption ends it at once.
func (l *learner) finish() {
	if l == nil {
		return
	}
	close(l.ended)
	done := make(chan struct{})
	go func() { l.idle.Wait(); close(done) }()
	limit := time.NewTimer(l.limit)
	defer limit.Stop()
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	for {
		select {
		case <-done:
			l.stop()
			return
		case <-patience.C:
			l.app.note("the job has ended; its plan is being made for the next run (at most %v, --learn-limit; Ctrl-C leaves it out)", l.limit)
		case <-limit.C:
			l.stop()
			<-done
			if !l.unfinished() {
				return
			}
			l.app.note("no plan was made in %v (--learn-limit); the next run learns again", l.limit)
			return
		}
	}
}

// tell adds what a summary needs of the plan that was found for a process, and says why
// none was learned from it if that failed.
func (l *learner) tell(r *runReport, plans *jobPlans, said *remarks) {
	if l == nil {
		return
	}
	if r.Plan != nil {
		if facts := l.facts(*r.Plan); facts != nil {
			plans.facts[*r.Plan] = facts
		}
	}
	if why, ok := l.failed[r.Name]; ok {
		said.note(r.Name, "no plan was learned: "+why)
	}
}

// learned is the plan that was learned from a process, or nil.
func (l *learner) learned(name string) *string {
	if l == nil {
		return nil
	}
	if plan, ok := l.plans[name]; ok {
		return &plan
	}
	return nil
}
