package parquet

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// pack appends numbers of width bits, lowest bits first, and fills the last byte
// with zeros.
func pack(out []byte, width int, numbers []uint64) []byte {
	bits := make([]bool, 0, width*len(numbers))
	for _, n := range numbers {
		for k := range width {
			bits = append(bits, n>>k&1 != 0)
		}
	}
	for len(bits)%8 != 0 {
		bits = append(bits, false)
	}
	for ; len(bits) > 0; bits = bits[8:] {
		b := byte(0)
		for k, set := range bits[:8] {
			if set {
				b |= 1 << k
			}
		}
		out = append(out, b)
	}
	return out
}

// Runs of every width, repeated and packed in turn.
func TestRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for width := range 33 {
		var data []byte
		var want []uint32
		draw := func() uint64 { return r.Uint64() & (1<<width - 1) }
		for range 20 {
			n := 1 + r.IntN(3)
			if r.IntN(2) == 0 {
				v := draw()
				data = binary.AppendUvarint(data, uint64(n)<<1)
				data = append(data, binary.LittleEndian.AppendUint64(nil, v)[:(width+7)/8]...)
				for range n {
					want = append(want, uint32(v))
				}
				continue
			}
			group := make([]uint64, 8*n)
			for i := range group {
				group[i] = draw()
				want = append(want, uint32(group[i]))
			}
			data = pack(binary.AppendUvarint(data, uint64(n)<<1|1), width, group)
		}
		got, err := decodeRuns(nil, data, width, len(want))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d bits: %d, %v, want %d", width, got, err, want)
		}
		for n := range data { // cut short
			if got, err := decodeRuns(nil, data[:n], width, len(want)); err == nil && !slices.Equal(got, want) {
				t.Errorf("%d bits, cut at %d: %d and no error", width, n, got)
			}
		}
	}
	if _, err := decodeRuns(nil, []byte{2, 0}, 33, 1); err == nil {
		t.Error("numbers of 33 bits are accepted")
	}
	if got, err := decodeRuns(nil, []byte{0xfe, 0xff, 0xff, 0xff, 0x0e, 1}, 1, 3); err != nil || !slices.Equal(got, []uint32{1, 1, 1}) {
		t.Errorf("a run that is longer than needed: %d, %v", got, err)
	}
}

// deltaEncoded writes numbers in DELTA_BINARY_PACKED.
func deltaEncoded(numbers []int64, block, minis int) []byte {
	out := binary.AppendUvarint(nil, uint64(block))
	out = binary.AppendUvarint(out, uint64(minis))
	out = binary.AppendUvarint(out, uint64(len(numbers)))
	if len(numbers) == 0 {
		return binary.AppendVarint(out, 0)
	}
	out = binary.AppendVarint(out, numbers[0])
	for i := 1; i < len(numbers); i += block {
		steps := make([]uint64, block)
		least := numbers[i] - numbers[i-1]
		for k := i; k < min(i+block, len(numbers)); k++ {
			least = min(least, numbers[k]-numbers[k-1])
		}
		for k := i; k < min(i+block, len(numbers)); k++ {
			steps[k-i] = uint64(numbers[k] - numbers[k-1] - least)
		}
		out = binary.AppendVarint(out, least)
		each := block / minis
		var bodies []byte
		for m := range minis {
			part := steps[m*each : (m+1)*each]
			width := 0
			for _, s := range part {
				for width < 64 && s>>width != 0 {
					width++
				}
			}
			out = append(out, byte(width))
			if i+m*each < len(numbers) { // blocks without values have no body
				bodies = pack(bodies, width, part)
			}
		}
		out = append(out, bodies...)
	}
	return out
}

func TestDelta(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for n := range 300 {
		if testing.Short() && n%16 > 2 {
			continue // around the ends of parts and blocks, and between them
		}
		numbers := make([]int64, n)
		for i := range numbers {
			numbers[i] = r.Int64() >> r.IntN(64)
			if r.IntN(2) == 0 {
				numbers[i] = -numbers[i]
			}
		}
		data := deltaEncoded(numbers, 128, 4)
		got, rest, err := decodeDelta(nil, append(data, "rest"...), n)
		if err != nil || !slices.Equal(got, numbers) || string(rest) != "rest" {
			t.Fatalf("%d numbers: %d, %q, %v, want %d", n, got, rest, err, numbers)
		}
		for cut := range data {
			if got, _, err := decodeDelta(nil, data[:cut], n); err == nil && !slices.Equal(got, numbers) {
				t.Fatalf("%d numbers, cut at %d of %d: no error", n, cut, len(data))
			}
		}
	}
	for _, c := range []struct {
		data []byte
		n    int
		want string
	}{
		{deltaEncoded([]int64{1, 2}, 128, 4), 3, "a page of 3 values holds 2"},
		{deltaEncoded([]int64{1, 2}, 128, 4), 1, "a page of 1 values holds 2"},
		{deltaEncoded([]int64{1}, 1<<17, 4), 1, "delta-coded blocks of 131072 values in 4 parts, expected 1 to 65536 values in parts of a multiple of 8"},
		{[]byte{128, 1, 0, 1, 0}, 1, "delta-coded blocks of 128 values in 0 parts, expected 1 to 65536 values in parts of a multiple of 8"},
		{[]byte{4, 1, 1, 0}, 1, "delta-coded blocks of 4 values in 1 parts, expected 1 to 65536 values in parts of a multiple of 8"},
	} {
		if _, _, err := decodeDelta(nil, c.data, c.n); err == nil || err.Error() != c.want {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}

// A struct is well formed only if everything that it claims is there.
func TestWellFormed(t *testing.T) {
	list := []byte{0x19, 0xf5, 3, 2, 4, 6, 0} // field 1: a list of three integers; the end
	for n := range len(list) + 1 {
		if got, want := wellFormed(list[:n]), n == len(list); got != want {
			t.Errorf("first %d bytes: %v", n, got)
		}
	}
	for name, data := range map[string][]byte{
		"a list of 2^63 elements":    append([]byte{0x19, 0xf3}, binary.AppendUvarint(nil, 1<<63)...),
		"a text longer than data":    {0x18, 9, 'a', 0},
		"an unknown type":            {0x1d, 0},
		"structs within structs":     slices.Repeat([]byte{0x1c}, 1000),
		"lists of lists of no depth": append(slices.Repeat([]byte{0x19}, 1000), 0),
	} {
		if wellFormed(data) {
			t.Errorf("%s passes", name)
		}
	}
}
