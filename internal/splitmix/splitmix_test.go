package splitmix

import "testing"

// TestSequence: the first numbers from the state 1234567, as the reference
// implementation prints them (Vigna, https://prng.di.unimi.it/splitmix64.c).
func TestSequence(t *testing.T) {
	state := uint64(1234567)
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		if got := Next(&state); got != want {
			t.Errorf("number %d: expected %d, found %d", i, want, got)
		}
	}
	if state := uint64(7); Mix(state) != Next(&state) {
		t.Error("Mix and Next differ")
	}
}
