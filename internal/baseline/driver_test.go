package baseline

import "github.com/stplan/stplan/internal/trace"

// ladder is a driver whose segments lie one above the other.
type ladder struct {
	taken trace.Bytes
	full  bool
}

func (l *ladder) segment(size trace.Bytes) (uint64, bool) {
	if l.full {
		return 0, false
	}
	return l.reserve(size)
}

func (l *ladder) reserve(size trace.Bytes) (uint64, bool) {
	l.taken += size
	return 1<<32 + uint64(l.taken-size), true
}

func (l *ladder) commit(trace.Bytes) bool { return !l.full }

func (l *ladder) refuse(on bool) { l.full = on }
