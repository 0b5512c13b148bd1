package page

import (
	"bytes"
	"image/color"
	"io"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

const (
	stillWidth = 8 * vg.Inch // a page of a paper
	partHeight = 2.3 * vg.Inch
	curvesPart = 0.8 * vg.Inch // four rows of names of curves
	coloursRow = 0.34 * vg.Inch
	// stillDPI is for screens and print alike: 1,600 pixels in all.
	stillDPI = 200
	// rasterScale is the pixels of a picture by address for each point: as stillDPI has.
	rasterScale = stillDPI / 72.0
	// stillPoints are the points of a curve: more than two for each pixel.
	stillPoints = 4000
)

// WritePNG writes a still picture: memory over time, the plan, and what was recorded.
func (d *Device) WritePNG(w io.Writer) error {
	c := vgimg.NewWith(vgimg.UseWH(stillWidth, d.stillHeight()), vgimg.UseDPI(stillDPI))
	if err := d.drawStill(draw.New(c)); err != nil {
		return err
	}
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(w)
	return err
}

// WriteSVG writes the same picture as SVG. The axes and curves are lines; the pictures by
// address are images in it, since a shape for each of a million buffers would open nowhere.
func (d *Device) WriteSVG(w io.Writer) error {
	c := vgsvg.New(stillWidth, d.stillHeight())
	if err := d.drawStill(draw.New(c)); err != nil {
		return err
	}
	var out bytes.Buffer
	if _, err := c.WriteTo(&out); err != nil {
		return err
	}
	// Arial and Helvetica have the same widths.
	_, err := w.Write(bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")))
	return err
}

func (d *Device) stillHeight() vg.Length {
	n := vg.Length(2)
	if d.Held > 0 {
		n = 3
	}
	return n*partHeight + curvesPart + coloursRow
}

func (d *Device) drawStill(c draw.Canvas) error {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	chart, names, err := d.chart()
	if err != nil {
		return err
	}
	height := max(1, d.Arena, d.Held)
	rows := []*plot.Plot{chart, d.picture("Plan: "+report.Bytes(d.Figures.Diff.Plan.PlanBytes)+", address by time", height, d.drawPlan)}
	if d.Held > 0 {
		title := "Recorded (" + d.Figures.Diff.Recorded.Title + "): " + report.Bytes(d.Figures.Diff.Recorded.PeakReserved) + " reserved, segments by time"
		rows = append(rows, d.picture(title, height, d.drawRecorded))
	}
	rows[len(rows)-1].X.Label.Text = "event of the recording"
	grid := make([][]*plot.Plot, len(rows))
	for i := range rows {
		grid[i] = rows[i : i+1]
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadTop: 2, PadRight: 16, PadLeft: 6, PadY: 10}
	for i, row := range plot.Align(grid, tiles, draw.Crop(c, 0, 0, coloursRow, -curvesPart)) {
		rows[i].Draw(row[0])
	}
	d.nameCurves(draw.Crop(c, 60, 0, c.Max.Y-c.Min.Y-curvesPart, -6), names)
	d.nameColours(draw.Crop(c, 16, -6, 0, 0))
	return nil
}

// sans makes a text's font one without serifs, of a size in points.
func sans(style *text.Style, size vg.Length) {
	style.Font.Variant, style.Font.Size = "Sans", size
}

// newPlot has the axes that all parts share.
func (d *Device) newPlot(title string, most float64) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.Title.Text, p.Title.Padding = title, 4
	sans(&p.Title.TextStyle, 9.5)
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(eventTicks), plot.TickerFunc(byteTicks)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Padding = 0
		sans(&a.Tick.Label, 8)
		sans(&a.Label.TextStyle, 8.5)
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, float64(d.Events), 0, most
	return p
}

// curveLooks are the colour, dashes and width of each curve, as on the page.
var curveLooks = map[string]draw.LineStyle{
	"allocated":  {Color: color.RGBA{0x00, 0x9e, 0x73, 255}, Width: 0.4},
	"recorded":   {Color: color.RGBA{0xd5, 0x5e, 0x00, 255}, Width: 1.2},
	"native":     {Color: color.RGBA{0xe6, 0x9f, 0x00, 255}, Width: 1.2, Dashes: []vg.Length{5, 2}},
	"expandable": {Color: color.RGBA{0xcc, 0x79, 0xa7, 255}, Width: 1.2, Dashes: []vg.Length{1.5, 2}},
	"pool":       {Color: color.RGBA{0x56, 0xb4, 0xe9, 255}, Width: 1.2, Dashes: []vg.Length{6, 2, 1.5, 2}},
	"plan":       {Color: color.RGBA{0x00, 0x72, 0xb2, 255}, Width: 1.8},
}

var (
	anyLook   = draw.LineStyle{Color: color.RGBA{0x7a, 0x5c, 0xc7, 255}, Width: 1.2, Dashes: []vg.Length{3, 1.5}}
	boundLook = draw.LineStyle{Color: color.Black, Width: 0.7, Dashes: []vg.Length{0.7, 2}}
	heldFill  = color.RGBA{0xa6, 0xdc, 0xcc, 255}
)

// named is a curve with its name.
type named struct {
	text string
	line *plotter.Line
}

// chart is memory over time.
func (d *Device) chart() (*plot.Plot, []named, error) {
	most := float64(d.Bound.Bytes)
	for i := range d.curves {
		most = max(most, float64(d.curves[i].Peak()))
	}
	p := d.newPlot("Memory over time", 1.08*most)
	var names []named
	add := func(title string, peak int64, points plotter.XYs, look draw.LineStyle) (*plotter.Line, error) {
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		line.StepStyle, line.LineStyle = plotter.PostStep, look
		p.Add(line)
		names = append(names, named{title + ", " + report.Bytes(peak), line})
		return line, nil
	}
	for i := range d.curves {
		c := &d.curves[i]
		look, known := curveLooks[c.Key]
		if !known {
			look = anyLook
		}
		line, err := add(c.Title, int64(c.Peak()), d.steps(c), look)
		if err != nil {
			return nil, nil, err
		}
		if i == 0 {
			line.FillColor = heldFill
		}
	}
	bound := float64(d.Bound.Bytes)
	_, err := add("lower bound", int64(d.Bound.Bytes), plotter.XYs{{X: 0, Y: bound}, {X: float64(d.Events), Y: bound}}, boundLook)
	return p, names, err
}

// steps are the points of a curve, to the end of the recording.
func (d *Device) steps(c *Curve) plotter.XYs {
	var out plotter.XYs
	if len(c.points) == 0 || c.points[0].at > 0 {
		out = plotter.XYs{{}}
	}
	for _, p := range c.bounded(stillPoints) {
		out = append(out, plotter.XY{X: float64(p.at), Y: float64(p.v)})
	}
	return append(out, plotter.XY{X: float64(d.Events), Y: out[len(out)-1].Y})
}

// picture is one of the pictures by address, with room for height units.
func (d *Device) picture(title string, height uint32, paint func(*raster)) *plot.Plot {
	p := d.newPlot(title, float64(height)*float64(trace.Granularity))
	p.Add(&painting{d, height, paint})
	return p
}

// painting draws a raster that has the shape of its plot: SVG keeps an image's proportions.
type painting struct {
	d      *Device
	height uint32
	paint  func(*raster)
}

// Plot is plot.Plotter's.
func (g *painting) Plot(c draw.Canvas, _ *plot.Plot) {
	size := c.Rectangle.Size()
	r := g.d.newRaster(max(1, int(size.X*rasterScale)), max(1, int(size.Y*rasterScale)), g.height)
	g.paint(r)
	c.DrawImage(c.Rectangle, r.RGBA)
}

// caption is the style of what names curves and colours.
func caption() text.Style {
	style := plot.New().Legend.TextStyle
	sans(&style, 8)
	style.YAlign = draw.YCenter
	return style
}

// nameCurves names the curves in two columns.
func (d *Device) nameCurves(c draw.Canvas, names []named) {
	const sample, row, columns = 22, 12, 2 // points, points
	style, width := caption(), (c.Max.X-c.Min.X)/columns
	for i, n := range names {
		x, y := c.Min.X+width*vg.Length(i%columns), c.Max.Y-row*vg.Length(1+i/columns)
		if n.line.FillColor != nil {
			fillBox(c, heldFill, x, y-3.5, sample, 7)
		} else {
			c.StrokeLine2(n.line.LineStyle, x, y, x+sample, y)
		}
		c.FillText(style, vg.Point{X: x + sample + 5, Y: y}, n.text)
	}
}

func fillBox(c draw.Canvas, colour color.Color, x, y, width, height vg.Length) {
	c.FillPolygon(colour, []vg.Point{{X: x, Y: y}, {X: x + width, Y: y}, {X: x + width, Y: y + height}, {X: x, Y: y + height}})
}

// nameOfColour is a colour's name, and where it begins in its row.
type nameOfColour struct {
	colour color.Color
	name   string
	x      vg.Length
}

const (
	colourBox, colourGap = 7, 13 // points
	colourRow            = 11    // points from row to row; coloursRow has room for two
)

// colourNames arranges the names of the colours in rows as wide as a canvas.
func (d *Device) colourNames(c draw.Canvas, style *text.Style) [][]nameOfColour {
	used := map[uint32]bool{}
	for _, k := range d.buffers.kind {
		used[k&15] = true
	}
	rows, x := [][]nameOfColour{nil}, c.Min.X
	entry := func(colour color.Color, name string) {
		width := colourBox + 4 + style.Width(name)
		if last := len(rows) - 1; x+width > c.Max.X && len(rows[last]) > 0 {
			rows, x = append(rows, nil), c.Min.X
		}
		last := len(rows) - 1
		rows[last] = append(rows[last], nameOfColour{colour, name, x})
		x += width + colourGap
	}
	for k, name := range d.Names.Categories {
		if used[uint32(k)] {
			entry(categoryColours[k], name)
		}
	}
	if d.Held > 0 {
		entry(hatchColour, "reserved and free")
	}
	entry(arenaColour, "free in the plan")
	return rows
}

// nameColours names the colours, in the middle of their rows' part.
func (d *Device) nameColours(c draw.Canvas) {
	style := caption()
	rows := d.colourNames(c, &style)
	top := c.Min.Y + (coloursRow-colourBox+colourRow*vg.Length(len(rows)-1))/2
	for i, row := range rows {
		y := top - colourRow*vg.Length(i)
		for _, n := range row {
			fillBox(c, n.colour, n.x, y, colourBox, colourBox)
			c.FillText(style, vg.Point{X: n.x + colourBox + 4, Y: y + colourBox/2}, n.name)
		}
	}
}

// eventTicks are round events.
func eventTicks(low, high float64) []plot.Tick {
	return round(low, high, 1, 8, func(v float64, _ int) string { return report.Count(int64(v)) })
}

// byteTicks are round numbers of the unit that suits the range.
func byteTicks(low, high float64) []plot.Tick {
	names, unit, k := []string{"B", "KiB", "MiB", "GiB", "TiB"}, 1.0, 0
	for ; (high-low)/unit >= 2048 && k+1 < len(names); k++ {
		unit *= 1024
	}
	return round(low, high, unit, 5, func(v float64, digits int) string {
		if v == 0 {
			return "0"
		}
		return strconv.FormatFloat(v, 'f', digits, 64) + " " + names[k]
	})
}

// round are about n multiples of 1, 2 or 5 times a power of ten units.
func round(low, high, unit, n float64, label func(v float64, digits int) string) []plot.Tick {
	rough := (high - low) / unit / n
	if !(rough > 0) {
		return nil
	}
	ten := math.Pow(10, math.Floor(math.Log10(rough)))
	step := ten
	for _, k := range []float64{1, 2, 5, 10} {
		if step = k * ten; step >= rough {
			break
		}
	}
	digits := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	var out []plot.Tick
	for v := math.Ceil(low/unit/step) * step; v*unit <= high; v += step {
		out = append(out, plot.Tick{Value: v * unit, Label: label(v, digits)})
	}
	return out
}
