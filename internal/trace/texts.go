package trace

import (
	"unicode/utf8"
	"unsafe"
)

// place is the address and length of a string's bytes. A pickle can refer to one long
// string very many times, and all references share its memory. To look at the bytes
// of each reference would take time with the square of the file's size. Strings of
// one place are equal. A place that is a key of a map keeps the bytes from being
// freed, so no other string can get the same place.
type place struct {
	at   *byte
	size int
}

func placeOf(s string) place { return place{unsafe.StringData(s), len(s)} }

// textNumbers numbers texts by first appearance. It looks at the bytes of each place
// once.
type textNumbers struct {
	byPlace map[place]int32
	byText  map[string]int32
	texts   []string
}

func newTextNumbers() textNumbers {
	return textNumbers{byPlace: map[place]int32{}, byText: map[string]int32{}}
}

func (t *textNumbers) number(s string) int32 {
	p := placeOf(s)
	n, ok := t.byPlace[p]
	if ok {
		return n
	}
	if n, ok = t.byText[s]; !ok {
		n = int32(len(t.texts))
		t.byText[s] = n
		t.texts = append(t.texts, s)
	}
	t.byPlace[p] = n
	return n
}

// utf8Check remembers the places that hold valid UTF-8, so that each is looked at
// once.
type utf8Check map[place]struct{}

// valid reports whether s is UTF-8. An invalid text is not remembered, since the
// first one ends the check.
func (c utf8Check) valid(s string) bool {
	p := placeOf(s)
	if _, ok := c[p]; ok {
		return true
	}
	if !utf8.ValidString(s) {
		return false
	}
	c[p] = struct{}{}
	return true
}
