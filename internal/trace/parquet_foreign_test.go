package trace

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
)

// column is a column of a Parquet file that another tool might have written. The elements
// of values have one type; nil is null.
type column struct {
	name   string
	typ    arrow.DataType
	values []any
}

func ints(name string, values ...any) column {
	return column{name, arrow.PrimitiveTypes.Int64, values}
}

func texts(name string, values ...any) column {
	return column{name, arrow.BinaryTypes.String, values}
}

// plainTrace is three rows with the types that pandas uses.
func plainTrace() []column {
	return []column{
		ints(colDevice, 0, 0, 0),
		texts(colAction, "alloc", "free_requested", "free_completed"),
		ints(colAddr, 4096, 4096, 4096),
		ints(colSize, 100, 100, 100),
		ints(colStream, 0, 0, 0),
	}
}

// with replaces or adds columns.
func with(columns []column, more ...column) []column {
	for _, m := range more {
		i := slices.IndexFunc(columns, func(c column) bool { return c.name == m.name })
		if i < 0 {
			columns = append(columns, m)
		} else {
			columns[i] = m
		}
	}
	return columns
}

func without(columns []column, name string) []column {
	return slices.DeleteFunc(columns, func(c column) bool { return c.name == name })
}

// foreign writes columns with Arrow's own writer. meta is the file's metadata.
func foreign(t testing.TB, columns []column, meta map[string]string, props ...parquet.WriterProperty) []byte {
	t.Helper()
	var fields []arrow.Field
	var arrays []arrow.Array
	for _, c := range columns {
		b := array.NewBuilder(memory.DefaultAllocator, c.typ)
		for _, v := range c.values {
			if v == nil {
				b.AppendNull()
			} else if err := b.AppendValueFromString(fmt.Sprint(v)); err != nil {
				t.Fatal(err)
			}
		}
		arrays = append(arrays, b.NewArray())
		fields = append(fields, arrow.Field{Name: c.name, Type: c.typ, Nullable: true})
	}
	md := arrow.MetadataFrom(meta)
	s := arrow.NewSchema(fields, &md)
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(s, &out, parquet.NewWriterProperties(props...), pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(array.NewRecord(s, arrays, -1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func wantProblem(t *testing.T, err error, want string) {
	t.Helper()
	var bad *InputError
	if !errors.As(err, &bad) {
		t.Fatalf("error %v, want an InputError: %s", err, want)
	}
	if got := err.Error(); got != want {
		t.Errorf("error\n%s\nwant\n%s", got, want)
	}
}

// One file per rule, each with its whole message.
func TestReadRefuses(t *testing.T) {
	version := map[string]string{keyVersion: "1"}
	key := func(k, v string) map[string]string { return map[string]string{keyVersion: "1", k: v} }
	device := func(rest string) map[string]string {
		return key(keyDevices, `[{"device":0,"events":3,"annotations":0`+rest+`}]`)
	}
	for _, c := range []struct {
		name    string
		columns []column
		meta    map[string]string
		want    string
	}{
		{"missing column", without(plainTrace(), colStream), nil, "stream: column missing; a trace needs device, action, addr, size, stream"},
		{"text for a number", with(plainTrace(), texts(colAddr, "a", "b", "c")), nil, "addr: expected an integer column, found BYTE_ARRAY (String)"},
		{"number for text", with(plainTrace(), ints(colAction, 1, 2, 3)), nil, "action: expected a string column, found INT64 (Int)"},
		{"floating point", with(plainTrace(), column{colSize, arrow.PrimitiveTypes.Float64, []any{1.0, 1.0, 1.0}}), nil, "size: expected an integer column, found DOUBLE"},
		{"timestamps", with(plainTrace(), column{colTime, arrow.FixedWidthTypes.Timestamp_us, []any{nil, nil, nil}}), nil,
			"time_us: expected an integer column, found INT64 (Timestamp)"},
		{"null", with(plainTrace(), ints(colAddr, 4096, nil, 4096)), nil, "row 1: addr: null in a required column"},
		{"null action", with(plainTrace(), texts(colAction, "alloc", "free_requested", nil)), nil, "row 2: action: null in a required column"},
		{"negative address", with(plainTrace(), ints(colAddr, 4096, -1, 4096)), nil, "row 1: addr: expected 0 or more, found -1"},
		{"negative stream", with(plainTrace(), ints(colStream, 0, 0, -7)), nil, "row 2: stream: expected 0 or more, found -7"},
		{"negative size", with(plainTrace(), ints(colSize, 100, -5, 100)), nil, "row 1: size: size -5 B, expected 0 to 281474976710656 B"},
		{"large size", with(plainTrace(), ints(colSize, int64(1<<48+1), 1, 1)), nil, "row 0: size: size 281474976710657 B, expected 0 to 281474976710656 B"},
		{"unsigned size", with(plainTrace(), column{colSize, arrow.PrimitiveTypes.Uint64, []any{1, 1, uint64(1 << 63)}}), nil,
			"row 2: size: expected at most 9223372036854775807, found 9223372036854775808"},
		{"range", with(plainTrace(), column{colAddr, arrow.PrimitiveTypes.Uint64, []any{1, 1, uint64(math.MaxUint64 - 5)}}), nil,
			"row 2: addr: address 0xfffffffffffffffa plus 100 B is beyond the 64-bit address space"},
		{"device order", with(plainTrace(), ints(colDevice, 1, 1, 0)), nil, "row 2: device: device 0 after device 1; rows must be sorted by device, in recorded order within one"},
		{"device number", with(plainTrace(), ints(colDevice, 0, 0, 40000)), nil, "row 2: device: device 40000, expected 0 to 32767"},
		{"unnamed annotation", with(plainTrace(), texts(colAction, "alloc", annotationStart, "free_completed"), texts(colName, "x", nil, "x")), nil,
			"row 1: name: an annotation without a name"},
		{"annotation without the column", with(plainTrace(), texts(colAction, "alloc", "free_requested", annotationEnd)), nil, "row 2: name: an annotation without a name"},
		{"stack form", with(plainTrace(), texts(colStack, nil, "a.py:1:f\ng", nil)), nil, `row 1: stack: "g" is not FILE:LINE:NAME`},
		{"stack line", with(plainTrace(), texts(colStack, nil, nil, "a.py:+1:f")), nil, `row 2: stack: line "+1" in "a.py:+1:f" is not a number from -2147483648 to 2147483647`},
		{"stack escape", with(plainTrace(), texts(colStack, nil, nil, `a\:b:1:\:`)), nil, `row 2: stack: "a\\:b:1:\\:" has a backslash before something other than \, n or, in the file, a colon`},
		{"pool form", with(plainTrace(), texts(colPool, "0,0", "0,1", "default")), nil, `row 2: pool: expected two numbers as in "0,1", found "default"`},
		{"UTF-8", with(plainTrace(), texts(colUserMetadata, "a", nil, "\xff")), nil, `row 2: user_metadata: "\xff" is not UTF-8`},
		{"nothing recorded", with(plainTrace(), texts(colAction, "free_requested", "free_completed", "snapshot")), nil,
			"trace without allocations: none of 3 events is an alloc; " + advice},
		{"second free", with(plainTrace(), texts(colAction, "alloc", "free_requested", "free_requested")), nil,
			"row 2: addr: second free: free_requested of 0x1000, which row 1 freed already"},
		{"version", plainTrace(), map[string]string{keyVersion: "2"}, "metadata: stplan.format_version: version 2 is newer than this program reads (1); use a newer stplan"},
		{"version text", plainTrace(), map[string]string{keyVersion: "one"}, `metadata: stplan.format_version: expected a number from 1, found "one"`},
		{"key without version", plainTrace(), map[string]string{keyNotes: "[]"}, "metadata: stplan.notes: present without stplan.format_version"},
		{"not JSON", plainTrace(), key(keySettings, "{"), "metadata: stplan.settings: expected JSON as in version 1: unexpected end of JSON input"},
		{"wrong JSON", plainTrace(), key(keyNotes, "7"), "metadata: stplan.notes: expected JSON as in version 1: json: cannot unmarshal number into Go value of type []string"},
		{"rows removed", plainTrace(), key(keyDevices, `[{"device":0,"events":4,"annotations":0}]`),
			"metadata: stplan.devices: device 0 has 4 events and 0 annotations, the rows hold 3 and 0; rows were added or removed without removing the metadata"},
		{"unlisted device", plainTrace(), key(keyDevices, `[]`), "metadata: stplan.devices: does not list device 0, which has rows, or lists devices out of order"},
		{"blocks", plainTrace(), device(`,"final":[{"address":0,"size":1024,"blocks":[[512,0,0]]}]`), "device 0: final segment 0: block 1: missing: the blocks end at 0x200, the segment at 0x400"},
		{"block too long", plainTrace(), device(`,"initial":[{"address":0,"size":512,"blocks":[[1024,0,0]]}]`), "device 0: initial segment 0: block 0: size 1024 B, expected 1 to 512 B: blocks must tile their segment"},
		{"block state", plainTrace(), device(`,"final":[{"address":0,"size":512,"blocks":[[512,0,3]]}]`), "metadata: stplan.devices: device 0: final segment 0: block 0: state 3 is not one of 0 to 2"},
		{"block form", plainTrace(), device(`,"final":[{"address":0,"size":512,"blocks":[[512,0]]}]`), "metadata: stplan.devices: device 0: final segment 0: block 0: expected 3 or 4 numbers, found 2"},
		{"block stack", plainTrace(), device(`,"final":[{"address":0,"size":512,"blocks":[[512,0,0,0]]}]`), "metadata: stplan.devices: device 0: final segment 0: block 0: stack 0 is not one of the 0 in stplan.stacks"},
		{"overlapping segments", plainTrace(), device(`,"final":[{"address":0,"size":1024,"blocks":[[1024,0,0]]},{"address":512,"size":512,"blocks":[[512,0,0]]}]`),
			"device 0: final segment 1: starts at 0x200, inside or before the previous segment, which ends at 0x400"},
		{"initial state", with(plainTrace(), ints(colAddr, 4096, 512, 4096)), device(`,"initial":[{"address":0,"size":1024,"blocks":[[1024,1000,1]]}]`),
			"row 1: addr: free_requested of 0x200, which no entry allocated and the initial state does not hold"},
		{"metadata stack", plainTrace(), map[string]string{keyVersion: "1", keyDevices: `[{"device":0,"events":3}]`, keyStacks: `["x"]`},
			`metadata: stplan.stacks: stack 0: "x" is not FILE:LINE:NAME`},
		{"no rows", emptyTrace(), version, "empty trace: no device has an event; " + advice},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr, err := decode(foreign(t, c.columns, c.meta), Options{})
			if tr != nil {
				t.Fatal("a trace beside the error")
			}
			wantProblem(t, err, "t.parquet: "+c.want)
		})
	}
}

func emptyTrace() []column {
	columns := plainTrace()
	for i := range columns {
		columns[i].values = nil
	}
	return columns
}

// A row's number counts annotations and the devices before.
func TestRowOfEntry(t *testing.T) {
	columns := []column{
		ints(colDevice, 0, 0, 3, 3, 3, 3, 3),
		texts(colAction, "alloc", annotationStart, annotationStart, "alloc", annotationEnd, "alloc", annotationEnd),
		ints(colAddr, 1, 0, 0, 64, 0, 64, 0),
		ints(colSize, 1, 0, 0, 1, 0, 1, 0),
		ints(colStream, 0, 0, 0, 0, 0, 0, 0),
		texts(colName, nil, "a", "b", nil, "b", nil, "c"),
	}
	_, err := decode(foreign(t, columns, nil), Options{})
	wantProblem(t, err, "t.parquet: row 5: addr: two live allocations at one address: 0x40 is held by row 3 (not freed since)")
}

// Files in which other writers do something differently, but that are valid.
func TestReadForeign(t *testing.T) {
	u32, i8 := arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Int8
	all := func(c []column) []column {
		return with(c, texts(colStack, "a.py:1:f", nil, ""), texts(colUserMetadata, "x", "", nil), texts(colCompileContext, nil, nil, nil),
			texts(colPool, nil, "1,0", "0,0"), ints(colTime, 5, nil, 7), texts(colName, "ignored", nil, nil))
	}
	want, err := decode(foreign(t, all(plainTrace()), nil), Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := want.Devices[0].Events
	if e[0].TimeUS != 5 || e[1].TimeUS != 0 || e[0].Stack != 0 || e[1].Stack != None || e[2].Stack != 1 || e[2].Pool != 1 || want.Strings[e[1].UserMetadata] != "" {
		t.Fatalf("optional columns read as %+v", e)
	}
	narrow := with(all(plainTrace()), column{colDevice, i8, []any{0, 0, 0}}, column{colAddr, u32, []any{4096, 4096, 4096}}, column{colSize, arrow.PrimitiveTypes.Uint16, []any{100, 100, 100}})
	for _, c := range []struct {
		name    string
		columns []column
		props   []parquet.WriterProperty
	}{
		{"narrow integers", narrow, nil},
		{"extra columns", with(all(plainTrace()), texts("comment", "a", "b", "c"), column{"list", arrow.ListOf(arrow.PrimitiveTypes.Int64), []any{"[1]", "[]", nil}}), nil},
		{"no dictionary", all(plainTrace()), []parquet.WriterProperty{parquet.WithDictionaryDefault(false)}},
		{"delta", all(plainTrace()), []parquet.WriterProperty{parquet.WithDictionaryDefault(false), parquet.WithEncodingFor(colAddr, parquet.Encodings.DeltaBinaryPacked),
			parquet.WithEncodingFor(colAction, parquet.Encodings.DeltaLengthByteArray)}},
		{"narrow delta", narrow, []parquet.WriterProperty{parquet.WithDictionaryDefault(false), parquet.WithEncodingFor(colAddr, parquet.Encodings.DeltaBinaryPacked)}},
		{"snappy", all(plainTrace()), []parquet.WriterProperty{parquet.WithCompression(compress.Codecs.Snappy)}},
		{"gzip", all(plainTrace()), []parquet.WriterProperty{parquet.WithCompression(compress.Codecs.Gzip)}},
		{"zstd pages of version 2", all(plainTrace()), []parquet.WriterProperty{parquet.WithCompression(compress.Codecs.Zstd), parquet.WithDataPageVersion(parquet.DataPageV2)}},
		{"format version 1", all(plainTrace()), []parquet.WriterProperty{parquet.WithVersion(parquet.V1_0)}},
		{"small pages", all(plainTrace()), []parquet.WriterProperty{parquet.WithDataPageSize(1), parquet.WithBatchSize(1)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := decode(foreign(t, c.columns, nil, c.props...), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if w, g := fmt.Sprintf("%+v", canonical(want)), fmt.Sprintf("%+v", canonical(got)); w != g {
				t.Errorf("read\n%s\nwant\n%s", g, w)
			}
		})
	}
}

// The address, size and stream of an annotation's row may be anything, for any order and
// encoding of the columns. In the rows around it they may not.
func TestReadForeignAnnotations(t *testing.T) {
	type row = [3]any // addr, size, stream
	odd := []row{{nil, nil, nil}, {-1, -1, -1}, {int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64)}}
	build := func(event, mark row) []column {
		return []column{
			ints(colDevice, 0, 0, 0, 0),
			ints(colAddr, 4096, mark[0], event[0], mark[0]),
			ints(colSize, 100, mark[1], event[1], mark[1]),
			ints(colStream, 7, mark[2], event[2], mark[2]),
			texts(colName, nil, "step", nil, "step"),
			texts(colAction, "alloc", annotationStart, "free_completed", annotationEnd),
		}
	}
	fine := row{4096, 100, 7}
	want, err := decode(foreign(t, build(fine, row{0, 0, 0}), nil), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d := &want.Devices[0]; len(d.Events) != 2 || len(d.Annotations) != 2 || d.Annotations[0].At != 1 || d.Annotations[1].At != 2 {
		t.Fatalf("events %+v, annotations %+v", d.Events, d.Annotations)
	}
	for _, props := range [][]parquet.WriterProperty{nil,
		{parquet.WithDictionaryDefault(false)},
		{parquet.WithDataPageVersion(parquet.DataPageV2), parquet.WithDataPageSize(1), parquet.WithBatchSize(1)}} {
		for _, mark := range odd {
			got, err := decode(foreign(t, build(fine, mark), nil, props...), Options{})
			if err != nil {
				t.Fatalf("annotations with %v: %v", mark, err)
			}
			if w, g := fmt.Sprintf("%+v", canonical(want)), fmt.Sprintf("%+v", canonical(got)); w != g {
				t.Errorf("annotations with %v: read\n%s\nwant\n%s", mark, g, w)
			}
		}
		for k, name := range []string{colAddr, colSize, colStream} {
			event := fine
			event[k] = nil
			_, err := decode(foreign(t, build(event, row{nil, nil, nil}), nil, props...), Options{})
			wantProblem(t, err, "t.parquet: row 2: "+name+": null in a required column")
		}
	}
	unsigned := with(build(fine, row{0, 0, 0}), column{colSize, arrow.PrimitiveTypes.Uint64, []any{100, uint64(math.MaxUint64), 100, uint64(math.MaxUint64)}})
	if _, err := decode(foreign(t, unsigned, nil), Options{}); err != nil {
		t.Errorf("annotations with sizes beyond 63 bits: %v", err)
	}
}

// Unknown actions keep their place. A column of nulls without a type counts as absent.
func TestReadForeignOddities(t *testing.T) {
	columns := with(plainTrace(), texts(colAction, "alloc", "user_defined", "free_completed"), column{colStack, arrow.Null, []any{nil, nil, nil}})
	tr, err := decode(foreign(t, columns, nil), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if a := tr.Devices[0].Events[1].Action; a != ActionOther {
		t.Errorf("action %v, want other", a)
	}
}

// The state before a foreign file's first row is inferred, and the trace says so.
func TestReadForeignInfersInitial(t *testing.T) {
	columns := with(plainTrace(), texts(colAction, "free_requested", "free_completed", "alloc"))
	tr, err := decode(foreign(t, columns, nil), Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &tr.Devices[0]
	if len(d.Initial) != 1 || !d.InitialInferred || len(tr.Notes) != 1 || !strings.HasPrefix(tr.Notes[0], "device 0: the file does not record") {
		t.Errorf("initial %+v, inferred %v, notes %q", d.Initial, d.InitialInferred, tr.Notes)
	}
}
