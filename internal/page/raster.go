package page

import (
	"image"
	"image/color"

	"github.com/stplan/stplan/internal/trace"
)

// The page's palette (assets/colours.js): people with any colour vision tell it apart.
var (
	categoryColours = []color.RGBA{
		{0x00, 0x72, 0xb2, 255}, {0xe6, 0x9f, 0x00, 255}, {0xcc, 0x79, 0xa7, 255}, {0x00, 0x9e, 0x73, 255},
		{0x56, 0xb4, 0xe9, 255}, {0x8a, 0x90, 0x99, 255}, {0xd5, 0x5e, 0x00, 255},
	}
	freeColour  = color.RGBA{0xd4, 0xd8, 0xde, 255}
	hatchColour = color.RGBA{0xa8, 0xb0, 0xba, 255}
	arenaColour = color.RGBA{0xee, 0xf1, 0xf5, 255}
)

// raster is a picture, time by address, drawn as the page does (assets/raster.js): each
// column shows the event of its stretch with the most allocated bytes.
type raster struct {
	*image.RGBA
	instants []uint32
	height   uint32 // in units
}

func (d *Device) newRaster(width, height int, units uint32) *raster {
	return &raster{image.NewRGBA(image.Rect(0, 0, width, height)), d.instants(width), units}
}

// instants is the event that each of n columns shows.
func (d *Device) instants(n int) []uint32 {
	out := make([]uint32, n)
	points := d.curves[0].points // what the program held
	next, now := 0, trace.Bytes(0)
	for c := range out {
		from, to := d.Events*int64(c)/int64(n), d.Events*int64(c+1)/int64(n)
		best, most := from, now
		for ; next < len(points) && int64(points[next].at) < to; next++ {
			now = points[next].v
			if now > most || int64(points[next].at) <= from {
				best, most = int64(points[next].at), now
			}
		}
		out[c] = uint32(max(from, best))
	}
	return out
}

// column is the first column that shows event t or a later one.
func (r *raster) column(t uint32) int {
	low, high := 0, len(r.instants)
	for low < high {
		if mid := (low + high) / 2; r.instants[mid] < t {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// row is the first row from the top whose middle is below an address.
func (r *raster) row(units uint32) int {
	h := r.Bounds().Dy()
	y := float64(h)*(1-float64(units)/float64(r.height)) + 0.5
	return min(max(0, int(y)), h)
}

// fill paints what lies at an address from start to end. Of every step-th diagonal the
// pixels are in the other colour; 0 is none.
func (r *raster) fill(start, end, address, units uint32, c, other color.RGBA, step int) {
	bottom := r.row(address)
	for x := r.column(start); x < r.column(end); x++ {
		for y := r.row(address + units); y < bottom; y++ {
			if step > 0 && (x+y)%step == 0 {
				r.SetRGBA(x, y, other)
			} else {
				r.SetRGBA(x, y, c)
			}
		}
	}
}

// drawPlan draws the buffers at their addresses in the plan.
func (d *Device) drawPlan(r *raster) {
	r.fill(0, uint32(d.Events), 0, d.Arena, arenaColour, arenaColour, 0)
	ends := d.buffers.freed
	if d.End == "completed" {
		ends = d.buffers.reusable
	}
	d.drawBuffers(r, d.buffers.place, ends)
}

// drawRecorded draws the segments and the buffers in them.
func (d *Device) drawRecorded(r *raster) {
	const step = 9 // pixels between two lines of the hatching
	for i := range d.places {
		p := &d.places[i]
		r.fill(uint32(p.start), uint32(p.end), units(p.place), units(p.size), freeColour, hatchColour, step)
	}
	d.drawBuffers(r, d.buffers.recorded, d.buffers.reusable)
}

func (d *Device) drawBuffers(r *raster, addresses, ends []uint32) {
	b := &d.buffers
	for i, a := range addresses {
		if a != nowhere {
			c := categoryColours[b.kind[i]&15]
			r.fill(b.start[i], ends[i], a, b.units[i], c, c, 0)
		}
	}
}
