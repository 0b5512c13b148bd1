// Package baseline simulates PyTorch's GPU allocators on the program of a
// recording, so that a plan can be compared with them: the native caching
// allocator and its expandable segments, as of torch 2.11.
//
// A recording is taken apart into a program (allocations, frees, completions of
// delayed frees, calls of empty_cache) and what the allocator did about it.
// Simulate runs the program under any Config. SelfCheck runs it under the
// recorded one and compares every segment event and every address with the
// recording, which is the evidence that the simulation can be believed.
//
// What a recording does not hold, no simulation knows: calls of empty_cache
// that released nothing, when a graph capture or a MemPool was active, and
// whether a MemPool brought its own allocator or forbade splitting.
package baseline

import (
	"fmt"
	"math"

	"github.com/stplan/stplan/internal/trace"
)

const mib trace.Bytes = 1 << 20

// The allocator's constants.
const (
	minBlock            = 512
	smallMax            = 1 * mib  // the largest block of a small pool
	smallSegment        = 2 * mib  // what a small pool takes from the driver
	largeMin            = 10 * mib // from here on a request gets a segment of its own size
	roundLarge          = 2 * mib
	defaultLargeSegment = 20 * mib
)

// Config is what an allocator runs under. The zero value is PyTorch's default
// on a card without limits. Configs for a recording start from RecordedConfig,
// which remembers what the recording ran under; other Configs take it for one
// under PyTorch's defaults.
type Config struct {
	// Expandable selects expandable segments.
	Expandable bool
	// MaxSplitSize is the size from which on blocks are not split, 0 for
	// unlimited.
	MaxSplitSize trace.Bytes
	// MaxNonSplitRounding is by how much an unsplit block of MaxSplitSize or
	// more may exceed a request; 0 stands for the large segment size.
	MaxNonSplitRounding trace.Bytes
	// LargeSegmentSize is the segment for requests between 1 and 10 MiB, and
	// the page of expandable large pools; 0 stands for 20 MiB.
	LargeSegmentSize trace.Bytes
	// Divisions holds, for each of the 16 intervals that start at 1, 2, 4 …
	// 32768 MiB, into how many steps sizes between powers of two are rounded;
	// 0 and 1 are off.
	Divisions trace.Divisions
	// GCThreshold is the share of the allowed memory from which on cached
	// segments are collected, 0 for never. It needs a MemoryFraction.
	GCThreshold float64
	// MemoryFraction is the share of DeviceMemory that the process may take;
	// 0 and 1 are no limit, and so is any share of an unknown DeviceMemory.
	MemoryFraction float64
	// DeviceMemory is the card's memory in bytes (totalGlobalMem), 0 if
	// unknown. Address space for expandable segments is reserved by it.
	DeviceMemory trace.Bytes
	// UsableMemory is where the driver runs out, in bytes: DeviceMemory less
	// what the CUDA context and libraries take. 0 stands for DeviceMemory.
	UsableMemory trace.Bytes

	recorded trace.Settings
	// unread says why the recorded settings string was of no use, "" if it was.
	unread string
}

// RecordedConfig is what a recording ran under, as far as its settings say. The
// memory fraction is there only if it was part of the settings string; the
// card's size never is. Add them with Apply where they were a limit.
//
// A settings string that cannot be read leaves PyTorch's defaults for what only
// the string holds, and is told in the Hints of SelfCheck. An error says which
// of the other settings makes no sense.
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

// check holds the relations between settings that PyTorch insists on.
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

// capped says that the process may not take the whole card.
func (c Config) capped() bool { return c.MemoryFraction > 0 && c.MemoryFraction < 1 }

func (c Config) largeSegment() trace.Bytes {
	if c.LargeSegmentSize == 0 {
		return defaultLargeSegment
	}
	return c.LargeSegmentSize
}

// Limits that keep sums of sizes far from overflow.
const (
	// maxRequest bounds what a recording may ask for at once: 256 TiB, as much
	// as a trace may hold.
	maxRequest trace.Bytes = 1 << 48
	// maxInitial bounds all that was reserved when recording began.
	maxInitial trace.Bytes = 1 << 62
	// addressSpace bounds what a card without a limit hands out: the 56 bits
	// that a device pointer has. Beyond it a program is out of memory.
	addressSpace trace.Bytes = 1 << 56
	// unlimited is a maximal split size that no block reaches.
	unlimited trace.Bytes = math.MaxInt64
	// unknownReservation is the address space of an expandable segment on a
	// card of unknown size: enough for any one request.
	unknownReservation = maxRequest
)

// rules are a Config with every default and every limit worked out.
type rules struct {
	expandable   bool
	maxSplit     trace.Bytes // may be unlimited
	nonSplit     trace.Bytes
	largeSegment trace.Bytes
	divisions    trace.Divisions
	gcThreshold  float64
	allowed      trace.Bytes // the cap of the memory fraction, -1 for none
	capacity     trace.Bytes
	reservation  trace.Bytes // address space of an expandable segment, before rounding to pages
}

func (c Config) rules() (rules, error) {
	if err := c.check(); err != nil {
		return rules{}, err
	}
	r := rules{
		expandable: c.Expandable, maxSplit: c.MaxSplitSize, nonSplit: c.MaxNonSplitRounding,
		largeSegment: c.largeSegment(), divisions: c.Divisions, gcThreshold: c.GCThreshold,
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
		r.reservation = c.DeviceMemory + c.DeviceMemory/8
	}
	if c.UsableMemory > 0 {
		r.capacity = c.UsableMemory
	}
	if c.capped() && c.DeviceMemory > 0 {
		r.allowed = trace.Bytes(c.MemoryFraction * float64(c.DeviceMemory))
	}
	return r, nil
}

// recordedRules are what the recording that c was derived from ran under,
// without limits.
func (c Config) recordedRules() (rules, error) {
	recorded, err := RecordedConfig(c.recorded)
	if err != nil {
		return rules{}, err
	}
	recorded.MemoryFraction = 0
	return recorded.rules()
}

// collects says that the garbage collector is on: it works against the cap of a
// memory fraction and is idle without one.
func (r *rules) collects() bool { return r.allowed >= 0 && r.gcThreshold > 0 }

// page is the unit in which an expandable segment of a pool grows.
func (r *rules) page(small bool) trace.Bytes {
	if small {
		return smallSegment
	}
	return r.largeSegment
}
