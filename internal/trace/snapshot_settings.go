package trace

import (
	"strconv"

	"github.com/stplan/stplan/internal/trace/pickle"
)

// settings reads allocator_settings. Snapshots before torch 2.1 do not have it, and older
// ones do not have all of its keys.
func (b *builder) settings(v pickle.Value) error {
	if v == 0 {
		return nil
	}
	d := b.dict(v, keyNames[keyAllocatorSettings], "settings")
	s := &b.trace.Settings
	*s = Settings{Known: d.err == nil, MaxSplitSize: -1, ExpandableSegments: d.flag(keyExpandableSegments)}
	if d.has(keyConf) {
		s.Conf = d.text(keyConf)
	}
	if d.has(keyMaxSplitSize) {
		s.MaxSplitSize = Bytes(d.signed(keyMaxSplitSize))
	}
	if v := d.get(keyGarbageCollectionThreshold); v != 0 {
		var ok bool
		if s.GarbageCollectionThreshold, ok = b.store.Float(v); !ok {
			d.wrong(keyGarbageCollectionThreshold, "a number")
		}
	}
	if v := d.get(keyRoundupPower2Divisions); v != 0 && d.err == nil {
		d.err = b.divisions(v)
	}
	return d.err
}

// divisions reads the divisions of each interval. The keys of the dict are the starts of
// the intervals, in MiB, as strings.
func (b *builder) divisions(v pickle.Value) error {
	d := b.dict(v, keyNames[keyAllocatorSettings]+": "+keyNames[keyRoundupPower2Divisions], "a dict of divisions")
	for k := range b.trace.Settings.RoundupPower2Divisions {
		name := strconv.Itoa(1 << k)
		for i := 0; i < len(d.items); i += 2 {
			if key, _ := b.store.String(d.items[i]); key != name {
				continue
			}
			n, ok := b.store.Int(d.items[i+1])
			if !ok || n < 0 {
				return b.fail(d.where, name, "expected %s, found %s", wantNumber, b.describe(d.items[i+1]))
			}
			b.trace.Settings.RoundupPower2Divisions[k] = n
		}
	}
	return d.err
}
