package baseline

import "github.com/stplan/stplan/internal/trace"

// key orders blocks in a set.
type key struct {
	stream uint64
	size   trace.Bytes
	addr   uint64
	// rank is the block's own. It keeps keys distinct if in a recording the driver
	// gives the same address twice.
	rank uint64
}

func (k key) compare(o key) int {
	switch {
	case k.less(o):
		return -1
	case o.less(k):
		return 1
	}
	return 0
}

func (k key) less(o key) bool {
	if k.stream != o.stream {
		return k.stream < o.stream
	}
	if k.size != o.size {
		return k.size < o.size
	}
	if k.addr != o.addr {
		return k.addr < o.addr
	}
	return k.rank < o.rank
}

// set is an ordered set of blocks: a treap (Seidel and Aragon, Randomized Search
// Trees, 1996) with the blocks themselves as nodes. Every operation takes expected
// logarithmic time. Ranks come from a fixed sequence, so that runs repeat exactly.
type set struct {
	root *block
}

func (s *set) insert(b *block, k key) {
	k.rank = b.rank
	b.key = k
	link := &s.root
	for *link != nil && (*link).rank >= b.rank {
		link = (*link).toward(k)
	}
	b.left, b.right = cut(*link, k)
	*link = b
}

// remove takes out b, which must be in the set.
func (s *set) remove(b *block) {
	link := &s.root
	for *link != b {
		link = (*link).toward(b.key)
	}
	*link = join(b.left, b.right)
	b.left, b.right = nil, nil
}

// toward is the child link under which k belongs.
func (b *block) toward(k key) **block {
	if k.less(b.key) {
		return &b.left
	}
	return &b.right
}

// ceiling is the first block at or after k, nil if there is none.
func (s *set) ceiling(k key) *block {
	var found *block
	for b := s.root; b != nil; {
		if b.key.less(k) {
			b = b.right
		} else {
			found, b = b, b.left
		}
	}
	return found
}

// after is the first block after k, nil if there is none.
func (s *set) after(k key) *block {
	k.rank++
	return s.ceiling(k)
}

// before is the last block before k, nil if there is none.
func (s *set) before(k key) *block {
	var found *block
	for b := s.root; b != nil; {
		if b.key.less(k) {
			found, b = b, b.right
		} else {
			b = b.left
		}
	}
	return found
}

// blocks lists the set in order. It is a copy, since callers change the set while
// they walk it.
func (s *set) blocks() []*block {
	var all, path []*block
	for b := s.root; b != nil || len(path) > 0; {
		if b != nil {
			path = append(path, b)
			b = b.left
			continue
		}
		b, path = path[len(path)-1], path[:len(path)-1]
		all = append(all, b)
		b = b.right
	}
	return all
}

// cut splits a tree into the blocks before k and the others.
func cut(b *block, k key) (low, high *block) {
	l, h := &low, &high
	for b != nil {
		if b.key.less(k) {
			*l, l, b = b, &b.right, b.right
		} else {
			*h, h, b = b, &b.left, b.left
		}
	}
	*l, *h = nil, nil
	return low, high
}

// join is the inverse of cut: all of low comes before all of high.
func join(low, high *block) *block {
	var root *block
	link := &root
	for low != nil && high != nil {
		if low.rank > high.rank {
			*link, link, low = low, &low.right, low.right
		} else {
			*link, link, high = high, &high.left, high.left
		}
	}
	if low == nil {
		low = high
	}
	*link = low
	return root
}
