package trace

import "fmt"

// In a snapshot, frames share texts and stacks share frames; in a Parquet trace each stack
// has a copy of all. So a small snapshot may have more text than a file can hold, or memory.
const (
	// maxText is the longest text of a row that is written, in bytes. Recorded stacks have
	// some 10 KB.
	maxText = 16 << 20

	// longText is the length in bytes from which on texts are too long to add the rows of
	// many events to a row group at a time.
	longText = 64 << 10

	// maxFrameText is the most text that all frames may have together, in bytes. Their lines
	// are in memory while a trace is written. Recorded traces have a few MB.
	maxFrameText = 256 << 20
)

// smallFrames refuses frames whose lines would take too much memory.
func (t *Trace) smallFrames() error {
	size := 0
	for i := range t.Stacks.Frames {
		f := &t.Stacks.Frames[i]
		if size += len(f.File) + len(f.Name); size > maxFrameText {
			return fmt.Errorf("frame %d: the files and names of frames take %d B so far, expected at most %d B in a Parquet trace", i, size, maxFrameText)
		}
	}
	return nil
}

// longestText returns the length in bytes of the longest text of a row. It refuses a text that
// is longer than maxText.
func (t *Trace) longestText(stacks *stackRenderer) (longest int64, err error) {
	tooLong := func(where string, size int64) error {
		return fmt.Errorf("%s: a text of %d B, expected at most %d B in a Parquet trace", where, size, maxText)
	}
	for i, s := range t.Strings {
		size := int64(len(s))
		if longest = max(longest, size); size > maxText {
			return 0, tooLong(fmt.Sprintf("string %d", i), size)
		}
	}
	for i := range t.Stacks.Len() {
		size := stacks.size(int32(i))
		if longest = max(longest, size); size > maxText {
			return 0, tooLong(fmt.Sprintf("stack %d", i), size)
		}
	}
	for k := range t.Devices {
		d := &t.Devices[k]
		for i := range d.Annotations {
			size := int64(len(d.Annotations[i].Name))
			if longest = max(longest, size); size > maxText {
				return 0, tooLong(fmt.Sprintf("device %d: annotation %d", d.Ordinal, i), size)
			}
		}
	}
	return longest, nil
}
