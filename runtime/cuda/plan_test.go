//go:build cgo

package cuda

import (
	"bufio"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// vectors are the plans that readers in every language have to judge alike.
const vectors = "../../internal/planfile/testdata/vectors"

// TestVectors runs the vectors of docs/planfile.md through the C reader: each is
// accepted, or refused with the class of error that it names.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob(vectors + "/*.vec")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors in %s: %v", vectors, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			expect, data := readVector(t, file)
			if class := classOf(t, data); class != expect {
				t.Errorf("judged %s, expected %s", class, expect)
			}
		})
	}
}

// classOf is what the C reader says of a plan: ok, or the class of the error.
func classOf(t *testing.T, data []byte) string {
	t.Helper()
	d, err := Open(data, 0, Options{Capacity: 1, Granularity: 512})
	if err == nil {
		d.Close()
		return "ok"
	}
	var bad *PlanError
	if !errors.As(err, &bad) {
		return "ok" // a plan without a device 0
	}
	class, _, _ := strings.Cut(bad.Message, ":")
	return class
}

func readVector(t *testing.T, file string) (expect string, data []byte) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for header := true; in.Scan(); {
		line := in.Text()
		switch key, value, _ := strings.Cut(line, ": "); {
		case header && line == "":
			header = false
		case header && key == "expect":
			expect = value
		case !header:
			row, err := hex.DecodeString(line)
			if err != nil {
				t.Fatal(err)
			}
			data = append(data, row...)
		}
	}
	if err := in.Err(); err != nil || expect == "" {
		t.Fatalf("no expectation: %v", err)
	}
	if data == nil {
		data = []byte{}
	}
	return expect, data
}

// TestDamagedPlans cuts a good plan at every byte and flips every bit.
func TestDamagedPlans(t *testing.T) {
	for _, name := range []string{"ok-sample.vec", "ok-periodic.vec", "ok-shared.vec"} {
		_, whole := readVector(t, filepath.Join(vectors, name))
		for n := range whole {
			if class := classOf(t, append([]byte{}, whole[:n]...)); class != "truncated" {
				t.Fatalf("%s: the first %d bytes are judged %s", name, n, class)
			}
		}
		for bit := range 8 * len(whole) {
			bad := append([]byte{}, whole...)
			bad[bit/8] ^= 1 << (bit % 8)
			if classOf(t, bad) == "ok" {
				t.Fatalf("%s: bit %d flipped is accepted", name, bit)
			}
		}
	}
}
