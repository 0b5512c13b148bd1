package page

import (
	"github.com/stplan/stplan/internal/trace"
)

// Curve is a number of bytes over time: from each point on until the next.
type Curve struct {
	Key, Title string
	points     []point
}

type point struct {
	at trace.Time
	v  trace.Bytes
}

// Set says what the number is from event at on. Of several values at one event the largest
// stays. Times do not go back; those before the recording count as its beginning.
func (c *Curve) Set(at trace.Time, v trace.Bytes) {
	at = max(0, at)
	n := len(c.points)
	switch {
	case n > 0 && c.points[n-1].v == v:
	case n > 0 && c.points[n-1].at == at:
		c.points[n-1].v = max(c.points[n-1].v, v)
	default:
		c.points = append(c.points, point{at, v})
	}
}

// Peak is the largest value.
func (c *Curve) Peak() trace.Bytes {
	var most trace.Bytes
	for _, p := range c.points {
		most = max(most, p.v)
	}
	return most
}

// bounded has at most n points, n even: of each stretch of time the largest value, at its
// own time, and the last.
func (c *Curve) bounded(n int) []point {
	if len(c.points) <= n {
		return c.points
	}
	first, last := c.points[0].at, c.points[len(c.points)-1].at
	stretch := (last-first)/trace.Time(n/2) + 1
	var out []point
	for i := 0; i < len(c.points); {
		end := first + ((c.points[i].at-first)/stretch+1)*stretch
		top := c.points[i]
		for ; i < len(c.points) && c.points[i].at < end; i++ {
			if c.points[i].v > top.v {
				top = c.points[i]
			}
		}
		out = append(out, top)
		if p := c.points[i-1]; p.at > top.at {
			out = append(out, p)
		}
	}
	return out
}

// CurveHeader names a curve whose points are in columns.
type CurveHeader struct {
	Key    string `json:"key"`
	Title  string `json:"title"`
	Points int    `json:"points"`
	Peak   int64  `json:"peak_bytes"`
	// Exact says that no point was left out.
	Exact bool `json:"exact"`
}

// addCurves adds the curves, one after the other.
func (d *Device) addCurves(curves []Curve) {
	var at, low []uint32
	for i := range curves {
		c := &curves[i]
		points := c.bounded(maxCurve)
		d.Curves = append(d.Curves, CurveHeader{c.Key, c.Title, len(points), int64(c.Peak()), len(points) == len(c.points)})
		before := uint32(0)
		for _, p := range points {
			at = append(at, uint32(p.at)-before)
			before = uint32(p.at)
			low = append(low, units(min(p.v, maxUnits*trace.Granularity)))
		}
	}
	d.curves = curves
	d.columns = append(d.columns, column{"curve_step", plain, at}, column{"curve_units", plain, low})
}

// Allocated is what the program held over time.
func Allocated(load []trace.Bytes) Curve {
	c := Curve{Key: "allocated", Title: "allocated by the program"}
	for at, v := range load {
		c.Set(trace.Time(at), v)
	}
	return c
}

// Recorded is what the recorded allocator had reserved over time.
func Recorded(d *trace.Device, title string) Curve {
	c := Curve{Key: "recorded", Title: title}
	var now trace.Bytes
	for i := range d.Initial {
		now += d.Initial[i].Size
	}
	c.Set(0, now)
	for i := range d.Events {
		e := &d.Events[i]
		switch e.Action {
		case trace.ActionSegmentAlloc, trace.ActionSegmentMap:
			now += e.Size
		case trace.ActionSegmentFree, trace.ActionSegmentUnmap:
			now -= e.Size
		default:
			continue
		}
		c.Set(trace.Time(i), now)
	}
	return c
}
