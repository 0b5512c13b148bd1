// Package parquet reads and writes the part of Parquet that a flat table needs: top-level
// columns of integers and of text, with at most one value per row. It knows nothing about
// traces.
//
// It reads data pages of versions 1 and 2. Values may be PLAIN, from a dictionary,
// DELTA_BINARY_PACKED (integers) or DELTA_LENGTH_BYTE_ARRAY (text). Pages may be
// uncompressed, or compressed with Snappy, gzip or zstd. A wanted column is refused if it
// is nested, repeated, encrypted or in another file; other columns are ignored. It writes
// version 1 pages that are compressed with zstd.
//
// The structures of the footer, the schema and the encoders are those of Apache Arrow.
// Pages are read here, because Arrow's column readers allocate what a page header claims
// before they look at the data, and never return from a page that holds fewer values than
// its header says. Reading pages here also keeps dictionary indices as indices: a text
// that 100,000 rows share is looked at once.
//
// A file is never trusted. Every count, offset and size in it is compared with the file's
// size or with a fixed limit before memory is allocated for it. What pages cost is counted
// over the whole file: the bytes that they decompress to, and the dictionaries and texts that
// are kept (budget).
package parquet

// Magic opens and closes a Parquet file, EncryptedMagic one whose footer is encrypted. Both
// have 4 bytes.
const (
	Magic          = "PAR1"
	EncryptedMagic = "PARE"
)

// None is the index of a row that has no text.
const None int32 = -1

const (
	// GroupRows is the most rows that a row group given to Writer may have. A column of
	// 8-byte numbers is then one page of at most 1 MiB.
	GroupRows = 1 << 17

	// MaxMetadata is the most that the values of the metadata given to NewWriter should
	// have together, in bytes. The other half of maxFooter is for the rest of the footer.
	MaxMetadata = maxFooter / 2

	// maxFooter is the largest footer that Open reads, in bytes. The footer holds the
	// schema, the row groups and the metadata, and is read at once.
	maxFooter = 64 << 20

	// maxPage is the largest uncompressed page, in bytes. The reader has to trust the
	// size that a page claims when it decompresses the page, so it limits the size.
	maxPage = 256 << 20

	// maxDictionary is the most values that a dictionary page may have. A dictionary may
	// hold more values than the rows of its group use, so their number is no limit.
	maxDictionary = 1 << 22

	// freeRows is the number of rows that a file of any size may have. A small file can
	// hold many equal rows.
	freeRows = 1 << 20

	// rowsPerByte is the number of rows beyond freeRows that a file may have for each of
	// its bytes. A caller needs memory for every row; this bounds it by a multiple of the
	// file's size. Recorded traces take 1 to 4 bytes a row, so only made-up files exceed
	// it.
	rowsPerByte = 4

	// maxSchema is the most entries that a schema may have: columns, and groups of them.
	// maxNesting is how deep groups may be nested; a reader of schemas goes down them by
	// recursion. Traces have 11 columns that are not nested.
	maxSchema  = 1 << 16
	maxNesting = 32
)

// Error says what is wrong with a file, and where.
type Error struct {
	// Where is "byte 12", "row 7" or "row group 1", each counted from 0 in the file. It is
	// empty if the whole file is to blame.
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

// The kinds of columns. When reading, a column of integers may have any width; the kind
// says which values are accepted.
const (
	Signed   Kind = iota // signed integers of 64 bits
	Unsigned             // unsigned integers of 64 bits
	Signed32             // as Signed, but written with 32 bits
	Text                 // strings; reading does not check that they are UTF-8
)
