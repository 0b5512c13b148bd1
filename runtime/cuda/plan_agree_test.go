//go:build cgo

package cuda

import (
	"encoding/binary"
	"errors"
	"hash/crc64"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// TestReadersAgree changes good plans in one to three places, mends the
// checksum, and demands that the C reader and the Go reader judge alike.
func TestReadersAgree(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	rng := rand.New(rand.NewPCG(1, 0))
	refused := 0
	for _, name := range []string{"ok-sample.vec", "ok-several.vec", "ok-periodic.vec", "ok-periodic-completed.vec", "ok-periodic-words.vec", "ok-shared.vec"} {
		_, good := readVector(t, filepath.Join(vectors, name))
		for range rounds {
			data := change(good, rng)
			want := "ok"
			var bad *planfile.FormatError
			if _, err := planfile.Decode(data); errors.As(err, &bad) {
				want = string(bad.Class)
				refused++
			}
			if got := classOf(t, data); got != want {
				t.Fatalf("%s: the C reader says %s, the Go reader %s: %v\n%x", name, got, want, bad, data)
			}
		}
	}
	if refused < rounds {
		t.Errorf("only %d of %d changed plans were refused", refused, 6*rounds)
	}
}

// change returns a copy of a plan with other numbers here and there, and the
// checksum that belongs to them.
func change(good []byte, rng *rand.Rand) []byte {
	data := append([]byte{}, good...)
	for range 1 + rng.IntN(3) {
		at := 32 + 4*rng.IntN((len(data)-32)/4)
		old := binary.LittleEndian.Uint32(data[at:])
		values := []uint32{old + 1, old - 1, old ^ 1<<rng.IntN(32), 0, 1 << 31, 0xffffffff, rng.Uint32(), binary.LittleEndian.Uint32(data[32+4*rng.IntN((len(data)-32)/4):])}
		binary.LittleEndian.PutUint32(data[at:], values[rng.IntN(len(values))])
	}
	const checksumAt = 24
	var sum [8]byte
	copy(data[checksumAt:], sum[:])
	binary.LittleEndian.PutUint64(data[checksumAt:], crc64.Checksum(data, crc64.MakeTable(crc64.ECMA)))
	return data
}
