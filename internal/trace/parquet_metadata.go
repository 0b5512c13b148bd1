package trace

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/stplan/stplan/internal/trace/parquet"
)

// fileMeta is the part of the file's metadata that is ours; docs/trace.md describes its
// JSON.
type fileMeta struct {
	settings *settingsJSON // nil if the settings are not known
	devices  []deviceJSON  // nil without the key
	stacks   []string      // the texts of blocks' stacks
	notes    []string
}

type settingsJSON struct {
	Conf                       string    `json:"conf"`
	MaxSplitSize               Bytes     `json:"max_split_size"`
	GarbageCollectionThreshold float64   `json:"garbage_collection_threshold"`
	ExpandableSegments         bool      `json:"expandable_segments"`
	RoundupPower2Divisions     [16]int64 `json:"roundup_power2_divisions"`
}

type deviceJSON struct {
	Device          int           `json:"device"`
	Events          int           `json:"events"`
	Annotations     int           `json:"annotations"`
	InitialInferred bool          `json:"initial_inferred,omitzero"`
	Invented        bool          `json:"addresses_invented,omitzero"`
	Initial         []segmentJSON `json:"initial,omitzero"`
	Final           []segmentJSON `json:"final,omitzero"`
}

type segmentJSON struct {
	Address    uint64 `json:"address"`
	Size       Bytes  `json:"size"`
	Stream     uint64 `json:"stream,omitzero"`
	Pool       PoolID `json:"pool,omitzero"`
	Small      bool   `json:"small,omitzero"`
	Expandable bool   `json:"expandable,omitzero"`
	// Blocks are [size, requested, state] or [size, requested, state, stack]. Their
	// addresses follow from the sizes, since blocks tile a segment.
	Blocks [][]int64 `json:"blocks"`
}

// encodeMeta makes the metadata of a trace, as keys and values in the order of the
// file.
func encodeMeta(t *Trace, stacks *stackRenderer) ([][2]string, error) {
	table := blockStacks{text: stacks, index: map[int32]int64{}}
	devices := make([]deviceJSON, len(t.Devices))
	for i := range t.Devices {
		devices[i] = table.device(&t.Devices[i])
	}
	if table.size > parquet.MaxMetadata {
		return nil, fmt.Errorf("the stacks of blocks take %d B of metadata, more than a trace can hold (%d B)", table.size, parquet.MaxMetadata)
	}
	out := [][2]string{{keyVersion, strconv.Itoa(formatVersion)}}
	add := func(key string, value any) error {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		out = append(out, [2]string{key, string(text)})
		return nil
	}
	if err := add(keyDevices, devices); err != nil {
		return nil, err
	}
	if len(table.texts) > 0 {
		if err := add(keyStacks, table.texts); err != nil {
			return nil, err
		}
	}
	if s := &t.Settings; s.Known {
		if err := add(keySettings, settingsJSON{s.Conf, s.MaxSplitSize, s.GarbageCollectionThreshold,
			s.ExpandableSegments, s.RoundupPower2Divisions}); err != nil {
			return nil, err
		}
	}
	if len(t.Notes) > 0 {
		if err := add(keyNotes, t.Notes); err != nil {
			return nil, err
		}
	}
	size := 0
	for _, m := range out {
		size += len(m[1])
	}
	if size > parquet.MaxMetadata {
		return nil, fmt.Errorf("segments and notes take %d B of metadata, more than a trace can hold (%d B)", size, parquet.MaxMetadata)
	}
	return out, nil
}

// blockStacks gathers the stacks of blocks: the rows may not have them.
type blockStacks struct {
	text  *stackRenderer
	index map[int32]int64 // from an index into Trace.Stacks to one into texts
	texts []string
	size  int64 // bytes of texts; none is added beyond MaxMetadata
}

func (s *blockStacks) device(d *Device) deviceJSON {
	return deviceJSON{
		Device:          d.Ordinal,
		Events:          len(d.Events),
		Annotations:     len(d.Annotations),
		InitialInferred: d.InitialInferred,
		Invented:        d.AddressesInvented,
		Initial:         s.segments(d.Initial),
		Final:           s.segments(d.Final),
	}
}

func (s *blockStacks) segments(segments []Segment) []segmentJSON {
	var out []segmentJSON
	for i := range segments {
		g := &segments[i]
		blocks := make([][]int64, len(g.Blocks))
		for k := range g.Blocks {
			blocks[k] = s.block(&g.Blocks[k])
		}
		out = append(out, segmentJSON{g.Address, g.Size, g.Stream, g.Pool, g.Small, g.Expandable, blocks})
	}
	return out
}

func (s *blockStacks) block(b *Block) []int64 {
	out := []int64{int64(b.Size), int64(b.Requested), int64(b.State)}
	if b.Stack == None {
		return out
	}
	i, ok := s.index[b.Stack]
	if !ok {
		i = int64(len(s.texts))
		s.index[b.Stack] = i
		if s.size += s.text.size(b.Stack); s.size <= parquet.MaxMetadata {
			s.texts = append(s.texts, s.text.text(b.Stack))
		}
	}
	return append(out, i)
}

// decodeMeta reads the metadata. find returns the value of a key, or nil. A file by
// another tool has none of our keys.
func decodeMeta(find func(key string) *string) (fileMeta, *InputError) {
	var m fileMeta
	parts := []struct {
		key  string
		into any
	}{
		{keyDevices, &m.devices}, {keyStacks, &m.stacks}, {keySettings, &m.settings}, {keyNotes, &m.notes},
	}
	version := find(keyVersion)
	for _, p := range parts {
		text := find(p.key)
		switch {
		case text == nil:
		case version == nil:
			return m, &InputError{Where: "metadata", Column: p.key, Problem: "present without " + keyVersion}
		default:
			if err := json.Unmarshal([]byte(*text), p.into); err != nil {
				return m, &InputError{Where: "metadata", Column: p.key, Problem: fmt.Sprintf("expected JSON as in version %d: %v", formatVersion, err)}
			}
		}
		if p.key == keyDevices && version != nil {
			if err := checkVersion(*version); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}

func checkVersion(text string) *InputError {
	n, err := strconv.ParseUint(text, 10, 31)
	switch {
	case err != nil || n == 0:
		return &InputError{Where: "metadata", Column: keyVersion, Problem: fmt.Sprintf("expected a number from 1, found %s", quoteShort(text))}
	case n > formatVersion:
		return &InputError{Where: "metadata", Column: keyVersion,
			Problem: fmt.Sprintf("version %d is newer than this program reads (%d); use a newer stplan", n, formatVersion)}
	}
	return nil
}

// apply puts the settings and notes into a trace.
func (m *fileMeta) apply(t *Trace) {
	t.Notes = m.notes
	if s := m.settings; s != nil {
		t.Settings = Settings{true, s.Conf, s.MaxSplitSize, s.GarbageCollectionThreshold, s.ExpandableSegments, s.RoundupPower2Divisions}
	}
}

// mergeDevices combines the devices that have rows with those that the metadata lists,
// which may have segments and no rows.
func (m *fileMeta) mergeDevices(fromRows []Device, stacks *stackParser) ([]Device, *InputError) {
	if m.devices == nil {
		return fromRows, nil
	}
	table := make([]int32, len(m.stacks))
	for i, text := range m.stacks {
		var err error
		if table[i], err = stacks.add(text); err != nil {
			return nil, &InputError{Where: "metadata", Column: keyStacks, Problem: fmt.Sprintf("stack %d: %v", i, err)}
		}
	}
	devices := make([]Device, 0, len(m.devices))
	for i := range m.devices {
		j := &m.devices[i]
		d := Device{Ordinal: j.Device, InitialInferred: j.InitialInferred}
		if len(fromRows) > 0 && fromRows[0].Ordinal == j.Device {
			d, fromRows = fromRows[0], fromRows[1:]
			d.InitialInferred = j.InitialInferred
		}
		d.AddressesInvented = j.Invented
		if err := j.agree(&d); err != nil {
			return nil, err
		}
		if err := j.states(&d, table); err != nil {
			return nil, &InputError{Where: "metadata", Column: keyDevices, Problem: fmt.Sprintf("device %d: %v", j.Device, err)}
		}
		devices = append(devices, d)
	}
	if len(fromRows) > 0 {
		return nil, &InputError{Where: "metadata", Column: keyDevices, Problem: fmt.Sprintf("does not list device %d, which has rows, or lists devices out of order", fromRows[0].Ordinal)}
	}
	return devices, nil
}

// agree compares the metadata's counts for a device with its rows.
func (j *deviceJSON) agree(d *Device) *InputError {
	if j.Events == len(d.Events) && j.Annotations == len(d.Annotations) {
		return nil
	}
	return &InputError{Where: "metadata", Column: keyDevices,
		Problem: fmt.Sprintf("device %d has %d events and %d annotations, the rows hold %d and %d; rows were added or removed without removing the metadata",
			j.Device, j.Events, j.Annotations, len(d.Events), len(d.Annotations))}
}

// states puts the two recorded states into d. stacks has the index in the trace of each
// stack of the metadata.
func (j *deviceJSON) states(d *Device, stacks []int32) (err error) {
	if d.Initial, err = decodeSegments(j.Initial, stacks); err != nil {
		return fmt.Errorf("initial %w", err)
	}
	if d.Final, err = decodeSegments(j.Final, stacks); err != nil {
		return fmt.Errorf("final %w", err)
	}
	return nil
}

func decodeSegments(segments []segmentJSON, stacks []int32) ([]Segment, error) {
	var out []Segment
	for i := range segments {
		s := &segments[i]
		blocks, err := decodeBlocks(s, stacks)
		if err != nil {
			return nil, fmt.Errorf("segment %d: %w", i, err)
		}
		out = append(out, Segment{s.Address, s.Size, s.Stream, s.Pool, s.Small, s.Expandable, blocks})
	}
	return out, nil
}

func decodeBlocks(s *segmentJSON, stacks []int32) ([]Block, error) {
	blocks := make([]Block, len(s.Blocks))
	next := s.Address
	for i, b := range s.Blocks {
		switch {
		case len(b) != 3 && len(b) != 4:
			return nil, fmt.Errorf("block %d: expected 3 or 4 numbers, found %d", i, len(b))
		case b[2] < 0 || b[2] > int64(BlockPendingFree):
			return nil, fmt.Errorf("block %d: state %d is not one of 0 to %d", i, b[2], BlockPendingFree)
		case b[0] <= 0 || uint64(b[0]) > math.MaxUint64-next:
			return nil, fmt.Errorf("block %d: size %d B at address %#x, expected 1 B or more, within the 64-bit address space", i, b[0], next)
		case len(b) == 4 && (b[3] < 0 || b[3] >= int64(len(stacks))):
			return nil, fmt.Errorf("block %d: stack %d is not one of the %d in %s", i, b[3], len(stacks), keyStacks)
		}
		stack := None
		if len(b) == 4 {
			stack = stacks[b[3]]
		}
		blocks[i] = Block{next, Bytes(b[0]), Bytes(b[1]), BlockState(b[2]), stack}
		next += uint64(b[0])
	}
	return blocks, nil
}
