package compile

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"

	"github.com/stplan/stplan/internal/callstack"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// identityDomain is the beginning of what Identity hashes. Another text names another rule.
const identityDomain = "stplan identity 1\n"

// ID is the text of the options that a plan depends on, together with the version of the plan
// file. Whether there is a Serve counts, but not which.
func (o *Options) ID() string {
	marker := ""
	if o.Marker != nil {
		marker = o.Marker.String()
	}
	return fmt.Sprintf("%q plan %d mode %d marker %q pending %t cross %t limit %d scale %g serve %t",
		o.Producer, planfile.VersionShares, o.Mode, marker, o.NoReusePending, o.NoCrossStream, o.TimeLimit, max(1, o.MaxScale), o.Serve != nil)
}

// Identity is the SHA-256 of all that Compile makes a plan from: two recordings with one
// identity have the same plan, but for the ordinals of the devices, and all that is said of
// it holds for both. Beside each device's Fingerprint it covers what was live before the
// recording, the annotations, the part of an iteration that Python stacks show of each allocation,
// the allocator's settings and the options.
//
// It holds no addresses, unless the recording ends in an out-of-memory: what would have
// fitted is simulated then, and a simulation places blocks by their addresses.
func Identity(t *trace.Trace, opt Options) [32]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s%s\n%#v\n", identityDomain, opt.ID(), t.Settings)
	stacks := callstack.Read(&t.Stacks)
	for i := range t.Devices {
		d := &t.Devices[i]
		if !HasAllocations(d) {
			continue
		}
		program := d.Fingerprint()
		h.Write(program[:])
		if d.Failures().Fatal {
			events := d.EventsFingerprint()
			h.Write(events[:])
		}
		fmt.Fprintf(h, "\ninferred %t invented %t annotations %d\n", d.InitialInferred, d.AddressesInvented, len(d.Annotations))
		for i := range d.Annotations {
			if a := &d.Annotations[i]; !a.OfExchange() {
				fmt.Fprintf(h, "%q %t %d\n", a.Name, a.End, a.At)
			}
		}
		hashExchanges(h, d)
		hashInitial(h, d)
		if stacks.Python {
			hashParts(h, stacks, d)
		}
	}
	return [32]byte(h.Sum(nil))
}

// hashExchanges hashes what a plan depends on of the exchanges: streams by when they were first used, as their handles
// are others in each process.
func hashExchanges(h hash.Hash, d *trace.Device) {
	var streams streamTable
	for i := range d.Events {
		if d.Events[i].Action == trace.ActionAlloc {
			streams.of(d.Events[i].Stream)
		}
	}
	for _, e := range d.Exchanges() {
		fmt.Fprintf(h, "exchange %d\n", e.Begins)
		for _, w := range e.Awaits {
			if s, ok := streams.index[w.Stream]; ok {
				fmt.Fprintf(h, "awaited %d %d\n", s, w.At)
			}
		}
	}
}

// hashParts hashes what tells iterations from layers.
func hashParts(h hash.Hash, stacks *callstack.Reader, d *trace.Device) {
	parts := make([]byte, len(d.Events))
	for i := range d.Events {
		if d.Events[i].Action == trace.ActionAlloc {
			parts[i] = byte(stacks.Part(d.Events[i].Stack))
		}
	}
	h.Write(parts)
}

// hashInitial hashes what was live before a recording, in the order of addresses, in which
// it has its slots.
func hashInitial(h hash.Hash, d *trace.Device) {
	type live struct {
		address uint64
		block   *trace.Block
		stream  uint64
	}
	var blocks []live
	for i := range d.Initial {
		s := &d.Initial[i]
		fmt.Fprintf(h, "segment %d\n", s.Size)
		for k := range s.Blocks {
			if b := &s.Blocks[k]; b.State != trace.BlockInactive {
				blocks = append(blocks, live{b.Address, b, s.Stream})
			}
		}
	}
	if len(blocks) == 0 {
		return
	}
	slices.SortStableFunc(blocks, func(x, y live) int { return cmp.Compare(x.address, y.address) })
	// Which of the blocks a free is of, and which stream is one that comes up later, the
	// fingerprint does not say.
	freed := map[uint64]int{}
	streams := map[uint64]int{}
	for i := range d.Events {
		e := &d.Events[i]
		if _, ok := streams[e.Stream]; !ok {
			streams[e.Stream] = len(streams)
		}
		_, seen := freed[e.Addr]
		switch e.Action {
		case trace.ActionFreeRequested, trace.ActionFreeCompleted, trace.ActionAlloc:
			if !seen {
				freed[e.Addr] = i
			}
		}
	}
	var record [5 * 8]byte
	for _, b := range blocks {
		at, ok := freed[b.address]
		if !ok {
			at = -1
		}
		stream, ok := streams[b.stream]
		if !ok {
			stream = len(streams)
			streams[b.stream] = stream
		}
		for k, v := range []uint64{uint64(b.block.Size), uint64(b.block.Requested), uint64(b.block.State), uint64(at), uint64(stream)} {
			binary.LittleEndian.PutUint64(record[k*8:], v)
		}
		h.Write(record[:])
	}
}

// Ordinals are those of a recording's devices that have a part in its plan.
func Ordinals(t *trace.Trace) []int {
	var all []int
	for i := range t.Devices {
		if HasAllocations(&t.Devices[i]) {
			all = append(all, t.Devices[i].Ordinal)
		}
	}
	return all
}

// WithOrdinals is a plan for a process that did the same on other devices: p with the given
// ordinals, which ascend, in place of its own.
func WithOrdinals(p *planfile.Plan, ordinals []int) (*planfile.Plan, error) {
	if len(ordinals) != len(p.Devices) {
		return nil, &BugError{fmt.Errorf("a plan of %d devices is to serve %d", len(p.Devices), len(ordinals))}
	}
	other := *p
	other.Devices = slices.Clone(p.Devices)
	for i, ordinal := range ordinals {
		other.Devices[i].Ordinal = uint32(ordinal)
	}
	return &other, nil
}
