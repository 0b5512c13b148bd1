package baseline

import "slices"

// shelf is an ordered list of free memory: by stream, then size, then address, as key
// orders it. It is for simulators whose lists stay short, some thousand entries at most;
// others use set.
type shelf[T any] struct {
	keys  []key
	items []T
}

// ceiling is the index of the first entry at or after k, len(keys) if there is none.
func (s *shelf[T]) ceiling(k key) int {
	i, _ := slices.BinarySearchFunc(s.keys, k, key.compare)
	return i
}

func (s *shelf[T]) insert(k key, item T) {
	i := s.ceiling(k)
	s.keys = slices.Insert(s.keys, i, k)
	s.items = slices.Insert(s.items, i, item)
}

// remove takes out the entry with this key, which must be there.
func (s *shelf[T]) remove(k key) {
	i := s.ceiling(k)
	s.keys = slices.Delete(s.keys, i, i+1)
	s.items = slices.Delete(s.items, i, i+1)
}

// smallest is the index of the smallest entry of a stream with at least size bytes. ok is
// false if there is none.
func (s *shelf[T]) smallest(k key) (i int, ok bool) {
	i = s.ceiling(k)
	return i, i < len(s.keys) && s.keys[i].stream == k.stream
}

// ofStream is the range of a stream's entries.
func (s *shelf[T]) ofStream(stream uint64) (low, high int) {
	low = s.ceiling(key{stream: stream})
	n, _ := slices.BinarySearchFunc(s.keys[low:], stream, func(k key, stream uint64) int {
		if k.stream <= stream {
			return -1
		}
		return 1
	})
	return low, low + n
}
