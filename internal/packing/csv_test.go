package packing

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadCSVTakesColumnsInAnyOrder(t *testing.T) {
	want := []Buffer{{Start: 0, End: 3, Size: 4}, {Start: 3, End: 9, Size: 5}}
	for _, text := range []string{
		"id,lower,upper,size\nb1,0,3,4\nb2,3,9,5\n",
		"id,lower,upper,size\r\nb1,0,3,4\r\nb2,3,9,5",
		"size,upper,lower,id\n4,3,0,b1\n5,9,3,b2\n",
		"id, lower, upper, size\nb1 , 0, 3, 4\nb2,\t3,9,5\n",
		"id,lower,offset,upper,size\nb1,0,7,3,4\nb2,3,0,9,5\n",
	} {
		ids, p, err := ReadCSV(strings.NewReader(text), "in.csv")
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if !slices.Equal(ids, []string{"b1", "b2"}) || !slices.Equal(p.Buffers, want) || p.Alignment != 1 {
			t.Errorf("%q: found ids %v, alignment %d, buffers %v", text, ids, p.Alignment, p.Buffers)
		}
	}
}

func TestReadCSVSaysWhereAndWhat(t *testing.T) {
	const head = "id,lower,upper,size\n"
	for _, c := range []struct{ text, want string }{
		{"", "in.csv: line 1, column 1: expected the header id,lower,upper,size, found the end of the file"},
		{"\n" + head, "in.csv: line 1, column 1: expected a row, found an empty line"},
		{"id,lower,upper\n", "in.csv: line 1, column 1: expected a column size in the header, found none"},
		{strings.Repeat("x", 1000) + "\n", `in.csv: line 1, column 1: expected a column of id, lower, upper, size, offset, found "` + strings.Repeat("x", 40) + `…"`},
		{"id,lower,upper,size,gap\n", `in.csv: line 1, column 21: expected a column of id, lower, upper, size, offset, found "gap"`},
		{"id,lower,lower,size\n", "in.csv: line 1, column 10: expected column lower once, found it again"},
		{"\ufeffid,lower,upper,size\n", `in.csv: line 1, column 1: expected a column of id, lower, upper, size, offset, found "\ufeffid"`},
		{head + "b1,0,3\n", "in.csv: line 2, column 1: expected 4 fields, found 3"},
		{head + "b1,0,3,4,5\n", "in.csv: line 2, column 1: expected 4 fields, found 5"},
		{head + "b1,0,3,four\n", `in.csv: line 2, column 8: size: expected an integer, found "four"`},
		{head + "b1,0,3, 4.5\n", `in.csv: line 2, column 9: size: expected an integer, found "4.5"`},
		{head + "b1,0,3,\n", `in.csv: line 2, column 8: size: expected an integer, found ""`},
		{head + "b1,0,3,9223372036854775808\n", `in.csv: line 2, column 8: size: expected an integer of 64 bits, found "9223372036854775808"`},
		{head + "b1,-1,3,4\n", "in.csv: line 2, column 4: lower: expected 0 or later, found -1"},
		{head + "b1,3,3,4\n", "in.csv: line 2, column 6: upper: expected more than lower 3, found 3"},
		{head + "b1,0,3,0\n", "in.csv: line 2, column 8: size: expected more than 0 bytes, found 0"},
		{head + "b1,0,3,4\n\nb2,0,3,4\n", "in.csv: line 3, column 1: expected a row, found an empty line"},
		{head + "b1,0,3,4\n \t\n", "in.csv: line 3, column 1: expected a row, found an empty line"},
		{"id,lower,upper,size,offset\nb1,0,3,4,x\n", `in.csv: line 2, column 10: offset: expected an integer, found "x"`},
		{head + strings.Repeat("x", maxLine+1), "in.csv: line 2, column 1: expected a line of at most 65536 bytes, found a longer one"},
	} {
		ids, p, err := ReadCSV(strings.NewReader(c.text), "in.csv")
		var in *InputError
		if err == nil || err.Error() != c.want || !errors.As(err, &in) {
			t.Errorf("%.60q: expected %q, found %v", c.text, c.want, err)
		}
		if ids != nil || p != nil {
			t.Errorf("%.60q: expected no results with an error, found %v and %v", c.text, ids, p)
		}
	}
}

func TestReadCSVPassesOnReadErrors(t *testing.T) {
	broken := errors.New("disk on fire")
	r := io.MultiReader(strings.NewReader("id,lower,upper,size\nb1,0,3,4\n"), iotest.ErrReader(broken))
	_, _, err := ReadCSV(r, "in.csv")
	if want := "in.csv: line 3: cannot read: disk on fire"; err == nil || err.Error() != want || !errors.Is(err, broken) {
		t.Fatalf("expected %q, found %v", want, err)
	}
}

func TestWriteCSVRefusesWhatItCannotWrite(t *testing.T) {
	p := &Problem{Buffers: []Buffer{{Start: 0, End: 1, Size: 1}}}
	pl := Placement{Offsets: []Bytes{0}, Makespan: 1}
	for _, c := range []struct {
		ids  []string
		want string
	}{
		{nil, "expected 1 ids and offsets, one per buffer, found 0 and 1"},
		{[]string{"a,b"}, `buffer 0: expected an id without comma, line break or outer space, found "a,b"`},
		{[]string{"a\n"}, `buffer 0: expected an id without comma, line break or outer space, found "a\n"`},
		{[]string{" a"}, `buffer 0: expected an id without comma, line break or outer space, found " a"`},
	} {
		if err := WriteCSV(io.Discard, c.ids, p, pl); err == nil || err.Error() != c.want {
			t.Errorf("%q: expected %q, found %v", c.ids, c.want, err)
		}
	}
	full := iotest.ErrTimeout
	if err := WriteCSV(failingWriter{full}, []string{"a"}, p, pl); !errors.Is(err, full) {
		t.Errorf("expected the writer's error, found %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// FuzzReadCSV: an instance that can be read can be packed, and the file that is written
// for it reads back as the same buffers.
func FuzzReadCSV(f *testing.F) {
	f.Add("id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\n")
	f.Add("size,upper,offset,id,lower\n4,3,0,b1,0\n")
	f.Add("id,lower,upper,size\nb1,0,9223372036854775807,9223372036854775807\n")
	f.Add("id,lower,upper,size\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		ids, p, err := ReadCSV(strings.NewReader(text), "fuzz")
		if err != nil {
			if ids != nil || p != nil {
				t.Fatalf("expected no results with an error, found %v and %v", ids, p)
			}
			return
		}
		if len(ids) > 100 {
			return
		}
		pl, err := Pack(context.Background(), p, Options{Workers: 1, Capacity: 1<<63 - 1})
		var in *InputError
		if errors.As(err, &in) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := WriteCSV(&out, ids, p, pl); err != nil {
			t.Fatal(err)
		}
		ids2, p2, err := ReadCSV(&out, "again")
		if err != nil || !slices.Equal(ids, ids2) || !reflect.DeepEqual(p, p2) {
			t.Fatalf("read back %v %v: %v", ids2, p2, err)
		}
	})
}
