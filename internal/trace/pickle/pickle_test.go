package pickle

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// keepAll folds nothing.
type keepAll struct{}

func (keepAll) FoldDict(*Store, []Value) (uint64, bool) { return 0, false }

// dump writes a value as Python would. It writes lists and dicts up to depth deep.
func dump(s *Store, v Value, depth int) string {
	if depth == 0 {
		return "…"
	}
	if p, ok := s.IntPair(v); ok {
		return fmt.Sprintf("(%d, %d)", p[0], p[1])
	}
	if list, ok := s.List(v); ok {
		return "[" + dumpAll(s, list, depth) + "]"
	}
	if items, ok := s.Dict(v); ok {
		return "{" + dumpAll(s, items, depth) + "}"
	}
	if text, ok := s.String(v); ok {
		return fmt.Sprintf("%q", text)
	}
	if number, ok := s.Folded(v); ok {
		return fmt.Sprintf("folded %d", number)
	}
	return s.Describe(v)
}

func dumpAll(s *Store, values []Value, depth int) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = dump(s, v, depth-1)
	}
	return strings.Join(parts, ", ")
}

// enough is room for any pickle.
func enough() int64 { return math.MaxInt64 }

func read(pickle string, f Folder) (string, error) {
	s, v, err := Read(strings.NewReader(pickle), []string{"known", "key"}, f, enough)
	if err != nil {
		return "", err
	}
	return dump(s, v, 4), nil
}

// TestValues covers every opcode that is read. The bytes are those of CPython's
// pickletools.
func TestValues(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	tests := []struct{ pickle, want string }{
		{"N", "None"},
		{"\x88", "True"},
		{"\x89", "False"},
		{"K\xff", "255"},
		{"M\x01\x02", "513"},
		{"J\xfe\xff\xff\xff", "-2"},
		{"\x8a\x00", "0"},
		{"\x8a\x01\x80", "-128"},
		{"\x8a\x06\x00\x00\x00\x00\x00\x7f", "139637976727552"},
		{"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", "9223372036854775807"},
		{"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80", "-9223372036854775808"},
		{"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\xf8", "-576460752303423488"},
		{"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xf7", "-576460752303423489"},
		{"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00", "a huge integer"},
		{"\x8b\x02\x00\x00\x00\x00\x01", "256"},
		{"G\x3f\xf8\x00\x00\x00\x00\x00\x00", "1.5"},
		{"\x8c\x02\xc3\xa9", `"é"`},
		{"\x8c\x03\xed\xa0\x80", "\"\uFFFD\""},
		{"X\x01\x00\x00\x00a", `"a"`},
		{"\x8d\x01\x00\x00\x00\x00\x00\x00\x00a", `"a"`},
		{"X\x70\x11\x01\x00" + long, `"` + long + `"`},
		{"C\x02ab", "bytes or a set"},
		{"B\x02\x00\x00\x00ab", "bytes or a set"},
		{"\x8e\x02\x00\x00\x00\x00\x00\x00\x00ab", "bytes or a set"},
		{"\x96\x02\x00\x00\x00\x00\x00\x00\x00ab", "bytes or a set"},
		{"\x8f(K\x01K\x02\x90", "bytes or a set"},
		{"(K\x01\x91", "bytes or a set"},
		{")", "a tuple"},
		{"K\x01\x85", "a tuple"},
		{"K\x01K\x02\x86", "(1, 2)"},
		{"J\xff\xff\xff\x3fK\x00\x86", "(1073741823, 0)"},
		{"J\x00\x00\x00\x40K\x01\x86", "(1073741824, 1)"},
		{"J\xff\xff\xff\xffK\x01\x86", "(-1, 1)"},
		{"NK\x02\x86", "a tuple"},
		{"K\x01K\x02K\x03\x87", "a tuple"},
		{"(K\x01K\x02t", "(1, 2)"},
		{"]", "[]"},
		{"]K\x01a", "[1]"},
		{"](K\x01K\x02eK\x03a", "[1, 2, 3]"},
		{"](e", "[]"},
		{"}", "{}"},
		{"}K\x01Ns", "{1, None}"},
		{"}(K\x01NK\x02Nu(K\x03Nu", "{1, None, 2, None, 3, None}"},
		{"}(u", "{}"},
		{"}(K\x01K\x02\x86Nu", "{(1, 2), None}"},
		{"]\x94h\x00a", "[[[[…]]]]"}, // a list that holds itself
		{"]q\x01(h\x01Ne", "[[[[…, …], None], None], None]"},
		{"K\x07r\x02\x00\x00\x000h\x02", "7"},             // PUT, POP, GET
		{"K\x07p3\n0g3\n", "7"},                           // the same in text
		{"K\x07(K\x08K\x091", "7"},                        // POP_MARK
		{"K\x07(0", "7"},                                  // POP of a mark
		{"\x95\x01\x00\x00\x00\x00\x00\x00\x00N", "None"}, // FRAME
	}
	for _, test := range tests {
		for _, protocol := range []string{"\x80\x02", "\x80\x05"} {
			got, err := read(protocol+test.pickle+".", keepAll{})
			if err != nil || got != test.want {
				t.Errorf("%.40q: %.80s, %v, want %.80s", test.pickle, got, err, test.want)
			}
		}
	}
}

// TestErrors expects the exact offset and text.
func TestErrors(t *testing.T) {
	end := "the file ends in the middle of the pickle: it was not written or copied completely"
	tests := []struct{ pickle, want string }{
		{"cos\nsystem\n", "byte 2: opcode GLOBAL ('c') would import os.system; snapshots hold only plain data, refused"},
		{"Nios\nsystem\n", "byte 3: opcode INST ('i') would import and call os.system; snapshots hold only plain data, refused"},
		{"\x8c\x02os\x8c\x06system\x93", "byte 14: opcode STACK_GLOBAL (0x93) would import os.system; snapshots hold only plain data, refused"},
		{"cos\x1b[2J\nsystem\n", "byte 2: opcode GLOBAL ('c') would import os\\x1b[2J.system; snapshots hold only plain data, refused"},
		{"\x93", "byte 2: opcode STACK_GLOBAL (0x93) would import; snapshots hold only plain data, refused"},
		{"R", "byte 2: opcode REDUCE ('R') would call a function; snapshots hold only plain data, refused"},
		{"o", "byte 2: opcode OBJ ('o') would call a class; snapshots hold only plain data, refused"},
		{"b", "byte 2: opcode BUILD ('b') would change an object; snapshots hold only plain data, refused"},
		{"Px\n", "byte 2: opcode PERSID ('P') would load an object from elsewhere; snapshots hold only plain data, refused"},
		{"Q", "byte 2: opcode BINPERSID ('Q') would load an object from elsewhere; snapshots hold only plain data, refused"},
		{"\x81", "byte 2: opcode NEWOBJ (0x81) would call a class; snapshots hold only plain data, refused"},
		{"\x92", "byte 2: opcode NEWOBJ_EX (0x92) would call a class; snapshots hold only plain data, refused"},
		{"\x82\x01", "byte 2: opcode EXT1 (0x82) would import a registered extension; snapshots hold only plain data, refused"},
		{"\x83\x01", "byte 2: opcode EXT2 (0x83) would import a registered extension; snapshots hold only plain data, refused"},
		{"\x84\x01", "byte 2: opcode EXT4 (0x84) would import a registered extension; snapshots hold only plain data, refused"},
		{"\x97", "byte 2: opcode NEXT_BUFFER (0x97) would load a buffer from elsewhere; snapshots hold only plain data, refused"},
		{"\x98", "byte 2: opcode READONLY_BUFFER (0x98) would load a buffer from elsewhere; snapshots hold only plain data, refused"},
		{"I1\n", "byte 2: opcode INT ('I') is not written by pickle protocols 2 to 5"},
		{"\xff", "byte 2: 0xff is not an opcode of pickle protocols 2 to 5: the file is damaged or not a pickle"},
		{"", "byte 2: " + end},
		{"J\x01", "byte 4: " + end},
		{"X\xff\xff\xff\xffab", "byte 9: " + end},
		{"\x8d\xff\xff\xff\xff\xff\xff\xff\xffab", "byte 13: " + end},
		{"\x8e\xff\xff\xff\xff\xff\xff\xff\xffab", "byte 13: " + end},
		{"\x8b\xff\xff\xff\x7fab", "byte 9: " + end},
		{"\x8b\xff\xff\xff\xff", "byte 2: an integer of -1 bytes, expected 0 or more"},
		{".", "byte 2: the pickle takes a value from an empty stack"},
		{"NN.", "byte 4: the pickle stops with 1 values and 0 marks left on the stack, expected none"},
		{"(N.", "byte 4: the pickle stops with 0 values and 1 marks left on the stack, expected none"},
		{"N.N", "byte 4: more data follows the end of the pickle"},
		{"e", "byte 2: the pickle closes a group that was never opened"},
		{"N(a", "byte 4: the pickle takes a value from an empty stack"},
		{"(e", "byte 3: the pickle takes a value from an empty stack"},
		{"(\x94", "byte 3: the pickle takes a value from an empty stack"},
		{"NNa", "byte 4: the pickle appends to None: expected a list"},
		{"}Na", "byte 4: the pickle appends to a dict: expected a list"},
		{"]NNs", "byte 5: the pickle sets items of a list: expected a dict"},
		{"](\x90", "byte 4: the pickle adds to a list: expected a set"},
		{"}(Nu", "byte 5: a dict is given 1 keys and values: expected an even number"},
		{"}]Ns", "byte 5: a list cannot be the key of a dict"},
		{"}(}Nu", "byte 6: a dict cannot be the key of a dict"},
		{"h\x03", "byte 2: the pickle refers to memo entry 3, which was never stored"},
		{"j\xff\xff\xff\xff", "byte 2: the pickle refers to memo entry 4294967295, which was never stored"},
		{"Nr\xff\xff\xff\xff", "byte 3: memo entry 4294967295: expected at most 3, one for every byte so far"},
		{"gx\n", `byte 2: expected the number of a memo entry, found "x"`},
		{"g" + strings.Repeat("1", 2000), "byte 3: a line of text longer than 1024 bytes"},
		{"\x80\x07", "byte 2: pickle protocol 7: expected 2 to 5"},
	}
	for _, test := range tests {
		got, err := read("\x80\x04"+test.pickle, keepAll{})
		if err == nil {
			t.Errorf("%.40q: %s, want an error", test.pickle, got)
		} else if err.Error() != test.want {
			t.Errorf("%.40q:\n got %s\nwant %s", test.pickle, err, test.want)
		}
	}
}

// foldKnown folds dicts whose first key is the string "known" into 7.
type foldKnown struct{}

func (foldKnown) FoldDict(s *Store, items []Value) (uint64, bool) {
	n, ok := s.StringNumber(items[0])
	return 7, ok && n == 0
}

func TestFolding(t *testing.T) {
	known, key := "\x8c\x05known", "\x8c\x03key"
	tests := []struct{ pickle, want string }{
		{"}" + known + "Ns", "folded 7"},
		{"}(" + known + "N" + key + "Nu", "folded 7"},
		{"}" + key + "Ns", `{"key", None}`},
		{"}(" + key + "Nu(" + known + "Nu", `{"key", None, "known", None}`},
		{"](}\x94(" + known + "Nuh\x00e", "[folded 7, folded 7]"},
	}
	for _, test := range tests {
		if got, err := read("\x80\x04"+test.pickle+".", foldKnown{}); err != nil || got != test.want {
			t.Errorf("%q: %s, %v, want %s", test.pickle, got, err, test.want)
		}
	}
	_, err := read("\x80\x04}"+known+"Ns"+key+"Ns.", foldKnown{})
	if want := "byte 18: the pickle sets items of a dict that was already complete"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestFoldList checks that a folded list is the same number in all places, and that the
// next list gets its memory.
func TestFoldList(t *testing.T) {
	s, v, err := Read(strings.NewReader("\x80\x04](]\x94K\x01ah\x00]K\x02ae."), nil, keepAll{}, enough)
	if err != nil {
		t.Fatal(err)
	}
	outer, _ := s.List(v)
	s.Fold(outer[0], 99)
	if got, want := dump(s, v, 3), "[folded 99, folded 99, [2]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	bodies := s.bodies.n
	if s.newBody([]Value{none}); s.bodies.n != bodies {
		t.Error("the list's memory was not used again")
	}
}

// TestSlowReader reads a byte at a time.
func TestSlowReader(t *testing.T) {
	pickle := "\x80\x04](\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x8c\x03abcG\x3f\xf8\x00\x00\x00\x00\x00\x00e."
	s, v, err := Read(iotest.OneByteReader(strings.NewReader(pickle)), nil, keepAll{}, enough)
	if err != nil || dump(s, v, 2) != `[-9223372036854775808, "abc", 1.5]` {
		t.Errorf("%v, %v", dump(s, v, 2), err)
	}
}

// hostile are sequences of opcodes that allocate as much as possible for every byte.
// Together they have every opcode that is executed.
var hostile = []string{
	"N", "\x88", "\x89", "(", "(N", ")", "]", "}", "\x8f", "N0", "(0", "(1", "]0", "}0", ")0", "N\x85", ")\x850", "\x85",
	"K\x010", "M\x01\x000", "J\x01\x00\x00\x000", "\x8a\x000", "\x8b\x00\x00\x00\x000",
	"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x700", "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x010", "G\x00\x00\x00\x00\x00\x00\x00\x000",
	"NN\x860", "NNN\x870", "(NNNNt0", "J\xff\xff\xff\xff\x94h\x00\x860", "h\x00h\x00\x860", "\x94", "q\x00", "r\x00\x00\x00\x00", "p0\n", "h\x000", "j\x00\x00\x00\x000", "g0\n0",
	"]Na0", "](Ne0", "](e0", "](NN}]e0", "Na", "(NNNNNNNNe", "}NNs0", "}(NNu0", "}(u0", "}(N]NNu0", "NNs", "\x8f(N\x900", "(N\x910",
	"C\x000", "B\x00\x00\x00\x000", "\x8e\x00\x00\x00\x00\x00\x00\x00\x000", "\x96\x00\x00\x00\x00\x00\x00\x00\x000",
	"\x8c\x000", "\x95\x00\x00\x00\x00\x00\x00\x00\x00", "\x80\x04",
}

// hostilePickles makes the pickles for TestMemoryBound, by name: each of hostile repeated,
// on a stack with a list or a dict and an integer in the memo, and some pickles that are
// no repetition.
func hostilePickles(size int) map[string][]byte {
	pickles := map[string][]byte{}
	for _, op := range hostile {
		top := "\x80\x04J\xff\xff\xff\xff\x940]"
		if op[0] == 'N' && strings.HasSuffix(op, "s") {
			top = top[:len(top)-1] + "}"
		}
		pickles[fmt.Sprintf("%q", op)] = append([]byte(top), bytes.Repeat([]byte(op), size/len(op))...)
	}
	for _, text := range []string{"\x8c\x04%c%c%c%c0", "\x8d\x04\x00\x00\x00\x00\x00\x00\x00%c%c%c%c0", "X\x04\x00\x00\x00%c%c%c%c0"} {
		pickle := []byte("\x80\x04]")
		head := []byte(text[:strings.IndexByte(text, '%')])
		for i := uint32(0); len(pickle) < size; i++ { // all strings differ
			pickle = append(append(pickle, head...), byte(i)|0x80, byte(i>>8)|0x80, byte(i>>7), byte(i>>14))
			pickle = append(pickle, '0')
		}
		pickles["distinct "+text] = pickle
	}
	long := []byte("\x80\x04X\x00\x00\x00\x00")
	long = append(long, bytes.Repeat([]byte("\xffa"), size/2)...)
	binary.LittleEndian.PutUint32(long[3:], uint32(size))
	pickles["a long string to repair"] = long
	for _, item := range []string{"N", "]", "}", "("} {
		for _, batches := range []int{1, 2, 5, 1000} {
			batch := "(" + strings.Repeat(item, size/batches) + "e"
			pickles[fmt.Sprintf("a list of %q in %d batches", item, batches)] = append([]byte("\x80\x04]"), strings.Repeat(batch, batches)...)
		}
	}
	return pickles
}

// TestMemoryBound compares all memory that is allocated, garbage included, with the bound
// in the package comment.
func TestMemoryBound(t *testing.T) {
	const fixed = 1 << 20                                     // buffers and first pages
	for name, pickle := range hostilePickles(1<<22 + 1<<10) { // just beyond where tables double
		m := &machine{in: newInput(bytes.NewReader(pickle)), store: newStore(nil), folder: keepAll{}, room: enough}
		m.in.filled = m.within
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := m.read()
		runtime.ReadMemStats(&after)
		used := int64(after.TotalAlloc - before.TotalAlloc)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if read := m.in.offset(); used > fixed+72*read {
			t.Errorf("%s: %d bytes allocated for %d", name, used, read)
		}
		// What is counted is what is in use: less than all that was allocated, because
		// tables that grew left garbage, and not less than a sixth of it.
		if counted := m.memory(); counted > used+fixed || 6*counted+fixed < used {
			t.Errorf("%s: %d bytes counted, %d allocated", name, counted, used)
		}
	}
}

// TestHostileOpcodes checks that hostile has every opcode.
func TestHostileOpcodes(t *testing.T) {
	all := "." + strings.Join(hostile, "") + "\x8c\x8dX"
	for op := range 256 {
		_, known := refused[byte(op)]
		if _, err := read("\x80\x04"+string([]byte{byte(op)}), keepAll{}); known || strings.Contains(err.Error(), "is not an opcode") {
			continue
		}
		if strings.IndexByte(all, byte(op)) < 0 {
			t.Errorf("opcode %s is not among them", quoteByte(byte(op)))
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\x80\x04](]\x94K\x01ah\x00}\x8c\x05knownNse."))
	f.Add([]byte("\x80\x02}q\x00X\x01\x00\x00\x00aJ\x01\x00\x00\x00K\x02\x86s."))
	f.Fuzz(func(t *testing.T, pickle []byte) {
		s, v, err := Read(bytes.NewReader(pickle), []string{"known"}, foldKnown{}, enough)
		if (s == nil) != (err != nil) {
			t.Fatalf("store %v with error %v", s, err)
		}
		if err == nil {
			dump(s, v, 5)
		}
	})
}
