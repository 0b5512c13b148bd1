package trace

import (
	"fmt"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// The Parquet form of a trace; docs/trace.md is the authority. One row is one
// event or one annotation, devices one after another, each in recorded order.

// The columns. The first five are required of any file.
const (
	colDevice         = "device"
	colAction         = "action"
	colAddr           = "addr"
	colSize           = "size"
	colStream         = "stream"
	colTime           = "time_us"
	colName           = "name"
	colStack          = "stack"
	colUserMetadata   = "user_metadata"
	colCompileContext = "compile_context"
	colPool           = "pool"
)

// requiredColumns must be present in any file.
var requiredColumns = []string{colDevice, colAction, colAddr, colSize, colStream}

// What the action column holds in an annotation's row.
const (
	annotationStart = "annotation_start"
	annotationEnd   = "annotation_end"
)

// The keys of the file's metadata.
const (
	keyVersion  = "stplan.format_version"
	keySettings = "stplan.settings"
	keyDevices  = "stplan.devices"
	keyStacks   = "stplan.stacks"
	keyNotes    = "stplan.notes"
)

// formatVersion is the version WriteParquet writes and the newest that
// ReadParquet reads. Numbers are never reused.
const formatVersion = 1

const (
	// rowGroupRows is the most rows WriteParquet puts into one row group: one
	// 8-byte column is then a page of 1 MiB.
	rowGroupRows = 1 << 17
	// maxGroupText ends a row group early: the distinct text of one row group,
	// nearly all of it stacks, is held in memory while it is written.
	maxGroupText = 32 << 20
	// maxPage is the most a page may hold, uncompressed. A reader has to
	// believe a page's claim before it decompresses it.
	maxPage = 256 << 20
	// maxFooter bounds the footer, which holds the metadata.
	maxFooter = 64 << 20
)

// parquetMagic opens and closes a Parquet file.
const parquetMagic = "PAR1"

// columnKind says what a column holds.
type columnKind uint8

const (
	kindDevice   columnKind = iota // int32
	kindSigned                     // int64
	kindUnsigned                   // uint64
	kindText                       // string
)

// node is the column's entry in the file's schema.
func (k columnKind) node(name string, r parquet.Repetition) (schema.Node, error) {
	switch k {
	case kindDevice:
		return schema.NewPrimitiveNodeLogical(name, r, schema.NewIntLogicalType(32, true), parquet.Types.Int32, -1, -1)
	case kindSigned:
		return schema.NewPrimitiveNodeLogical(name, r, schema.NewIntLogicalType(64, true), parquet.Types.Int64, -1, -1)
	case kindUnsigned:
		return schema.NewPrimitiveNodeLogical(name, r, schema.NewIntLogicalType(64, false), parquet.Types.Int64, -1, -1)
	default:
		return schema.NewPrimitiveNodeLogical(name, r, schema.StringLogicalType{}, parquet.Types.ByteArray, -1, -1)
	}
}

// text is a pool's form in the pool column.
func (p PoolID) text() string { return fmt.Sprintf("%d,%d", p[0], p[1]) }
