package trace

import (
	"math/bits"
	"math/rand/v2"
)

// numbering gives distinct integers the numbers 0, 1, 2 … by first appearance. It is
// a chained hash table with multiply-shift hashing (Dietzfelbinger, Hagerup,
// Katajainen and Penttonen, "A Reliable Randomized Algorithm for the Closest-Pair
// Problem", 1997). The multiplier is random for every table, so no file can be made
// to collide. The numbers do not depend on it.
type numbering struct {
	values []uint64 // by number
	next   []int32  // by number: the number before it in its chain, or None
	heads  []int32  // by hash: the last number in its chain, or None
	factor uint64
	shift  int
}

// newNumbering makes an empty numbering with room for about size integers.
func newNumbering(size int) *numbering {
	n := &numbering{factor: rand.Uint64() | 1}
	n.rehash(bits.Len(uint(max(size, 16))))
	return n
}

// find returns the number of v, or None.
func (n *numbering) find(v uint64) int32 {
	i := n.heads[v*n.factor>>n.shift]
	for i != None && n.values[i] != v {
		i = n.next[i]
	}
	return i
}

// number returns the number of v. If v is new, it gets the next number.
func (n *numbering) number(v uint64) (i int32, known bool) {
	if i = n.find(v); i != None {
		return i, true
	}
	if len(n.values) == len(n.heads) {
		n.rehash(64 - n.shift + 1)
	}
	i = int32(len(n.values))
	head := &n.heads[v*n.factor>>n.shift]
	n.values, n.next = append(n.values, v), append(n.next, *head)
	*head = i
	return i, false
}

// rehash sets the number of chains to 1 << width.
func (n *numbering) rehash(width int) {
	n.shift = 64 - width
	n.heads = make([]int32, 1<<width)
	for h := range n.heads {
		n.heads[h] = None
	}
	for i, v := range n.values {
		head := &n.heads[v*n.factor>>n.shift]
		n.next[i] = *head
		*head = int32(i)
	}
}

// reset forgets all numbers and keeps the memory.
func (n *numbering) reset() {
	for _, v := range n.values {
		n.heads[v*n.factor>>n.shift] = None
	}
	n.values, n.next = n.values[:0], n.next[:0]
}
