package main

import (
	"cmp"
	"regexp"
	"strconv"
)

// runReport is what one process of a served job says of itself: the Python
// package writes it, first when CUDA is about to be initialised. The counters of
// device N are in the file NAME.deviceN beside it.
type runReport struct {
	State   string  `json:"state"`
	PID     int     `json:"pid"`
	Name    string  `json:"name"`
	Plan    *string `json:"plan"`
	Without string  `json:"without"` // why it has no plan although the job has some
	Cached  *string `json:"cached"`  // the name of its plan in the cache
	Backend string  `json:"backend"`
	Error   string  `json:"error"`
}

// byRankThenName puts rank 10 behind rank 9.
func byRankThenName(x, y string) int {
	return cmp.Or(cmp.Compare(rankOf(x), rankOf(y)), cmp.Compare(x, y))
}

func rankOf(name string) int {
	m := rankInName.FindStringSubmatch(name)
	if m == nil {
		return -1
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return -1 // More digits than a rank has.
	}
	return n
}

var rankInName = regexp.MustCompile(`-rank([0-9]+)`)
