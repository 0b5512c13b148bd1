package page

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/color"
	"image/png"
	"io"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/stplan/stplan/internal/planfile"
)

// TestRasterShowsTheBuffers looks at random pixels: each has the colour of the buffer at its
// address at the event of its column, found by looking at all buffers.
func TestRasterShowsTheBuffers(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for name, mode := range examples {
		_, d := example(t, name, mode)
		r := d.newRaster(211, 97, d.Arena)
		d.drawPlan(r)
		for c := 1; c < len(r.instants); c++ {
			if r.instants[c] <= r.instants[c-1] {
				t.Fatalf("%s: column %d shows event %d after %d", name, c, r.instants[c], r.instants[c-1])
			}
		}
		for range 2000 {
			x, y := random.IntN(211), random.IntN(97)
			address := float64(d.Arena) * (1 - (float64(y)+0.5)/97)
			if got, want := r.RGBAAt(x, y), d.colourAt(r.instants[x], address); got != want {
				t.Fatalf("%s: pixel %d,%d at event %d, address %.1f is %v, expected %v", name, x, y, r.instants[x], address, got, want)
			}
		}
	}
}

// colourAt is the colour of what lies at an address of the plan.
func (d *Device) colourAt(event uint32, address float64) color.RGBA {
	b := &d.buffers
	for i, a := range b.place {
		if a != nowhere && b.start[i] <= event && event < b.freed[i] && float64(a) <= address && address < float64(a+b.units[i]) {
			return categoryColours[b.kind[i]&15]
		}
	}
	return arenaColour
}

// TestRasterShowsThePeak: of all columns, one shows the event of the largest load.
func TestRasterShowsThePeak(t *testing.T) {
	in, d := example(t, "resnet50", planfile.ModePeriodic)
	peak := in.Recording.Timeline.PeakAllocated
	points := d.curves[0].points
	for _, n := range []int{1, 7, 100, 1000} {
		found := false
		for _, event := range d.instants(n) {
			found = found || loadAt(points, int64(event)) == int64(peak.Bytes)
		}
		if !found {
			t.Errorf("none of %d columns shows the peak", n)
		}
	}
}

func loadAt(points []point, event int64) int64 {
	v := int64(0)
	for _, p := range points {
		if int64(p.at) <= event {
			v = int64(p.v)
		}
	}
	return v
}

// TestColoursAreAllNamed: the names of all colours are within the picture, and there is room for
// their rows.
func TestColoursAreAllNamed(t *testing.T) {
	_, d := example(t, "lora-oom", planfile.ModeRecorded)
	for k := range d.Names.Categories { // each has a colour
		d.buffers.kind[k] = uint32(k)
	}
	style := caption()
	c := draw.Crop(draw.New(vgsvg.New(stillWidth, d.stillHeight())), 16, -6, 0, 0)
	rows := d.colourNames(c, &style)
	names := 0
	for _, row := range rows {
		names += len(row)
		for _, n := range row {
			if end := n.x + colourBox + 4 + style.Width(n.name); n.x < c.Min.X || end > c.Max.X {
				t.Errorf("%q is from %.0f to %.0f points, expected %.0f to %.0f", n.name, n.x, end, c.Min.X, c.Max.X)
			}
		}
	}
	if want := len(d.Names.Categories) + 2; names != want || colourRow*vg.Length(len(rows)-1)+colourBox > coloursRow {
		t.Errorf("%d names in %d rows, expected %d in rows of %.0f points within %.1f", names, len(rows), want, vg.Length(colourRow), float64(coloursRow))
	}
}

// TestStills: the PNG is one, the SVG is XML, and both are the same the second time.
func TestStills(t *testing.T) {
	_, d := example(t, "lora-oom", planfile.ModeRecorded)
	for _, write := range []func(io.Writer) error{d.WritePNG, d.WriteSVG} {
		var out, again bytes.Buffer
		if err := errors.Join(write(&out), write(&again)); err != nil || !bytes.Equal(out.Bytes(), again.Bytes()) {
			t.Fatalf("another picture the second time: %v", err)
		}
		if image, err := png.Decode(bytes.NewReader(out.Bytes())); err == nil {
			if image.Bounds().Dx() != 1600 {
				t.Errorf("%v, expected 1600 pixels across", image.Bounds())
			}
			continue
		}
		for dec := xml.NewDecoder(&out); ; {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}
