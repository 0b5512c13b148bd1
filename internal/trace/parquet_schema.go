package trace

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/stplan/stplan/internal/trace/parquet"
)

// The Parquet form of a trace; docs/trace.md is the authority. One row is one
// event or one annotation. Devices follow one another, each in recorded order.

// The names of the columns.
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

// columnsWanted are the columns that ReadParquet looks for.
var columnsWanted = []parquet.Wanted{
	{Name: colDevice, Kind: parquet.Signed, Required: true},
	{Name: colAction, Kind: parquet.Text, Required: true},
	{Name: colAddr, Kind: parquet.Unsigned, Required: true},
	{Name: colSize, Kind: parquet.Signed, Required: true},
	{Name: colStream, Kind: parquet.Unsigned, Required: true},
	{Name: colTime, Kind: parquet.Signed},
	{Name: colName, Kind: parquet.Text},
	{Name: colStack, Kind: parquet.Text},
	{Name: colUserMetadata, Kind: parquet.Text},
	{Name: colCompileContext, Kind: parquet.Text},
	{Name: colPool, Kind: parquet.Text},
}

// columnMeanings describe the columns to whoever opens a file without docs/trace.md.
var columnMeanings = map[string]string{
	colDevice:         "the device's index in the recorded process",
	colAction:         "what happened: alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, snapshot, oom, annotation_start, annotation_end",
	colAddr:           "device address; of oom the bytes that the driver reported free",
	colSize:           "bytes: of alloc and frees as requested, of segments as mapped, of oom rounded up, of snapshot all active bytes",
	colStream:         "raw handle of the stream that the block was allocated on",
	colTime:           "Unix time in microseconds; 0 or null if there is none. Order is that of the rows, not of the clock",
	colName:           "the name of an annotation",
	colStack:          "the call stack: one line FILE:LINE:NAME per frame, innermost first; null if none was recorded",
	colUserMetadata:   "text set by the program",
	colCompileContext: "the compiled region",
	colPool:           "the memory pool: 0,0 is the default pool, n,0 is of a CUDA graph, 0,n of a user; null if the recording does not tell",
}

// columnMeta is the entry of the metadata that describes the columns of a file.
func columnMeta(columns []parquet.Field) [2]string {
	meanings := map[string]string{}
	for _, c := range columns {
		meanings[c.Name] = columnMeanings[c.Name]
	}
	text, _ := json.Marshal(meanings) // texts alone: it cannot fail
	return [2]string{keyColumns, string(text)}
}

// The actions of an annotation's row.
const (
	annotationStart = "annotation_start"
	annotationEnd   = "annotation_end"
)

// actionTexts are the texts of the action column: of each Action, then of
// rowAnnotationStart and rowAnnotationEnd.
var actionTexts = append(actionNames[:], annotationStart, annotationEnd)

// The actions that only rows have, not events.
const (
	rowAnnotationStart = Action(len(actionNames))
	rowAnnotationEnd   = rowAnnotationStart + 1
)

// The keys of the file's metadata.
const (
	keyVersion  = "stplan.format_version"
	keySettings = "stplan.settings"
	keyDevices  = "stplan.devices"
	keyStacks   = "stplan.stacks"
	keyNotes    = "stplan.notes"
	keyColumns  = "stplan.columns" // for people; not read
)

// formatVersion is the version that WriteParquet writes and the newest that
// ReadParquet reads. Numbers are never used again.
const formatVersion = 1

// text is a pool's form in the pool column.
func (p PoolID) text() string { return fmt.Sprintf("%d,%d", p[0], p[1]) }

// parsePool is the inverse of PoolID.text.
func parsePool(text string) (PoolID, bool) {
	first, second, ok := strings.Cut(text, ",")
	a, err1 := strconv.ParseInt(first, 10, 64)
	c, err2 := strconv.ParseInt(second, 10, 64)
	p := PoolID{a, c}
	return p, ok && err1 == nil && err2 == nil && p.text() == text
}
