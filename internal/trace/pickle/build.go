package pickle

import (
	"math"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// intern returns the number of a string. A new string gets the next number. Snapshots
// repeat a dozen short strings millions of times, so a small table, indexed by a string's
// length and three of its bytes, is searched before the map.
func (s *Store) intern(text []byte) uint32 {
	slot := recentSlot(text)
	if n := s.recent[slot]; n != 0 && *s.strings.at(uint64(n - 1)) == string(text) {
		return n - 1
	}
	n, ok := s.index[string(text)]
	if !ok {
		n = s.add(text)
	}
	s.recent[slot] = n + 1
	return n
}

func recentSlot(text []byte) uint8 {
	if len(text) == 0 {
		return 0
	}
	return uint8(len(text)) ^ text[0]*31 ^ text[len(text)-1]*7 ^ text[len(text)/2]
}

// add stores a new string and returns its number. If it is not UTF-8, such as a surrogate
// in a file name, a repaired string is stored; the index has the original bytes.
func (s *Store) add(raw []byte) uint32 {
	text := string(raw)
	repaired := text
	if !utf8.ValidString(text) {
		repaired = strings.ToValidUTF8(text, "\uFFFD")
	}
	n := uint32(s.strings.add(repaired))
	s.index[text] = n
	s.kept += indexEntry + int64(len(text))
	if repaired != text {
		s.kept += int64(len(repaired))
	}
	return n
}

// indexEntry is what an entry of the index of strings takes, in bytes: a string's header and
// its number, in tables that are half full right after they have grown.
const indexEntry = 64

func (s *Store) int(i int64) Value {
	if v := Value(i<<tagBits | tagInt); int64(v)>>tagBits == i {
		return v
	}
	s.wide = append(s.wide, i)
	return tagged(tagWide, uint64(len(s.wide)-1))
}

// long makes an integer from the n lowest bytes of raw, in two's complement. n is at most
// 8.
func (s *Store) long(raw uint64, n int) Value {
	if n == 0 {
		return s.int(0)
	}
	shift := 64 - 8*n
	return s.int(int64(raw<<shift) >> shift)
}

func (s *Store) float(raw uint64) Value {
	s.floats = append(s.floats, math.Float64frombits(raw))
	return tagged(tagFloat, uint64(len(s.floats)-1))
}

// tuple makes a tuple of items. In a snapshot only pairs of integers have a meaning: of
// other tuples nothing is kept. A pair of small integers, which newer snapshots have in
// every entry, takes no memory in the Store.
func (s *Store) tuple(items []Value) Value {
	if len(items) != 2 {
		return tuple
	}
	if small(items[0]) && small(items[1]) {
		return tagged(tagPair, items[0].payload()<<pairBits|items[1].payload())
	}
	first, ok1 := s.Int(items[0])
	second, ok2 := s.Int(items[1])
	if !ok1 || !ok2 {
		return tuple
	}
	s.pairs = append(s.pairs, [2]int64{first, second})
	return tagged(tagWidePair, uint64(len(s.pairs)-1))
}

func small(v Value) bool { return v.tag() == tagInt && bits.Len64(v.payload()) <= pairBits }

func (s *Store) newObject(o Value) Value {
	return tagged(tagObject, s.objects.add(o))
}

// newBody stores a copy of items and returns its index in bodies.
func (s *Store) newBody(items []Value) uint32 {
	if n := len(s.spare); n > 0 {
		b := s.spare[n-1]
		s.spare = s.spare[:n-1]
		body := s.bodies.at(uint64(b))
		s.grow(body, len(items))
		*body = append(*body, items...)
		return b
	}
	s.kept += 8 * int64(len(items))
	return uint32(s.bodies.add(append(make([]Value, 0, len(items)), items...)))
}

func (s *Store) recycle(body uint32) {
	b := s.bodies.at(uint64(body))
	*b = (*b)[:0]
	s.spare = append(s.spare, body)
}

// extend appends items to an object: a list or a dict, depending on the tags full and
// empty. It returns false if the object has neither tag.
func (s *Store) extend(object uint64, items []Value, full, empty int) bool {
	switch o := *s.objects.at(object); o.tag() {
	case empty:
		*s.objects.at(object) = tagged(full, uint64(s.newBody(items)))
	case full:
		b := s.bodies.at(o.payload())
		s.grow(b, len(items))
		*b = append(*b, items...)
	default:
		return false
	}
	return true
}

// grow makes room for n more items in a body.
func (s *Store) grow(body *[]Value, n int) {
	b := *body
	need := len(b) + n
	if need <= cap(b) {
		return
	}
	*body = append(make([]Value, 0, max(need, 2*len(b))), b...)
	s.kept += 8 * int64(cap(*body)-cap(b))
}
