package baseline

import (
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

func TestApply(t *testing.T) {
	start := Config{MaxSplitSize: 64 * mib, GCThreshold: 0.5, MemoryFraction: 0.9, DeviceMemory: 80 << 30, Expandable: true, LargeSegmentSize: 24 * mib}
	start.Divisions[3] = 4
	all := func(n int64) (d [16]int64) {
		fill(d[:], n)
		return d
	}
	// reset is start after a string that has settings of the allocator.
	reset := func(change func(*Config)) Config {
		c := start
		c.MaxSplitSize, c.GCThreshold, c.Divisions = 0, 0, [16]int64{}
		change(&c)
		return c
	}
	for _, tc := range []struct {
		conf string
		want Config
	}{
		{"", start},
		{" ", start},
		{"device_memory:1000", func() Config { c := start; c.DeviceMemory = 1000; return c }()},
		{"device_memory:79.5GiB,usable_memory:80GB", func() Config {
			c := start
			c.DeviceMemory, c.UsableMemory = 79<<30+1<<29, 80e9
			return c
		}()},
		{"backend:native,pinned_use_background_threads:True", start},
		{"expandable_segments:False", reset(func(c *Config) { c.Expandable = false })},
		{"max_split_size_mb:32 , max_non_split_rounding_mb : 48,", reset(func(c *Config) {
			c.MaxSplitSize, c.MaxNonSplitRounding = 32*mib, 48*mib
		})},
		{"large_segment_size_mb:12,max_split_size_mb:12", reset(func(c *Config) { c.LargeSegmentSize, c.MaxSplitSize = 12*mib, 12*mib })},
		{"garbage_collection_threshold:0.8,per_process_memory_fraction:0.25", reset(func(c *Config) { c.GCThreshold, c.MemoryFraction = 0.8, 0.25 })},
		{"roundup_power2_divisions:8", reset(func(c *Config) { c.Divisions = all(8) })},
		{"roundup_power2_divisions:[256:1,1024:4,>:2]", reset(func(c *Config) {
			c.Divisions = [16]int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 4, 2, 2, 2, 2, 2}
		})},
		{"roundup_power2_divisions:[1:2,65536:0],expandable_segments:True", reset(func(c *Config) { c.Divisions = [16]int64{2} })},
	} {
		got, err := start.Apply(tc.conf)
		if err != nil {
			t.Errorf("%q: %v", tc.conf, err)
		} else if got != tc.want {
			t.Errorf("%q:\n%+v\nexpected\n%+v", tc.conf, got, tc.want)
		}
	}
}

func TestApplyErrors(t *testing.T) {
	const list = "a power of two, or a list such as [256:1,512:2,>:4] of a power-of-two MiB and a power of two or 0"
	for _, tc := range []struct{ conf, want string }{
		{"max_split", `"max_split": expected KEY:VALUE`},
		{":5", `":5": expected KEY:VALUE`},
		{"max_splt:5", "max_splt: unknown setting, expected one of max_split_size_mb, max_non_split_rounding_mb, " +
			"large_segment_size_mb, roundup_power2_divisions, garbage_collection_threshold, expandable_segments, " +
			"per_process_memory_fraction, device_memory, usable_memory, backend"},
		{"max_split_size_mb:x", `max_split_size_mb: expected a whole number of MiB, found "x"`},
		{"max_split_size_mb:-1", `max_split_size_mb: expected a whole number of MiB, found "-1"`},
		{"max_split_size_mb:19", "max_split_size_mb: expected at least the large segment size, 20, found 19"},
		{"max_non_split_rounding_mb:4", "max_non_split_rounding_mb: expected at least the large segment size, 20, found 4"},
		{"large_segment_size_mb:10", "large_segment_size_mb: expected more than 10, found 10"},
		{"large_segment_size_mb:4294967295", "large_segment_size_mb: expected at most 268435456, found 4294967295"},
		{"expandable_segments:true", `expandable_segments: expected True or False, found "true"`},
		{"garbage_collection_threshold:1", `garbage_collection_threshold: expected a number between 0 and 1, found "1"`},
		{"garbage_collection_threshold:NaN", `garbage_collection_threshold: expected a number between 0 and 1, found "NaN"`},
		{"per_process_memory_fraction:1.5", `per_process_memory_fraction: expected a number above 0, at most 1, found "1.5"`},
		{"device_memory:80Gi", `device_memory: expected bytes, or a number with a unit such as 80GiB, found "80Gi"`},
		{"device_memory:1e30GiB", `device_memory: expected bytes, or a number with a unit such as 80GiB, found "1e30GiB"`},
		{"device_memory:-5", `device_memory: expected bytes, or a number with a unit such as 80GiB, found "-5"`},
		{"per_process_memory_fraction:0.5", "per_process_memory_fraction: the card's size is unknown; add device_memory"},
		{"device_memory:5,usable_memory:6", "usable_memory: expected at most device_memory, 5 B, found 6 B"},
		{"backend:cudaMallocAsync", `backend: expected native, found "cudaMallocAsync"`},
		{"roundup_power2_divisions:3", "roundup_power2_divisions: expected " + list + `, found "3"`},
		{"roundup_power2_divisions:[256:1", "roundup_power2_divisions: expected " + list + `, found "[256:1"`},
		{"roundup_power2_divisions:[>:1]", "roundup_power2_divisions: expected " + list + `, found "[>:1]"`},
		{"roundup_power2_divisions:[100:1]", "roundup_power2_divisions: expected " + list + `, found "[100:1]"`},
		{"roundup_power2_divisions:[]", "roundup_power2_divisions: expected " + list + `, found "[]"`},
	} {
		if _, err := (Config{}).Apply(tc.conf); err == nil || err.Error() != tc.want {
			t.Errorf("%q: %v\nexpected %s", tc.conf, err, tc.want)
		}
	}
}

func TestRecordedConfig(t *testing.T) {
	s := trace.Settings{
		Known: true, MaxSplitSize: -1, ExpandableSegments: true, GarbageCollectionThreshold: 0.5,
		Conf: "expandable_segments:True,large_segment_size_mb:32,some_new_key:[1:2,3],per_process_memory_fraction:0.5,max_split_size_mb:999",
	}
	got, err := RecordedConfig(s)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{Expandable: true, GCThreshold: 0.5, LargeSegmentSize: 32 * mib, MemoryFraction: 0.5, recorded: s}
	if got != want {
		t.Errorf("%+v\nexpected\n%+v", got, want)
	}
	if got.Kind() != "expandable segments" || Native(got).Kind() != "native" || Expandable(Native(got)) != got {
		t.Errorf("kinds of %+v", got)
	}
	if got, err = RecordedConfig(trace.Settings{Conf: "ignored"}); err != nil || got.Expandable || got.MaxSplitSize != 0 {
		t.Errorf("unknown settings: %+v, %v", got, err)
	}
	for _, tc := range []struct {
		change func(*trace.Settings)
		want   string
	}{
		{func(s *trace.Settings) { s.GarbageCollectionThreshold = 1.5 }, "garbage_collection_threshold: expected a number between 0 and 1, found 1.5"},
		{func(s *trace.Settings) { s.RoundupPower2Divisions[2] = 3 }, "roundup_power2_divisions: expected powers of two or 0, found 3"},
	} {
		bad := s
		tc.change(&bad)
		if _, err = RecordedConfig(bad); err == nil || err.Error() != tc.want {
			t.Errorf("settings that PyTorch refuses: %v, expected %s", err, tc.want)
		}
	}
}

// TestUnreadSettings has settings strings that cannot be read. The other settings
// hold, and the self-check says so.
func TestUnreadSettings(t *testing.T) {
	for _, tc := range []struct{ conf, why string }{
		{"large_segment_size_mb:5,per_process_memory_fraction:0.5", "large_segment_size_mb: expected more than 10, found 5"},
		{"per_process_memory_fraction:0.5,large_segment_size_mb:x", `large_segment_size_mb: expected a whole number of MiB, found "x"`},
		{"large_segment_size_mb:99", "max_split_size_mb: expected at least the large segment size, 99, found 40"},
		{"large_segment_size_mb", `"large_segment_size_mb": expected KEY:VALUE`},
	} {
		s := trace.Settings{Known: true, MaxSplitSize: 40 * mib, ExpandableSegments: true, Conf: tc.conf}
		c, err := RecordedConfig(s)
		if want := (Config{Expandable: true, MaxSplitSize: 40 * mib, recorded: s, unread: tc.why}); err != nil || c != want {
			t.Errorf("%q: %+v, %v\nexpected\n%+v", tc.conf, c, err, want)
			continue
		}
		k, err := selfCheck(&trace.Device{}, c, nil)
		want := "the recorded settings string cannot be read (" + tc.why + "), so PyTorch's defaults are used for the settings that are only in it: pass them with --recorded-config"
		if err != nil || !slices.Equal(k.Hints, []string{want}) {
			t.Errorf("%q: %v, hints %q\nexpected %q", tc.conf, err, k.Hints, want)
		}
		if c, err = c.Apply("max_split_size_mb:40"); err != nil {
			t.Fatal(err)
		}
		if k, err = selfCheck(&trace.Device{}, c, nil); err != nil || len(k.Hints) > 0 {
			t.Errorf("%q, replaced: %v, hints %q", tc.conf, err, k.Hints)
		}
	}
}

// TestUnknownCard has a memory fraction in a recording, which does not hold the size
// of the card: there is no limit, and a hint, until the size is given.
func TestUnknownCard(t *testing.T) {
	d, _ := readFixture(t, "limited", "")
	share, err := RecordedConfig(trace.Settings{Known: true, MaxSplitSize: -1, Conf: "per_process_memory_fraction:0.01"})
	if err != nil {
		t.Fatal(err)
	}
	whole := share
	whole.MemoryFraction = 0
	got, err := simulate(d, share, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := simulate(d, whole, nil)
	if err != nil || got != want || got.OOM != nil {
		t.Errorf("a share of an unknown card: %+v, expected as the whole: %+v, %v", got, want, err)
	}
	k, err := selfCheck(d, share, nil)
	const hint = "per_process_memory_fraction:0.01 is ignored, since the recording does not hold the size of the GPU's memory: " +
		"pass it with --recorded-config, such as device_memory:80GiB"
	if err != nil || !slices.Contains(k.Hints, hint) {
		t.Errorf("hints %q, %v\nexpected %q", k.Hints, err, hint)
	}
	known, err := share.Apply("device_memory:16GiB")
	if err != nil {
		t.Fatal(err)
	}
	if k, err = selfCheck(d, known, nil); err != nil || slices.Contains(k.Hints, hint) {
		t.Errorf("the hint stays: %q, %v", k.Hints, err)
	}
	if got, err = simulate(d, known, nil); err != nil || got.OOM == nil {
		t.Errorf("164 MiB were enough: %+v, %v", got, err)
	}
}
