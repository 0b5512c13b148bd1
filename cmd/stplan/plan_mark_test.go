package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/runtime/cuda"
)

// markedCache is a cache with one plan, and the reports of a job.
type markedCache struct {
	t               *testing.T
	folder, reports string
	plan            string
	said            bytes.Buffer
}

// cachedName is the name of the plan.
const cachedName = "train-00.bin"

func newMarkedCache(t *testing.T) *markedCache {
	m := &markedCache{t: t, folder: t.TempDir(), reports: t.TempDir()}
	m.plan = filepath.Join(m.folder, cachedName)
	m.replace("first")
	return m
}

// slotBytes is what the plan's only slot has.
const slotBytes = 4096

// replace puts another plan in place, which differs by its producer only, and returns its checksum.
func (m *markedCache) replace(producer string) uint64 {
	return writeSmallPlan(m.t, m.plan, producer, planfile.AdviceNone)
}

// writeSmallPlan writes a plan of one slot, and returns its checksum.
func writeSmallPlan(t *testing.T, path, producer string, advice planfile.Advice) uint64 {
	t.Helper()
	data, err := planfile.Encode(&planfile.Plan{Producer: producer, Devices: []planfile.Device{{
		Advice: advice, Rank: -1, Mode: planfile.ModeRecorded, End: planfile.EndRequested, Events: 1, Alignment: 512, ArenaBytes: slotBytes,
		PeakAllocated: slotBytes, PeakActive: slotBytes, RecordedPeakReserved: slotBytes, Streams: []uint64{0},
		Slots: []planfile.Slot{{RequestedEnd: 1, CompletedEnd: 1, Size: slotBytes, Least: slotBytes, Requested: slotBytes,
			Occurrences: 1, Cell: planfile.NoCell, Flags: planfile.SlotResident}},
		Certificate: planfile.Certificate{Kind: planfile.BoundLoad, LowerBound: slotBytes},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return planfile.Checksum(data)
}

func (m *markedCache) learner() *learner {
	a := newApp(m.t)
	a.stderr = &m.said
	return a.newLearner(&planCache{m.folder}, runFlags{})
}

// followed is a device that has followed a plan: fitting is how many of 1,000 slots were on it.
func followed(plan uint64, fitting int) cuda.Counters {
	return cuda.Counters{State: cuda.Body, FollowedPlan: plan, FollowedBytes: 1000 * slotBytes, FittingBytes: uint64(fitting) * slotBytes}
}

// judge ends a job whose processes, of one device each, have counted this.
func (m *markedCache) judge(l *learner, all ...cuda.Counters) {
	m.t.Helper()
	var reports []runReport
	for i, c := range all {
		name, cached := fmt.Sprintf("train-pid%d", i), cachedName
		m.write(name+".device0", c)
		reports = append(reports, runReport{State: stateServing, Name: name, Cached: &cached})
	}
	l.judge(m.reports, reports)
}

// write leaves counters as a process does.
func (m *markedCache) write(name string, c cuda.Counters) {
	m.t.Helper()
	var data []byte
	for _, word := range words(c) {
		data = binary.NativeEndian.AppendUint64(data, word)
	}
	if err := os.WriteFile(filepath.Join(m.reports, name), data, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// words are the counters as they are in memory. ReadCounters says in which order.
func words(c cuda.Counters) []uint64 {
	all := make([]uint64, 64)
	all[0], all[1] = uint64(len(all)), uint64(c.State)
	for i := 2; i < len(all); i++ {
		probe := make([]byte, 8*len(all))
		binary.NativeEndian.PutUint64(probe, uint64(len(all)))
		binary.NativeEndian.PutUint64(probe[8*i:], 1)
		got, err := cuda.ReadCounters(probe)
		if err != nil {
			panic(err)
		}
		all[i] = got.FollowedPlan*c.FollowedPlan + got.FollowedBytes*c.FollowedBytes + got.FittingBytes*c.FittingBytes
	}
	return all
}

// demand demands the mark of a plan, or none if sum is 0.
func (m *markedCache) demand(what string, sum uint64) {
	m.t.Helper()
	got, err := os.ReadFile(markOf(m.plan))
	switch want := fmt.Sprintf(markForm, sum); {
	case sum == 0 && err == nil:
		m.t.Errorf("%s: there is a mark, %q", what, got)
	case sum != 0 && string(got) != want:
		m.t.Errorf("%s: the mark is %q (%v), expected %q", what, got, err, want)
	}
	if m.said.Len() > 0 {
		m.t.Errorf("%s: said %q", what, m.said.String())
	}
}

// TestAPlanIsMarkedOnceARunHasFollowedIt, and not any more once a run has left it.
func TestAPlanIsMarkedOnceARunHasFollowedIt(t *testing.T) {
	m := newMarkedCache(t)
	sum := m.replace("first")
	l := m.learner()
	m.judge(l, followed(sum, 989))
	m.demand("98.9 %", 0)
	m.judge(l, followed(sum, 990), followed(sum, 1000))
	m.demand("99 %", sum)
	m.judge(l, followed(sum, 900))
	m.demand("90 %, later", sum)
	m.judge(l, followed(sum, 1000), followed(sum, 899))
	m.demand("one process has left it", 0)
	m.judge(l, followed(sum, 1000), followed(sum, 950))
	m.demand("one process has 95 %", 0)
	m.judge(l, followed(0, 0), cuda.Counters{}, followed(sum, 1000))
	m.demand("other processes have no plan", sum)
	m.judge(l)
	m.demand("a job without processes", sum)
}

// TestAShortRunShowsNothing: it asked for fewer bytes than the plan has.
func TestAShortRunShowsNothing(t *testing.T) {
	m := newMarkedCache(t)
	sum := m.replace("first")
	l := m.learner()
	short := cuda.Counters{FollowedPlan: sum, FollowedBytes: slotBytes - 512, FittingBytes: slotBytes - 512}
	m.judge(l, short)
	m.demand("a short run", 0)
	m.judge(l, followed(sum, 1000))
	short.FittingBytes = 0
	m.judge(l, short)
	m.demand("a short run that left it", sum)
}

// TestAReplacedPlanIsNotProven: what was counted of another plan says nothing of the one that lies
// in the cache, for better or worse.
func TestAReplacedPlanIsNotProven(t *testing.T) {
	m := newMarkedCache(t)
	first := m.replace("first")
	l := m.learner()
	second := m.replace("second")
	if first == second {
		t.Fatal("the plans are equal")
	}
	m.judge(l, followed(first, 1000))
	m.demand("the plan was replaced in the run", 0)
	m.judge(l, followed(second, 1000))
	m.judge(l, followed(first, 0))
	m.demand("another job has left the plan of before", second)
	third := m.replace("third")
	m.demand("a mark of before", second) // of no use: the runtime compares
	m.judge(l, followed(third, 1000))
	m.demand("the plan that replaced it", third)
	// A plan that cannot be read has no mark, and one that is gone.
	for _, end := range []func() error{func() error { return os.WriteFile(m.plan, []byte("no plan"), 0o600) }, func() error { return os.Remove(m.plan) }} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		m.judge(l, followed(third, 0))
		m.demand("no plan", third)
	}
}

// TestABadMarkIsReplaced: whatever lies there. What a damaged file of counters says is not believed.
func TestABadMarkIsReplaced(t *testing.T) {
	m := newMarkedCache(t)
	sum := m.replace("first")
	l := m.learner()
	for _, bad := range []string{"", "stplan-proven 1", strings.Repeat("x", 1<<16)} {
		if err := os.WriteFile(markOf(m.plan), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		m.judge(l, followed(sum, 1000))
		m.demand("a bad mark", sum)
	}
	if err := os.WriteFile(filepath.Join(m.reports, "train-pid0.device1"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.judge(l, followed(sum, 1000))
	m.demand("damaged counters of another device", sum)
}

// TestWithoutLearningNothingIsMarked: --no-learn leaves the cache as it is.
func TestWithoutLearningNothingIsMarked(t *testing.T) {
	m := newMarkedCache(t)
	sum := m.replace("first")
	l := newApp(t).newLearner(&planCache{m.folder}, runFlags{noLearn: true})
	m.judge(l, followed(sum, 1000))
	m.demand("--no-learn", 0)
	m.judge(nil, followed(sum, 1000))
	m.demand("a plan was named", 0)
}

// TestJobsThatMarkAtOnce: launchers of several nodes write and take marks, and read whole ones. No
// file is left beside them.
func TestJobsThatMarkAtOnce(t *testing.T) {
	m := newMarkedCache(t)
	sum := m.replace("first")
	want := fmt.Sprintf(markForm, sum)
	var writers, readers sync.WaitGroup
	over := make(chan struct{})
	for i := range 4 {
		writers.Add(1)
		go func() {
			defer writers.Done()
			a := newApp(t)
			for k := range 50 {
				fitting := 1000
				if i == 0 && k%2 == 0 {
					fitting = 0
				}
				if err := a.markPlan(m.plan, []cuda.Counters{followed(sum, fitting)}); err != nil {
					t.Errorf("launcher %d: %v", i, err)
				}
			}
		}()
	}
	readers.Add(1)
	go func() {
		defer readers.Done()
		for {
			select {
			case <-over:
				return
			default:
			}
			if got, err := os.ReadFile(markOf(m.plan)); err == nil && string(got) != want {
				t.Errorf("a mark is %q", got)
			}
		}
	}()
	writers.Wait()
	close(over)
	readers.Wait()
	entries, err := os.ReadDir(m.folder)
	if err != nil || len(entries) > 2 {
		t.Errorf("%d files are left (%v), expected the plan and its mark at most", len(entries), err)
	}
}

// TestMarksAndCallsGoWithTheirPlans: when the cache is full, and if the plan is gone already.
func TestMarksAndCallsGoWithTheirPlans(t *testing.T) {
	m := newMarkedCache(t)
	for _, beside := range []string{markOf(m.plan), callOf(m.plan), filepath.Join(m.folder, "gone-00.proven"), filepath.Join(m.folder, "gone-00.call")} {
		if err := os.WriteFile(beside, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := &planCache{m.folder}
	if err := c.prune(); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(m.folder); len(entries) != 3 {
		t.Errorf("%d files are left, expected the plan, its mark and its call", len(entries))
	}
	for i := range mostCached {
		path := filepath.Join(m.folder, fmt.Sprintf("z-%04d.bin", i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{m.plan, markOf(m.plan)} { // the plan is the oldest
		if err := os.Chtimes(path, longAgo, longAgo); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.prune(); err != nil {
		t.Fatal(err)
	}
	m.demand("its plan went", 0)
	if _, err := os.Stat(callOf(m.plan)); err == nil {
		t.Error("the call of a plan that went is left")
	}
}

var longAgo = time.Unix(1e9, 0)
