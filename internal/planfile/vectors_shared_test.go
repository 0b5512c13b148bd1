package planfile

import "encoding/binary"

func (b *breaks) shared(name, note string, change func(d *Device)) {
	p := shared()
	change(&p.Devices[0])
	b.all = append(b.all, vector{"shared-" + name, note, ClassStructure, encode(p)})
}

func (b *breaks) sharing(i int, name, note string, change func(s *Slot)) {
	b.shared(name, note, func(d *Device) { change(&d.Slots[i]) })
}

// inVersion is a plan with another version in its header than it demands.
func inVersion(version uint32, p *Plan) []byte {
	data := encode(p)
	binary.LittleEndian.PutUint32(data[versionAt:], version)
	return seal(data)
}

// sharedVectors break a rule about slots that share a place.
func sharedVectors() []vector {
	var b breaks
	b.sharing(6, "flags", "a sharing slot that leaves", func(s *Slot) { s.Flags |= SlotLeaving })
	b.sharing(6, "flags-stray", "a sharing stray", func(s *Slot) { s.Flags |= SlotStray })
	b.sharing(2, "flags-resident", "a sharing slot that is resident", func(s *Slot) { s.Flags |= SlotResident })
	b.sharing(2, "flags-initial", "a sharing slot that was live before the recording", func(s *Slot) { s.Flags |= SlotInitial })
	b.sharing(6, "holder-none", "a sharing slot without a holder", func(s *Slot) { s.Cell = NoCell })
	b.sharing(6, "holder-itself", "a slot that shares its own place", func(s *Slot) { s.Cell = 6 })
	b.sharing(6, "holder-later", "a sharing slot with a later holder", func(s *Slot) { s.Cell = 7 })
	b.sharing(6, "holder-beyond", "a sharing slot with a holder that the device does not have", func(s *Slot) { s.Cell = 11 })
	b.sharing(6, "holder-phase", "a sharing slot with a holder in the prologue", func(s *Slot) { s.Cell = 1 })
	b.sharing(9, "holder-first", "a first slot of its phase that shares its place", func(s *Slot) { s.Flags, s.Cell = SlotShares, 8 })
	b.sharing(2, "holder-resident", "a sharing slot with a resident holder", func(s *Slot) { s.Cell = 0 })
	b.sharing(6, "holder-entering", "a sharing slot with an entering holder", func(s *Slot) { s.Cell = 4 })
	b.sharing(8, "holder-leaving", "a sharing slot with a leaving holder", func(s *Slot) { s.Flags, s.Cell = SlotShares, 7 })
	b.sharing(8, "holder-sharing", "a sharing slot with a holder that shares its place", func(s *Slot) { s.Flags, s.Cell = SlotShares, 6 })
	b.sharing(5, "holder-stray", "a sharing slot with a stray as its holder", func(s *Slot) { s.Flags, s.Offset, s.Size = SlotStray, 0, 0 })
	b.sharing(6, "stream", "a sharing slot on another stream than its holder", func(s *Slot) { s.Stream = 1 })
	b.sharing(6, "offset", "a sharing slot in another place than its holder", func(s *Slot) { s.Offset = 1024 })
	b.sharing(6, "size", "a sharing slot of another size than its holder", func(s *Slot) { s.Size = 1024 })
	b.sharing(6, "size-0", "a sharing slot without a size", func(s *Slot) { s.Offset, s.Size = 0, 0 })
	b.sharing(6, "requested", "a sharing slot that asked for more than the place has", func(s *Slot) { s.Requested = 2049 })
	b.sharing(6, "occurrences-0", "a sharing slot that never occurred", func(s *Slot) { s.Occurrences = 0 })
	b.sharing(2, "prologue-least", "a sharing slot of the prologue with two sizes", func(s *Slot) { s.Least-- })
	b.sharing(5, "holder-cell", "a holder with a cell", func(s *Slot) { s.Cell = 5 })
	b.shared("completed-late", "a sharing slot that completes after its phase in a plan for completed ends", func(d *Device) {
		d.End, d.Slots[2].CompletedEnd = EndCompleted, 10
	})
	b.shared("wait-later", "a wait of a sharing slot", func(d *Device) { d.Waits = []Wait{{6, 5, WaitPending}} })
	b.shared("wait-earlier", "a wait for a sharing slot", func(d *Device) { d.Waits = []Wait{{8, 6, WaitCrossStream}} })
	return append(b.all,
		vector{"shared-version-1", "version 1 with a sharing slot", ClassStructure, inVersion(Version, shared())},
		vector{"version-2-recorded", "version 2 without a sharing slot", ClassStructure, inVersion(VersionShares, sample())},
		vector{"version-2-periodic", "version 2 without a sharing slot in mode periodic", ClassStructure, inVersion(VersionShares, periodic())},
	)
}
