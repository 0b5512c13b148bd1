package trace

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/trace/pickle"
)

// segments fills Device.Final.
func (b *builder) segments(list []pickle.Value, devices *deviceTable) error {
	for i, v := range list {
		d := b.dict(v, fmt.Sprintf("segment %d", i), "a segment")
		ordinal := d.integer(keyDevice)
		s := d.segment()
		if d.err != nil {
			return d.err
		}
		device := devices.get(int(ordinal))
		device.Final = append(device.Final, s)
	}
	for _, d := range devices.list {
		slices.SortStableFunc(d.Final, func(a, b Segment) int { return cmp.Compare(a.Address, b.Address) })
	}
	return nil
}

func (d *dict) segment() Segment {
	s := Segment{
		Address:    uint64(d.integer(keyAddress)),
		Size:       Bytes(d.integer(keyTotalSize)),
		Stream:     uint64(d.signed(keyStream)),
		Small:      d.text(keySegmentType) == "small",
		Expandable: d.flag(keyIsExpandable),
	}
	if v := d.get(keySegmentPoolID); v != 0 {
		var ok bool
		if s.Pool, ok = d.b.store.IntPair(v); !ok {
			d.wrong(keySegmentPoolID, "a tuple of two integers")
		}
	}
	d.blocks(&s)
	return s
}

// blocks reads the blocks of a segment. Before torch 2.1 they have no address: each begins
// at the end of the one before it.
func (d *dict) blocks(s *Segment) {
	list := d.list(keyBlocks)
	if d.err == nil {
		d.err = d.b.spend(list, d.where)
	}
	if d.err != nil {
		return
	}
	s.Blocks = make([]Block, 0, len(list))
	next := s.Address
	for i, v := range list {
		e := d.b.dict(v, fmt.Sprintf("%s: block %d", d.where, i), "a block")
		block := e.block(next)
		if d.err == nil {
			d.err = e.err
		}
		if d.err != nil {
			return
		}
		s.Blocks = append(s.Blocks, block)
		next = block.Address + uint64(block.Size)
	}
}

func (d *dict) block(next uint64) Block {
	b := Block{Address: next, Size: Bytes(d.integer(keySize)), State: d.state(), Stack: None}
	if d.has(keyAddress) {
		b.Address = uint64(d.integer(keyAddress))
	}
	if b.State == BlockInactive {
		return b // its requested size and stack belong to an earlier allocation
	}
	if history := d.list(keyHistory); len(history) > 0 {
		d.newest(&b, history[0])
		return b
	}
	b.Requested = Bytes(d.integer(keyRequestedSize))
	b.Stack = d.stack(keyFrames)
	return b
}

// newest reads the newest entry of a block's history. Torch 2.0 and older have a history
// instead of a requested size and frames.
func (d *dict) newest(b *Block, v pickle.Value) {
	h := d.b.dict(v, d.where+": history 0", "an entry of a block's history")
	b.Requested = Bytes(h.integer(keyRealSize))
	b.Stack = h.stack(keyFrames)
	if d.err == nil {
		d.err = h.err
	}
}

// state reads a block's state. The state of a delayed free has two names: torch's
// documentation and its code disagree.
func (d *dict) state() BlockState {
	switch d.text(keyState) {
	case "active_allocated":
		return BlockAllocated
	case "active_pending_free", "active_awaiting_free":
		return BlockPendingFree
	case "inactive":
		return BlockInactive
	}
	d.wrong(keyState, "active_allocated, active_pending_free or inactive")
	return BlockInactive
}
