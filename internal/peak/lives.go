package peak

import (
	"cmp"
	"slices"
	"sort"
)

// lives are the lives of buffers of one line and size, by how many allocations each
// outlived. A line that makes several tensors of one size keeps some and drops others at
// once, so the age of a buffer whose end is not known says which of them it is.
type lives struct {
	all []life
	// from[k] counts the categories of all[k:].
	from [][categories]int32
}

type life struct {
	outlived int
	category Category
}

func (l *lives) add(outlived int, c Category) { l.all = append(l.all, life{outlived, c}) }

// sort comes between the last add and the first of.
func (l *lives) sort() {
	slices.SortFunc(l.all, func(a, b life) int {
		return cmp.Or(cmp.Compare(a.outlived, b.outlived), cmp.Compare(a.category, b.category))
	})
	l.from = make([][categories]int32, len(l.all)+1)
	for k := len(l.all) - 1; k >= 0; k-- {
		l.from[k] = l.from[k+1]
		l.from[k][l.all[k].category]++
	}
}

// of is the category of most of those that lived at least as long as age, or as the oldest
// if none did.
func (l *lives) of(age int) Category {
	age = min(age, l.all[len(l.all)-1].outlived)
	k := sort.Search(len(l.all), func(k int) bool { return l.all[k].outlived >= age })
	counts := l.from[k][:]
	return Category(slices.Index(counts, slices.Max(counts)))
}
