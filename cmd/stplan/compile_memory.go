package main

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"sync"
)

// What compiling a recording takes, in bytes: a part that each has, and a multiple of the
// file's size. Measured over the shared recordings, from 0.2 to 2.7 MB compressed: 75 to
// 276 MiB resident, which is 6 to 8 times the pickle, and a pickle is 10 to 14 times its gzip.
const (
	compileBase       = 64 << 20
	compilePerByte    = 8
	compileCompressed = 100 // the same for a compressed pickle, or for a Parquet trace
)

// unknownMemory is what a batch may take if the system does not say what it has: what the
// smallest machines have to spare.
const unknownMemory = 2 << 30

// estimate is what compiling a recording of this name and size takes, in bytes. If the size is
// not known, it is more than there is, so that the recording is compiled alone.
func estimate(path string, size int64) int64 {
	factor := int64(compilePerByte)
	for _, suffix := range []string{".gz", ".zst", ".parquet"} {
		if strings.HasSuffix(strings.ToLower(path), suffix) {
			factor = compileCompressed
		}
	}
	const largest = 1 << 50 // no file is larger, and nothing overflows
	if size < 0 {
		size = largest
	}
	return compileBase + factor*min(size, largest)
}

// compilePerHistoryByte is that multiple for a history, which has two to three bytes for each request. That of 30 steps of experts has 1.65 MB and takes
// 600 MB, one of a vision language model 0.5 and 130.
const compilePerHistoryByte = 400

// historyMemory is what compiling a history takes, in bytes.
func historyMemory(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return compileBase
	}
	return compileBase + compilePerHistoryByte*info.Size()
}

// memoryShare hands out the memory that a batch may take.
type memoryShare struct {
	mu    sync.Mutex
	freed *sync.Cond
	total int64
	used  int64
}

// newMemoryShare takes half of what is available now: the estimate is one, and others use the
// machine as well.
func newMemoryShare() *memoryShare {
	m := &memoryShare{total: availableMemory() / 2}
	m.freed = sync.NewCond(&m.mu)
	return m
}

// acquire waits until bytes are free. Who wants more than there is waits until nobody else
// has any.
func (m *memoryShare) acquire(bytes int64) (release func()) {
	bytes = min(bytes, m.total)
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.used+bytes > m.total {
		m.freed.Wait()
	}
	m.used += bytes
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.used -= bytes
		m.freed.Broadcast()
	}
}

// availableMemory is what the process can take without swapping: what the system has, or the
// control group's limit if that is less.
func availableMemory() int64 {
	available := int64(unknownMemory)
	if n, ok := memInfo("/proc/meminfo", "MemAvailable:"); ok {
		available = n << 10 // it is in KiB
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && limit > 0 {
			available = min(available, limit)
		}
	}
	return available
}

// memInfo is the number of a line of /proc/meminfo.
func memInfo(file, key string) (int64, bool) {
	f, err := os.Open(file)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 2 && fields[0] == key {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
