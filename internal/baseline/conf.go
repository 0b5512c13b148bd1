package baseline

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/stplan/stplan/internal/trace"
)

// setting is one key of a settings string.
type setting struct {
	key     string
	allowed string // what a value may be, for messages
	policy  bool   // a string with any such key resets the others, see Apply
	set     func(*Config, string) bool
}

// fractionKey is the only limit among PyTorch's own settings.
const fractionKey = "per_process_memory_fraction"

var settings = []setting{
	{"max_split_size_mb", "a whole number of MiB", true, func(c *Config, v string) bool { return parseMiB(v, &c.MaxSplitSize) }},
	{"max_non_split_rounding_mb", "a whole number of MiB", true, func(c *Config, v string) bool { return parseMiB(v, &c.MaxNonSplitRounding) }},
	{"large_segment_size_mb", "a whole number of MiB", true, func(c *Config, v string) bool { return parseMiB(v, &c.LargeSegmentSize) }},
	{"roundup_power2_divisions", "a power of two, or a list such as [256:1,512:2,>:4] of a power-of-two MiB and a power of two or 0", true, setDivisions},
	{"garbage_collection_threshold", "a number between 0 and 1", true, func(c *Config, v string) bool {
		return parseShare(v, &c.GCThreshold) && c.GCThreshold < 1
	}},
	{"expandable_segments", "True or False", true, func(c *Config, v string) bool { return parseBool(v, &c.Expandable) }},
	{fractionKey, "a number above 0, at most 1", false, func(c *Config, v string) bool { return parseShare(v, &c.MemoryFraction) }},
	{"device_memory", "bytes, or a number with a unit such as 80GiB", false, func(c *Config, v string) bool { return parseMemory(v, &c.DeviceMemory) }},
	{"usable_memory", "bytes, or a number with a unit such as 80GiB", false, func(c *Config, v string) bool { return parseMemory(v, &c.UsableMemory) }},
	{"backend", "native", false, func(_ *Config, v string) bool { return v == "native" }},
}

// irrelevant are PyTorch's settings that do not change what device memory is
// taken or where a buffer lies.
var irrelevant = []string{
	"graph_capture_record_stream_reuse", "pinned_num_register_threads", "pinned_reserve_segment_size_mb",
	"pinned_use_background_threads", "pinned_use_cuda_host_register", "pinned_use_hip_host_register",
	"release_lock_on_cudamalloc", "release_lock_on_hipmalloc",
}

// Apply returns c with a settings string applied, in the syntax of
// PYTORCH_ALLOC_CONF. Two keys are stplan's own: device_memory, the size of the
// card, and usable_memory, the part of it that can be had.
//
// As in PyTorch, a string with any of the allocator's settings returns those that
// it leaves out to their defaults, except for expandable_segments and
// large_segment_size_mb, which stay. The limits of the card and the memory
// fraction stay as well, and a string of nothing but limits changes nothing else.
//
// An unknown key, a value out of range and a fraction of a card of unknown size
// are errors.
func (c Config) Apply(conf string) (Config, error) {
	parts, err := splitConf(conf)
	if err != nil {
		return c, err
	}
	if slices.ContainsFunc(parts, func(p [2]string) bool { s := findSetting(p[0]); return s != nil && s.policy }) {
		c.MaxSplitSize, c.MaxNonSplitRounding, c.GCThreshold, c.Divisions = 0, 0, 0, trace.Divisions{}
		c.unread = "" // this string replaces the one that could not be read
	}
	for _, p := range parts {
		if slices.Contains(irrelevant, p[0]) {
			continue
		}
		s := findSetting(p[0])
		if s == nil {
			return c, fmt.Errorf("%s: unknown setting, expected one of %s", p[0], settingNames())
		}
		if !s.set(&c, p[1]) {
			return c, s.refusal(p[1])
		}
	}
	if c.capped() && c.DeviceMemory == 0 && slices.ContainsFunc(parts, func(p [2]string) bool { return p[0] == fractionKey }) {
		return c, fmt.Errorf("%s: the card's size is unknown; add device_memory", fractionKey)
	}
	return c, c.check()
}

// applyUnsaid takes only those settings from a recorded settings string that the
// recording does not hold elsewhere.
func (c Config) applyUnsaid(conf string) (Config, error) {
	parts, err := splitConf(conf)
	if err != nil {
		return c, err
	}
	for _, p := range parts {
		switch p[0] {
		case "large_segment_size_mb", "max_non_split_rounding_mb", fractionKey:
			if s := findSetting(p[0]); !s.set(&c, p[1]) {
				return c, s.refusal(p[1])
			}
		}
	}
	return c, c.check()
}

func (s *setting) refusal(value string) error {
	return fmt.Errorf("%s: expected %s, found %q", s.key, s.allowed, value)
}

func findSetting(key string) *setting {
	for i := range settings {
		if settings[i].key == key {
			return &settings[i]
		}
	}
	return nil
}

func settingNames() string {
	names := make([]string, len(settings))
	for i := range settings {
		names[i] = settings[i].key
	}
	return strings.Join(names, ", ")
}

// splitConf cuts a settings string into keys and values. Commas inside brackets
// belong to a value. White space is ignored everywhere.
func splitConf(conf string) ([][2]string, error) {
	conf = strings.Join(strings.Fields(conf), "")
	var parts [][2]string
	for conf != "" {
		end := topComma(conf)
		key, value, ok := strings.Cut(conf[:end], ":")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q: expected KEY:VALUE", conf[:end])
		}
		parts = append(parts, [2]string{key, value})
		conf = strings.TrimPrefix(conf[end:], ",")
	}
	return parts, nil
}

// topComma is the position of the first comma outside brackets, or the length.
func topComma(s string) int {
	depth := 0
	for i, r := range s {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ',' && depth <= 0:
			return i
		}
	}
	return len(s)
}

func parseBool(v string, into *bool) bool {
	*into = v == "True"
	return v == "True" || v == "False"
}

func parseMiB(v string, into *trace.Bytes) bool {
	n, err := strconv.ParseUint(v, 10, 32)
	*into = trace.Bytes(n) * mib
	return err == nil && n > 0
}

func parseShare(v string, into *float64) bool {
	f, err := strconv.ParseFloat(v, 64)
	*into = f
	return err == nil && f > 0 && f <= 1
}

// units are the units of a number of bytes. A unit comes before every unit that
// is its ending.
var units = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// ParseMemory reads a size in bytes, or with a unit, such as 80GiB.
func ParseMemory(v string) (trace.Bytes, error) {
	var n trace.Bytes
	if !parseMemory(v, &n) {
		return 0, fmt.Errorf("expected bytes, or a number with a unit such as 80GiB, found %q", v)
	}
	return n, nil
}

func parseMemory(v string, into *trace.Bytes) bool {
	if n, err := strconv.ParseInt(strings.TrimSuffix(v, "B"), 10, 64); err == nil {
		*into = trace.Bytes(n)
		return n > 0 && *into <= maxRequest
	}
	for _, u := range units {
		if number, ok := strings.CutSuffix(v, u.name); ok {
			f, err := strconv.ParseFloat(number, 64)
			if err != nil || !(f*u.bytes >= 1 && f*u.bytes <= float64(maxRequest)) {
				return false
			}
			*into = trace.Bytes(f * u.bytes)
			return true
		}
	}
	return false
}

// setDivisions reads one number for all intervals, or a list of interval:number.
// The first listed number also holds for all intervals before it, the one at ">"
// for all after the last listed one. Intervals between listed ones stay off.
func setDivisions(c *Config, v string) bool {
	list, isList := strings.CutPrefix(v, "[")
	if !isList {
		n, ok := parsePowerOf2(v)
		fill(c.Divisions[:], n)
		return ok
	}
	list, closed := strings.CutSuffix(list, "]")
	if !closed {
		return false
	}
	c.Divisions = trace.Divisions{}
	last := -1
	for _, item := range strings.Split(list, ",") {
		start, divisions, _ := strings.Cut(item, ":")
		n, ok := parsePowerOf2(divisions)
		if !ok && divisions != "0" {
			return false
		}
		if start == ">" {
			if last < 0 {
				return false
			}
			fill(c.Divisions[last+1:], n)
			continue
		}
		begin, ok := parsePowerOf2(start)
		if !ok {
			return false
		}
		i := min(bits.Len64(uint64(begin))-1, len(c.Divisions)-1)
		if last < 0 {
			fill(c.Divisions[:i], n)
		}
		c.Divisions[i] = n
		last = i
	}
	return true
}

func fill(s []int64, n int64) {
	for i := range s {
		s[i] = n
	}
}

// parsePowerOf2 returns 0 and false for anything but a power of two.
func parsePowerOf2(v string) (int64, bool) {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n <= 0 || n&(n-1) != 0 {
		return 0, false
	}
	return n, true
}
