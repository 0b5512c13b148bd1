// Package splitmix is splitmix64 (Steele, Lea and Flood, Fast Splittable
// Pseudorandom Number Generators, OOPSLA 2014): numbers that look random, and are the
// same on every machine. It serves where a result must depend on the input alone, so
// that no seed and no generator's state may enter it.
package splitmix

// step is by how much the state grows: 2^64 divided by the golden ratio.
const step = 0x9e3779b97f4a7c15

// Mix is the number of the sequence after the given state. It is a good hash too:
// every bit of the state changes about half of the bits of the number.
func Mix(state uint64) uint64 {
	z := state + step
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Next is the next number of a sequence, whose state it advances.
func Next(state *uint64) uint64 {
	z := Mix(*state)
	*state += step
	return z
}
