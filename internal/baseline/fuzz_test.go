package baseline

import (
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// hostileDevice makes entries of bytes: few addresses and sizes, so that they
// meet and contradict each other.
func hostileDevice(raw []byte) *trace.Device {
	d := &trace.Device{Pools: []trace.PoolID{{}, {1, 0}}}
	for ; len(raw) >= 4; raw = raw[4:] {
		size := trace.Bytes(1) << (raw[2] % 49)
		d.Events = append(d.Events, trace.Event{
			Action: trace.Action(raw[0] % 10), Addr: uint64(raw[1]%16) << (raw[1] / 16 * 4), Size: size + trace.Bytes(raw[2]/49),
			Stream: uint64(raw[3] % 3), Pool: int16(raw[3]/64) - 1,
		})
	}
	if n := len(d.Events); n > 0 {
		e := d.Events[n-1]
		s := trace.Segment{Address: e.Addr, Size: e.Size, Stream: e.Stream, Small: n%2 == 0, Expandable: n%3 == 0}
		s.Blocks = []trace.Block{{Address: e.Addr, Size: e.Size, Requested: e.Size, State: trace.BlockState(n % 3)}}
		d.Initial = append(d.Initial, s)
		s.Pool = trace.PoolID{0, 1}
		d.Final = append(d.Final, s)
	}
	return d
}

// FuzzHostileRecordings expects that no recording breaks a simulation, and that
// allocated <= active <= reserved <= peak reserved in every result.
func FuzzHostileRecordings(f *testing.F) {
	f.Add([]byte{4, 1, 25, 0, 1, 1, 24, 0, 2, 1, 24, 0, 3, 1, 24, 0, 5, 1, 25, 0, 9, 0, 30, 0})
	f.Add([]byte{6, 33, 25, 1, 1, 33, 20, 1, 2, 33, 20, 1, 7, 33, 25, 1, 6, 33, 25, 1, 1, 33, 21, 1, 3, 33, 21, 1})
	configs := []Config{
		{},
		{Expandable: true},
		{MaxSplitSize: 32 * mib, MemoryFraction: 0.5, GCThreshold: 0.3, DeviceMemory: 512 * mib},
		{Expandable: true, MaxSplitSize: 32 * mib, UsableMemory: 100 * mib, DeviceMemory: 512 * mib},
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d := hostileDevice(raw)
		for _, c := range configs {
			c = asRecorded(c)
			r, err := simulate(d, c, nil)
			if err == nil && (r.final.Allocated > r.final.Active || r.final.Active > r.final.Reserved || r.final.Reserved > r.PeakReserved) {
				t.Errorf("%+v: %+v", c, r)
			}
			for _, peer := range Peers(c) {
				checkPeer(t, d, c, peer)
			}
			k, err := selfCheck(d, c, nil)
			if err == nil && (k.Matched > k.Total || (k.Matched == k.Total) != (k.First == nil)) {
				t.Errorf("%+v: %+v", c, k)
			}
		}
	})
}

// checkPeer expects the same of another allocator.
func checkPeer(t *testing.T, d *trace.Device, c Config, peer Allocator) {
	p, err := ReadProgram(d, c)
	if err != nil {
		return
	}
	r, err := Simulate(p, peer, nil)
	if err == nil && (r.final.Allocated > r.final.Active || r.final.Active > r.final.Reserved || r.final.Reserved > r.PeakReserved) {
		t.Errorf("%s, %+v: %+v", peer.Title, c, r)
	}
	if c.UsableMemory > 0 && r.PeakReserved > c.UsableMemory {
		t.Errorf("%s: %d B reserved of %d", peer.Title, r.PeakReserved, c.UsableMemory)
	}
}
