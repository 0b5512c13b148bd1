// Package parquet reads and writes the part of Parquet that a flat table needs:
// top-level columns of integers and of text, with at most one value per row. It
// knows nothing of traces.
//
// It reads data pages of versions 1 and 2. Values may be PLAIN, from a
// dictionary, DELTA_BINARY_PACKED (integers) or DELTA_LENGTH_BYTE_ARRAY (text);
// pages may be uncompressed or compressed with Snappy, gzip or zstd. Of the
// wanted columns, it refuses those that are nested, repeated, encrypted or in
// another file. Other columns are ignored. It writes version 1 pages compressed
// with zstd.
//
// The footer's structures, the schema and the encoders are those of Apache Arrow.
// Pages are read here, because Arrow's column readers allocate what a page
// header claims before they look at the data, and never return from a page that
// holds fewer values than its header says. Reading them here also keeps
// dictionary indices as indices: a text that 100,000 rows share is looked at
// once.
//
// A file is never trusted. Every count, offset and size in it is compared with
// the file's size or with a fixed limit before memory is allocated for it.
package parquet

// Magic opens and closes a Parquet file.
const Magic = "PAR1"

// None is the index of a row that has no text.
const None int32 = -1

const (
	// GroupRows is the largest number of rows in a row group that Writer
	// writes. A column of 8-byte numbers is then one page of 1 MiB.
	GroupRows = 1 << 17

	// MaxMetadata is the most that the metadata given to NewWriter should hold,
	// in bytes. The other half of maxFooter is left for the schema and the row
	// groups.
	MaxMetadata = maxFooter / 2

	// maxFooter is the largest footer that Open reads, in bytes. The footer
	// holds the schema, the row groups and the metadata, and is read whole.
	maxFooter = 64 << 20

	// maxPage is the largest uncompressed page, in bytes. A reader has to
	// believe a page's claim before it decompresses the page.
	maxPage = 256 << 20

	// maxColumnText is the most distinct text that a reader keeps of one column
	// of one row group, in bytes.
	maxColumnText = 4 * maxPage

	// maxDictionary is the most values in a dictionary page. A dictionary may hold
	// more than the rows of its group use, so the rows do not bound it.
	maxDictionary = 1 << 22

	// freeRows is the number of rows that a file of any size may have: a small file
	// may repeat one row many times.
	freeRows = 1 << 22

	// rowsPerByte is the number of further rows that each byte of a file pays
	// for. The caller keeps memory for every row, so memory stays within a
	// multiple of the file's size. Recorded traces take 2 to 4 bytes a row.
	rowsPerByte = 16
)

// Error says what is wrong with a file, and where.
type Error struct {
	// Where is "byte 12", "row 7" or "row group 1", each counted from 0 in the
	// file. It is empty if the whole file is to blame.
	Where   string
	Column  string // empty if no column is to blame
	Problem string // what was expected and what was found
}

func (e *Error) Error() string {
	text := e.Problem
	if e.Column != "" {
		text = e.Column + ": " + text
	}
	if e.Where != "" {
		text = e.Where + ": " + text
	}
	return text
}

// Kind says what a column holds.
type Kind uint8

// The kinds of columns. A reader takes an integer column of any width: Unsigned
// and Signed say which values it accepts.
const (
	Signed   Kind = iota // integers of 64 bits, with a sign
	Unsigned             // integers from 0 up, of 64 bits
	Signed32             // Signed, and written as 32 bits
	Text                 // strings; a reader does not check that they are UTF-8
)
