package trace

import (
	"unicode/utf8"
	"unsafe"
)

// place is where a string's bytes lie. A pickle can name one long string in as
// many places as it has bytes, and all of them share its memory: whoever looks
// at every name's bytes would work for the square of the file's size. Strings of
// one place are equal. As a key a place keeps them from being freed, so that no
// other string comes to lie there.
type place struct {
	at   *byte
	size int
}

func placeOf(s string) place { return place{unsafe.StringData(s), len(s)} }

// textNumbers numbers texts by first appearance, and looks at the bytes of each
// place once.
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

// utf8Check checks texts, the bytes of each place once.
type utf8Check map[place]struct{}

// valid says whether s is UTF-8. What is not is not remembered: the first ends
// the check.
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
