// Package pickle reads pickles of plain data: None, booleans, integers, floats, strings,
// bytes, tuples, lists, dicts and sets, of protocols 2 to 5. It is a stack machine after
// CPython's Modules/_pickle.c and Lib/pickletools.py. But it never imports a name or calls
// a function: an opcode that would do so is an error.
//
// A value is 8 bytes. A dict can be replaced by a number as soon as it is complete
// (Folder), so a list of a million dicts need not be held in memory.
//
// Nothing recurses, and memory is bounded: for any opcodes, Read allocates at most 72
// bytes for each byte of the pickle, plus 1 MiB. This includes garbage and the spare room
// of growing slices. What is in use is counted, and a pickle is refused once that is more
// than the caller has room for, which bounds the memory of a small file that decompresses
// to a large pickle.
package pickle

import (
	"fmt"
	"strconv"
)

// Value is a pickled value. It has a meaning only together with the Store that made it.
// The zero Value means that there is no value.
//
// The low 4 bits are the tag. The rest is the value itself, or an index into one of the
// Store's tables.
type Value uint64

const (
	tagAbsent = iota
	tagNone
	tagBool
	tagInt      // signed, in the upper 60 bits
	tagWide     // index into Store.wide
	tagFloat    // index into Store.floats
	tagString   // index into Store.strings
	tagPair     // a tuple of two integers of 30 bits
	tagWidePair // index into Store.pairs
	tagOther    // plain data whose content is not kept: other, huge or tuple below
	tagObject   // index into Store.objects

	// The tags of the values in Store.objects. A Value refers to an object by its index,
	// so the memo and the stack see it when a dict is filled or folded later.
	tagEmptyDict
	tagEmptyList
	tagDict   // index into Store.bodies: key, value, key, value …
	tagList   // index into Store.bodies
	tagFolded // the number that replaces a dict or list
)

const (
	tagBits  = 4
	tagMask  = 1<<tagBits - 1
	pairBits = 30
)

// MaxFolded is the largest number that a Folder may return.
const MaxFolded = 1<<(64-tagBits) - 1

func tagged(tag int, payload uint64) Value { return Value(payload<<tagBits | uint64(tag)) }

func (v Value) tag() int        { return int(v & tagMask) }
func (v Value) payload() uint64 { return uint64(v >> tagBits) }

var (
	none    = tagged(tagNone, 0)
	other   = tagged(tagOther, 0) // bytes or a set
	huge    = tagged(tagOther, 1) // an integer beyond 64 bits
	tuple   = tagged(tagOther, 2) // any but a pair of integers
	boolean = [2]Value{tagged(tagBool, 0), tagged(tagBool, 1)}
)

// Store holds what Values refer to.
type Store struct {
	strings table[string]
	index   map[string]uint32 // of strings
	recent  [256]uint32       // by a cheap hash of a string: its number plus 1, or 0
	wide    []int64
	floats  []float64
	pairs   [][2]int64
	objects table[Value]
	bodies  table[[]Value]
	spare   []uint32 // bodies to use again
	size    int64
	kept    int64 // bytes that strings and bodies take outside of their tables
}

func newStore(known []string) *Store {
	s := &Store{index: make(map[string]uint32, 2*len(known))}
	for _, k := range known {
		s.intern([]byte(k))
	}
	return s
}

// memory is what the Store has allocated and not given back, in bytes.
func (s *Store) memory() int64 {
	tables := s.strings.memory() + s.objects.memory() + s.bodies.memory()
	return s.kept + tables + 8*int64(cap(s.wide)+cap(s.floats)) + 16*int64(cap(s.pairs)) + 4*int64(cap(s.spare))
}

// Size is the length of the pickle in bytes. All lists together have at most this many
// elements, if each is counted once even if it is used in several places.
func (s *Store) Size() int64 { return s.size }

// Bool returns a boolean.
func (s *Store) Bool(v Value) (b, ok bool) { return v == boolean[1], v.tag() == tagBool }

// Int returns an integer that fits 64 bits.
func (s *Store) Int(v Value) (int64, bool) {
	switch v.tag() {
	case tagInt:
		return int64(v) >> tagBits, true
	case tagWide:
		return s.wide[v.payload()], true
	}
	return 0, false
}

// Float returns a float, or an integer as one.
func (s *Store) Float(v Value) (float64, bool) {
	if v.tag() == tagFloat {
		return s.floats[v.payload()], true
	}
	i, ok := s.Int(v)
	return float64(i), ok
}

// String returns a string. Bytes that are not UTF-8 are replaced by U+FFFD.
func (s *Store) String(v Value) (string, bool) {
	if v.tag() != tagString {
		return "", false
	}
	return *s.strings.at(v.payload()), true
}

// StringNumber returns the number of a string: equal strings have equal
// numbers, and Read's known strings have 0, 1, 2 ….
func (s *Store) StringNumber(v Value) (int, bool) {
	return int(v.payload()), v.tag() == tagString
}

// StringNumbered returns the string with a number.
func (s *Store) StringNumbered(n int) string { return *s.strings.at(uint64(n)) }

// IntPair returns a tuple of two integers.
func (s *Store) IntPair(v Value) (pair [2]int64, ok bool) {
	if v.tag() == tagPair {
		p := v.payload()
		return [2]int64{int64(p >> pairBits), int64(p & (1<<pairBits - 1))}, true
	}
	if v.tag() != tagWidePair {
		return pair, false
	}
	return s.pairs[v.payload()], true
}

// List returns the elements of a list. They are valid until the next call of Fold.
func (s *Store) List(v Value) ([]Value, bool) { return s.body(v, tagList, tagEmptyList) }

// Dict returns the items of a dict as key, value, key, value …. Of equal keys the last one
// counts. The items are valid until the next call of Fold.
func (s *Store) Dict(v Value) ([]Value, bool) { return s.body(v, tagDict, tagEmptyDict) }

func (s *Store) body(v Value, tag, empty int) ([]Value, bool) {
	o := s.object(v)
	switch o.tag() {
	case tag:
		return *s.bodies.at(o.payload()), true
	case empty:
		return nil, true
	}
	return nil, false
}

// Folded returns the number that replaced a dict or list.
func (s *Store) Folded(v Value) (uint64, bool) {
	o := s.object(v)
	return o.payload(), o.tag() == tagFolded
}

// Fold replaces a list by a number, at most MaxFolded, in all places that refer to the
// list, and frees its memory for other lists.
func (s *Store) Fold(list Value, number uint64) {
	i := list.payload()
	o := s.objects.at(i)
	if o.tag() == tagList {
		s.recycle(uint32(o.payload()))
	}
	*o = tagged(tagFolded, number)
}

// None reports whether v is None.
func (s *Store) None(v Value) bool { return v == none }

// Huge reports whether v is an integer that does not fit 64 bits.
func (s *Store) Huge(v Value) bool { return v == huge }

// Describe names a value for a message.
func (s *Store) Describe(v Value) string {
	switch v.tag() {
	case tagAbsent:
		return "nothing"
	case tagNone:
		return "None"
	case tagBool:
		return [2]string{"False", "True"}[v.payload()]
	case tagInt, tagWide:
		i, _ := s.Int(v)
		return strconv.FormatInt(i, 10)
	case tagFloat:
		return strconv.FormatFloat(s.floats[v.payload()], 'g', -1, 64)
	case tagString:
		return describeString(*s.strings.at(v.payload()))
	case tagPair, tagWidePair:
		return "a tuple"
	case tagOther:
		return [...]string{"bytes or a set", "a huge integer", "a tuple"}[v.payload()]
	}
	switch s.object(v).tag() {
	case tagEmptyDict, tagDict:
		return "a dict"
	}
	return "a list"
}

// describeString quotes a text for a message, or its beginning if it is long.
func describeString(text string) string {
	const most = 40 // bytes; keeps a message readable
	if len(text) > most {
		return fmt.Sprintf("%q… (%d bytes)", text[:most], len(text))
	}
	return strconv.Quote(text)
}

func (s *Store) object(v Value) Value {
	if v.tag() != tagObject {
		return 0
	}
	return *s.objects.at(v.payload())
}
