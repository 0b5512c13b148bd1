package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/runtime/cuda"
)

// historyRoom is what the runtime of a job may keep of each device, in bytes.
const historyRoom = 16 << 20

// openKeeping opens a simulated device that keeps a history, until the test ends.
func openKeeping(t testing.TB) *cuda.Device {
	t.Helper()
	return openLimited(t, nil, 0)
}

// openLimited is the same, served by an encoded plan if there is one, and with a limit for what it reserves, if that
// is not 0.
func openLimited(t testing.TB, plan []byte, limit uint64) *cuda.Device {
	t.Helper()
	if !cuda.Built {
		t.Skip("built without cgo: no runtime")
	}
	device, err := cuda.Open(plan, 0, cuda.Options{Capacity: 1 << 50, Granularity: 2 << 20, Partial: true, Silent: true, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(device.Close)
	if err := device.KeepHistory(historyRoom); err != nil {
		t.Fatal(err)
	}
	return device
}

// keepHistory drives the runtime with a recording, as the job that was recorded would
// have, and returns the path of the history that it keeps.
func keepHistory(t testing.TB, d *trace.Device) string {
	t.Helper()
	device := openKeeping(t)
	driveRecording(t, device, d)
	path := filepath.Join(t.TempDir(), "kept.history")
	if err := device.WriteHistory(path, d.Ordinal); err != nil {
		t.Fatal(err)
	}
	return path
}

// ranOutWithin is the memory in which TestAHistoryThatRanOutOfMemory and the scripts run an example, in bytes. Its plan
// needs 0.01 % more than it allocates, 20.446 GiB, and the pool 0.65 %.
const ranOutWithin = 10490 * 2 << 20

// failedHistory is the path of a history of an example that ran out of memory, and the example; "" in a build without
// the runtime.
func failedHistory(t *testing.T) (path string, d *trace.Device) {
	t.Helper()
	if !cuda.Built {
		return "", nil
	}
	snapshot, err := trace.ReadFile("../../examples/gpt2-xl-ckpt/gpt2-xl-ckpt.pickle.gz", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d = &snapshot.Devices[0]
	device := openLimited(t, nil, ranOutWithin)
	if err := drive(t, device, d); !errors.Is(err, cuda.ErrNoMemory) {
		t.Fatalf("found %v, expected that memory runs out", err)
	}
	path = filepath.Join(t.TempDir(), "failed.history")
	if err := device.WriteHistory(path, d.Ordinal); err != nil {
		t.Fatal(err)
	}
	return path, d
}

// exampleHistory is the path of a history of an example; "" in a build without the runtime.
func exampleHistory(t *testing.T) string {
	t.Helper()
	if !cuda.Built {
		return ""
	}
	snapshot, err := trace.ReadFile("../../examples/evaluation/evaluation.pickle.gz", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return keepHistory(t, &snapshot.Devices[0])
}

// driveRecording makes the requests of a recording, and says where the steps of its
// optimizers end.
func driveRecording(t testing.TB, device *cuda.Device, d *trace.Device) {
	t.Helper()
	if err := drive(t, device, d); err != nil {
		t.Fatal(err)
	}
}

// drive is the same, up to the first request that is not served.
func drive(t testing.TB, device *cuda.Device, d *trace.Device) error {
	t.Helper()
	at := map[uint64]uint64{} // by recorded address
	var optimizers []string
	left := d.Annotations
	for i := range d.Events {
		for ; len(left) > 0 && left[0].At <= trace.Time(i); left = left[1:] {
			if a := left[0]; a.End && strings.HasPrefix(a.Name, "Optimizer.step#") {
				if !slices.Contains(optimizers, a.Name) {
					optimizers = append(optimizers, a.Name)
				}
				device.Step(slices.Index(optimizers, a.Name))
			}
		}
		switch e := &d.Events[i]; e.Action {
		case trace.ActionAlloc:
			address, _, err := device.Malloc(uint64(max(1, e.Size)), e.Stream)
			if err != nil {
				return err
			}
			at[e.Addr] = address
		case trace.ActionFreeRequested:
			if err := device.Free(at[e.Addr], e.Stream); err != nil {
				t.Fatalf("entry %d: %v", i, err)
			}
		}
	}
	return nil
}

// TestAHistoryThatRanOutOfMemory: it ends in the request that failed, and by the plan of it the whole program
// runs with the same memory. A plan of more of the program is not replaced by one of it.
func TestAHistoryThatRanOutOfMemory(t *testing.T) {
	path, d := failedHistory(t)
	if path == "" {
		t.Skip("built without cgo: no runtime")
	}
	history, err := trace.ReadFile(path, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kept := &history.Devices[0]
	failure := compile.FailureOf(kept)
	if failure == nil || !failure.Fatal || failure.DriverFree != 0 || failure.Had != ranOutWithin {
		t.Fatalf("found %+v", failure)
	}
	asked, all := requests(kept), requests(d)
	if failed := all[len(asked)]; !slices.Equal(asked, all[:len(asked)]) || int64(failed.size) != failure.Requested || failed.stream != failure.Stream {
		t.Errorf("%d requests, then %+v; expected the first ones of %d, then %+v", len(asked), failure, len(all), failed)
	}
	plans := map[string]string{}
	for name, rec := range map[string]string{"failed": path, "whole": keepHistory(t, d)} {
		plans[name] = filepath.Join(t.TempDir(), name+".bin")
		runOK(t, "compile", "-q", rec, "-o", plans[name])
	}
	data, err := os.ReadFile(plans["failed"])
	if err != nil {
		t.Fatal(err)
	}
	if err := drive(t, openLimited(t, data, ranOutWithin), d); err != nil {
		t.Errorf("by its plan: %v", err)
	}
	for name, more := range map[string]bool{"whole": true, "failed": false} {
		p, err := (&app{}).readPlan(plans[name])
		if err != nil {
			t.Fatal(err)
		}
		if got := knowsMore(p, path); got != more {
			t.Errorf("the plan of the %s program knows more: %v, expected %v", name, got, more)
		}
	}
	if knowsMore(nil, path) {
		t.Error("no plan knows more")
	}
}

// request is one request of a program: an allocation, or the free of one.
type request struct {
	size   trace.Bytes // 0 for a free
	stream uint64
	frees  int // the number of the allocation
}

// requests are those of a recording, whatever its addresses are.
func requests(d *trace.Device) []request {
	var all []request
	number, allocations := map[uint64]int{}, 0
	for i := range d.Events {
		switch e := &d.Events[i]; e.Action {
		case trace.ActionAlloc:
			all = append(all, request{size: max(1, e.Size), stream: e.Stream})
			number[e.Addr] = allocations
			allocations++
		case trace.ActionFreeRequested:
			all = append(all, request{frees: number[e.Addr]})
		}
	}
	return all
}

// TestAHistorySaysWhatASnapshotSays: the same program, recorded as a snapshot and kept by
// the runtime, makes the same requests in both, and plans of the same size.
func TestAHistorySaysWhatASnapshotSays(t *testing.T) {
	for _, example := range exampleRecordings(t) {
		t.Run(filepath.Base(example), func(t *testing.T) {
			t.Parallel()
			snapshot, err := trace.ReadFile(example, trace.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(snapshot.Devices) != 1 || len(snapshot.Devices[0].Initial) > 0 {
				t.Fatal("expected a recording of one device from the first allocation on")
			}
			history, err := trace.ReadFile(keepHistory(t, &snapshot.Devices[0]), trace.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(requests(&snapshot.Devices[0]), requests(&history.Devices[0])) {
				t.Fatal("the history has other requests than the snapshot")
			}
			// A history has no requests that failed, and so no out-of-memory to plan for.
			if testing.Short() || compile.FailureOf(&snapshot.Devices[0]) != nil {
				return
			}
			of, kept := compiled(t, snapshot), compiled(t, history)
			if of.ArenaBytes != kept.ArenaBytes || of.Mode != kept.Mode || len(of.Slots) != len(kept.Slots) || len(of.Phases) != len(kept.Phases) {
				t.Errorf("the snapshot's plan: %d B, %s, %d slots, %d phases; the history's: %d B, %s, %d slots, %d phases",
					of.ArenaBytes, of.Mode, len(of.Slots), len(of.Phases), kept.ArenaBytes, kept.Mode, len(kept.Slots), len(kept.Phases))
			}
		})
	}
}

// TestAHistoryOfManyThreads: whatever the order of their requests was, the history is one
// that a reader accepts, with every request.
func TestAHistoryOfManyThreads(t *testing.T) {
	const threads, rounds, depth = 8, 200, 10
	device := openKeeping(t)
	var all sync.WaitGroup
	for thread := range uint64(threads) {
		all.Add(1)
		go func() {
			defer all.Done()
			for range rounds {
				var live [depth]uint64
				for i := range live {
					live[i], _, _ = device.Malloc(uint64(i+1)*300, thread)
				}
				device.AwaitExchange(device.BeginExchange(), thread)
				for _, address := range live {
					if device.RecordStream(address, (thread+1)%threads) != nil || device.Free(address, thread) != nil {
						t.Error("a live block was refused")
					}
				}
				device.Step(int(thread))
			}
		}()
	}
	all.Wait()
	path := filepath.Join(t.TempDir(), "kept.history")
	if err := device.WriteHistory(path, 5); err != nil {
		t.Fatal(err)
	}
	read, err := trace.ReadFile(path, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &read.Devices[0]
	if n := threads * rounds * depth; d.Ordinal != 5 || len(d.Events) != 3*n || len(d.Annotations) != 3*threads*rounds || len(d.Exchanges()) != threads*rounds {
		t.Errorf("device %d: %d events, %d annotations and %d exchanges, expected %d, %d and %d", d.Ordinal, len(d.Events), len(d.Annotations), len(d.Exchanges()), 3*n, 3*threads*rounds, threads*rounds)
	}
}

// TestAHistoryTellsOfExchanges: when they begin and are awaited, and that memory which another stream
// has used is held until then.
func TestAHistoryTellsOfExchanges(t *testing.T) {
	device := openKeeping(t)
	alloc := func() uint64 {
		address, _, err := device.Malloc(1<<20, 0)
		if err != nil {
			t.Fatal(err)
		}
		return address
	}
	free := func(address uint64, used bool) {
		if used && device.RecordStream(address, 7) != nil || device.Free(address, 0) != nil {
			t.Fatal("a live block was refused")
		}
	}
	of := []uint64{alloc(), alloc(), alloc()}
	first := device.BeginExchange()
	free(of[0], true)
	second := device.BeginExchange()
	device.AwaitExchange(first, 0)
	free(of[1], true)
	free(of[2], false)
	device.AwaitExchange(second, 7) // by another stream than theirs
	device.AwaitExchange(second, 0)
	free(alloc(), true)
	path := filepath.Join(t.TempDir(), "kept.history")
	if err := device.WriteHistory(path, 0); err != nil {
		t.Fatal(err)
	}
	read, err := trace.ReadFile(path, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &read.Devices[0]
	var acts []string
	for i := range d.Events {
		acts = append(acts, d.Events[i].Action.String())
	}
	want := "alloc alloc alloc free_requested free_completed free_requested free_requested free_completed free_completed alloc free_requested free_completed"
	if found := strings.Join(acts, " "); found != want || d.Events[4].Addr != d.Events[3].Addr || d.Events[8].Addr != d.Events[5].Addr {
		t.Errorf("events %s, expected %s", found, want)
	}
	exchanges := []trace.Exchange{{Begins: 3, Awaits: []trace.Await{{Stream: 0, At: 5}}}, {Begins: 5, Awaits: []trace.Await{{Stream: 7, At: 9}, {Stream: 0, At: 9}}}}
	if found := d.Exchanges(); !reflect.DeepEqual(found, exchanges) {
		t.Errorf("exchanges %v, expected %v", found, exchanges)
	}
}

func compiled(t *testing.T, of *trace.Trace) *planfile.Device {
	t.Helper()
	p, _, err := compile.Compile(context.Background(), of, compile.Options{Producer: producer, Serve: simdevice.Serve, Note: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	return &p.Devices[0]
}

// exampleRecordings are the recordings of the repository.
func exampleRecordings(t testing.TB) []string {
	t.Helper()
	found, err := filepath.Glob("../../examples/*/*.pickle.gz")
	if err != nil || len(found) < 4 {
		t.Fatalf("found %d recordings: %v", len(found), err)
	}
	return found
}

// BenchmarkHistory is how many bytes a history takes for each record of the example
// recordings.
func BenchmarkHistory(b *testing.B) {
	for _, example := range exampleRecordings(b) {
		b.Run(strings.TrimSuffix(filepath.Base(example), ".pickle.gz"), func(b *testing.B) {
			snapshot, err := trace.ReadFile(example, trace.Options{})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				info, err := os.Stat(keepHistory(b, &snapshot.Devices[0]))
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(info.Size()), "B")
				b.ReportMetric(float64(info.Size())/float64(len(requests(&snapshot.Devices[0]))), "B/request")
			}
		})
	}
}
