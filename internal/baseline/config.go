// Package baseline simulates GPU memory allocators on the program of a recording,
// so that a plan can be compared with them: PyTorch's native caching allocator and
// its expandable segments, as of torch 2.11.
//
// ReadProgram separates what the program did (allocations, frees, completions of
// delayed frees, calls of empty_cache) from what PyTorch's allocator did about it.
// Simulate runs the program on any Allocator. SelfCheck runs it on the allocator
// that was recorded and compares every segment event and every address with the
// recording: that is the evidence that the simulation can be believed.
//
// A simulation cannot know what a recording does not hold: calls of empty_cache
// that released nothing, when a graph capture or a MemPool was active, and whether
// a MemPool brought its own allocator or forbade splitting.
package baseline

import (
	"fmt"
	"math"

	"github.com/stplan/stplan/internal/trace"
)

const mib trace.Bytes = 1 << 20

// The constants of PyTorch's allocator (c10/cuda/CUDACachingAllocator.cpp), whose
// names are in parentheses.
const (
	// minBlock is the unit of block sizes (kMinBlockSize).
	minBlock = trace.Granularity
	// smallMax is the largest block of a small pool (kSmallSize).
	smallMax = 1 * mib
	// smallSegment is the segment of a small pool, and the page of an expandable
	// one (kSmallBuffer).
	smallSegment = 2 * mib
	// largeMin is the smallest request that gets a segment of its own size instead
	// of a LargeSegmentSize one (kMinLargeAlloc).
	largeMin = 10 * mib
	// roundLarge is the unit of segments of at least largeMin (kRoundLarge), unless the
	// allocator is a fork.
	roundLarge = 2 * mib
	// defaultLargeSegment is LargeSegmentSize if it is not set (kLargeBuffer).
	defaultLargeSegment = 20 * mib
)

// Config holds the settings of PyTorch's allocator. The zero value is PyTorch's
// default on a card without limits. The Configs of a recording derive from
// RecordedConfig, which keeps what it ran under. A Config made otherwise says that
// it ran under PyTorch's defaults.
type Config struct {
	// Expandable selects expandable segments.
	Expandable bool
	// MaxSplitSize, in bytes: blocks of at least this size are not split. 0 is no
	// limit.
	MaxSplitSize trace.Bytes
	// MaxNonSplitRounding is the number of bytes by which a block of MaxSplitSize
	// or more may exceed the request that it serves unsplit. 0 is the large segment
	// size.
	MaxNonSplitRounding trace.Bytes
	// LargeSegmentSize is the segment, in bytes, of requests between 1 and 10 MiB,
	// and the page of expandable large pools. 0 is 20 MiB.
	LargeSegmentSize trace.Bytes
	// Divisions are the steps between two powers of two to which sizes are
	// rounded, for each of the 16 intervals that start at 1, 2, 4 … 32768 MiB.
	// 0 and 1 are off.
	Divisions trace.Divisions
	// GCThreshold is a share of the allowed memory: if more is reserved, the
	// garbage collector gives back cached segments. 0 is never. It has an effect
	// only with a MemoryFraction.
	GCThreshold float64
	// MemoryFraction is the share of DeviceMemory that the process may take. 0 and
	// 1 are no limit, and so is any share of an unknown DeviceMemory.
	MemoryFraction float64
	// DeviceMemory is the card's memory in bytes (totalGlobalMem), 0 if unknown.
	// It also decides how much address space an expandable segment reserves.
	DeviceMemory trace.Bytes
	// UsableMemory is what the driver can give, in bytes: DeviceMemory less what
	// the CUDA context and libraries take. 0 is DeviceMemory.
	UsableMemory trace.Bytes

	recorded trace.Settings
	// unread says why the recorded settings string could not be read, "" if it
	// could.
	unread string
}

// RecordedConfig returns what a recording ran under, as far as its settings say.
// The memory fraction is known only if it was in the settings string, the size of
// the card never. If the job was limited by them, add them with Apply.
//
// If the settings string cannot be read, PyTorch's defaults stand for the settings
// that are only in it, and the Hints of SelfCheck say so. If another setting makes
// no sense, the error says which.
func RecordedConfig(s trace.Settings) (Config, error) {
	c := Config{recorded: s}
	if !s.Known {
		return c, nil
	}
	c.Expandable = s.ExpandableSegments
	c.MaxSplitSize = max(s.MaxSplitSize, 0)
	c.Divisions = s.RoundupPower2Divisions
	c.GCThreshold = s.GarbageCollectionThreshold
	full, err := c.applyUnsaid(s.Conf)
	if err == nil {
		return full, nil
	}
	c.unread = err.Error()
	return c, c.check()
}

// Native is c with expandable segments off.
func Native(c Config) Config {
	c.Expandable = false
	return c
}

// Expandable is c with expandable segments on.
func Expandable(c Config) Config {
	c.Expandable = true
	return c
}

// Kind names the allocator that c selects.
func (c Config) Kind() string {
	if c.Expandable {
		return "expandable segments"
	}
	return "native"
}

// check refuses what PyTorch refuses.
func (c Config) check() error {
	large := c.largeSegment()
	switch {
	case large <= largeMin:
		return fmt.Errorf("large_segment_size_mb: expected more than %d, found %d", largeMin/mib, large/mib)
	case large > maxRequest:
		return fmt.Errorf("large_segment_size_mb: expected at most %d, found %d", maxRequest/mib, large/mib)
	case c.MaxSplitSize != 0 && c.MaxSplitSize < large:
		return fmt.Errorf("max_split_size_mb: expected at least the large segment size, %d, found %d", large/mib, c.MaxSplitSize/mib)
	case c.MaxNonSplitRounding != 0 && c.MaxNonSplitRounding < large:
		return fmt.Errorf("max_non_split_rounding_mb: expected at least the large segment size, %d, found %d", large/mib, c.MaxNonSplitRounding/mib)
	case c.GCThreshold < 0 || c.GCThreshold >= 1:
		return fmt.Errorf("garbage_collection_threshold: expected a number between 0 and 1, found %g", c.GCThreshold)
	case c.DeviceMemory != 0 && c.UsableMemory > c.DeviceMemory:
		return fmt.Errorf("usable_memory: expected at most device_memory, %d B, found %d B", c.DeviceMemory, c.UsableMemory)
	}
	for _, d := range c.Divisions {
		if d < 0 || d&(d-1) != 0 {
			return fmt.Errorf("roundup_power2_divisions: expected powers of two or 0, found %d", d)
		}
	}
	return nil
}

// Memory is how many bytes the driver can give, 0 if that is not known.
func (c Config) Memory() uint64 {
	if c.UsableMemory > 0 {
		return uint64(c.UsableMemory)
	}
	return uint64(c.DeviceMemory)
}

// capped says that a memory fraction limits the process.
func (c Config) capped() bool { return c.MemoryFraction > 0 && c.MemoryFraction < 1 }

func (c Config) largeSegment() trace.Bytes {
	if c.LargeSegmentSize == 0 {
		return defaultLargeSegment
	}
	return c.LargeSegmentSize
}

// Limits that keep sums of sizes far from overflow.
const (
	// maxRequest is the largest request of a recording, in bytes: 256 TiB, the
	// most that a trace may hold.
	maxRequest trace.Bytes = 1 << 48
	// maxInitial is the most bytes that may be reserved when recording begins: half
	// of what an int64 holds, so that adding requests to it cannot overflow.
	maxInitial trace.Bytes = 1 << 62
	// addressSpace is the most bytes that a card of unknown size gives: a device
	// pointer has 56 bits. Beyond it a program is out of memory.
	addressSpace trace.Bytes = 1 << 56
	// chunkedMemory is the most bytes that a card gives to allocators that are simulated
	// chunk by chunk, which takes memory here: no card comes near it.
	chunkedMemory trace.Bytes = 1 << 40
	// unlimited is a maximal split size that no block reaches.
	unlimited trace.Bytes = math.MaxInt64
	// unknownReservation is the address space, in bytes, of an expandable segment
	// on a card of unknown size: enough for any one request.
	unknownReservation = maxRequest
)

// rules are a Config with every default and every limit filled in. Sizes are
// bytes.
type rules struct {
	expandable   bool
	maxSplit     trace.Bytes // may be unlimited
	nonSplit     trace.Bytes
	largeSegment trace.Bytes
	largeUnit    trace.Bytes // of segments of at least largeMin
	divisions    trace.Divisions
	gcThreshold  float64
	allowed      trace.Bytes // the cap of the memory fraction, -1 for none
	capacity     trace.Bytes // what the driver can give
	reservation  trace.Bytes // address space of an expandable segment, before rounding to pages
}

func (c Config) rules() (rules, error) {
	if err := c.check(); err != nil {
		return rules{}, err
	}
	r := rules{
		expandable: c.Expandable, maxSplit: c.MaxSplitSize, nonSplit: c.MaxNonSplitRounding,
		largeSegment: c.largeSegment(), largeUnit: roundLarge, divisions: c.Divisions, gcThreshold: c.GCThreshold,
		allowed: -1, capacity: addressSpace, reservation: unknownReservation,
	}
	if r.maxSplit == 0 {
		r.maxSplit = unlimited
	}
	if r.nonSplit == 0 {
		r.nonSplit = r.largeSegment
	}
	if c.DeviceMemory > 0 {
		r.capacity = c.DeviceMemory
		r.reservation = c.DeviceMemory + c.DeviceMemory/8 // as PyTorch does
	}
	if c.UsableMemory > 0 {
		r.capacity = c.UsableMemory
	}
	if c.capped() && c.DeviceMemory > 0 {
		r.allowed = trace.Bytes(c.MemoryFraction * float64(c.DeviceMemory))
	}
	return r, nil
}

// recordedRules are the rules of the recording that c derives from, without
// limits.
func (c Config) recordedRules() (rules, error) {
	recorded, err := RecordedConfig(c.recorded)
	if err != nil {
		return rules{}, err
	}
	recorded.MemoryFraction = 0
	return recorded.rules()
}

// collects says that the garbage collector is on. It needs the cap of a memory
// fraction.
func (r *rules) collects() bool { return r.allowed >= 0 && r.gcThreshold > 0 }

// page is the unit in which an expandable segment of a pool grows.
func (r *rules) page(small bool) trace.Bytes {
	if small {
		return smallSegment
	}
	return r.largeSegment
}
