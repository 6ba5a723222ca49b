package chart

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/template"

	"github.com/dustin/go-humanize"
)

// Point is a point of a line: the value Y at the position X.
type Point struct{ X, Y float64 }

// Line is a list of points in order of X.
type Line struct {
	Name   string
	Points []Point
	// Baseline marks the line as the baseline of the line before it. A baseline is dashed
	// and has the color of the line before it. If the first line is a baseline, it is
	// gray.
	Baseline bool
	// Marked draws a circle at each point.
	Marked bool
}

// Axis is the horizontal or the vertical axis.
type Axis struct {
	// Label names the quantity and its unit.
	Label string
	// Log makes the axis logarithmic. The chart omits points that are not above 0.
	Log bool
	// To is the minimum upper end of a linear axis. A linear axis begins at 0.
	To float64
}

// Chart has lines over two axes.
type Chart struct {
	Title string
	X, Y  Axis
	Lines []Line
}

// Sizes in units of the drawing.
const (
	width, height            = 780.0, 380.0
	left, right, top, bottom = 72.0, 240.0, 44.0, 52.0
	// colors is the number of colors in the template.
	colors = 5
)

//go:embed chart.svg.tmpl
var text string

var drawing = template.Must(template.New("chart").Funcs(template.FuncMap{
	"label": humanize.Commaf,
	"row":   func(i int) float64 { return top + 10 + 22*float64(i) },
}).Parse(text))

// ticks returns the values at which the axis has a tick. All values lie between the
// first and the last tick.
func (a Axis) ticks(values []float64) (ticks []float64) {
	if !a.Log {
		to := slices.Max(append(values, a.To))
		return []float64{0, to / 4, to / 2, to * 3 / 4, to}
	}
	if len(values) == 0 {
		values = []float64{1}
	}
	from, to := math.Floor(math.Log10(slices.Min(values))), math.Ceil(math.Log10(slices.Max(values)))
	for decade := from; decade <= max(to, from+1); decade++ {
		for _, step := range []int{1, 3} {
			if step == 1 || to-from <= 3 && decade < max(to, from+1) {
				tick, _ := strconv.ParseFloat(fmt.Sprintf("%de%.0f", step, decade), 64) // a valid number
				ticks = append(ticks, tick)
			}
		}
	}
	return ticks
}

// at returns a function that converts a value to its coordinate on an axis that begins at
// origin and has a length.
func (a Axis) at(ticks []float64, origin, length float64) func(float64) string {
	scale := func(v float64) float64 { return v }
	if a.Log {
		scale = math.Log10
	}
	from, to := scale(ticks[0]), scale(ticks[len(ticks)-1])
	return func(v float64) string { return fmt.Sprintf("%.1f", origin+length*(scale(v)-from)/(to-from)) }
}

// Write draws the chart.
func (c Chart) Write(w io.Writer) error {
	var xs, ys []float64
	var classes []string
	class, used := "all", 0
	c.Lines = slices.Clone(c.Lines)
	for i, l := range c.Lines {
		l.Points = slices.DeleteFunc(slices.Clone(l.Points), func(p Point) bool {
			return c.X.Log && p.X <= 0 || c.Y.Log &&
				p.Y <= 0
		})
		for _, p := range l.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
		c.Lines[i] = l
		if !l.Baseline {
			class = fmt.Sprint("c", used%colors)
			used++
			classes = append(classes, class)
		} else {
			classes = append(classes, class+" base")
		}
	}
	x, y := c.X.ticks(xs), c.Y.ticks(ys)
	return drawing.Execute(w, map[string]any{
		"Chart": c, "Classes": classes, "Xs": x, "Ys": y,
		"X": c.X.at(x, left, width-left-right), "Y": c.Y.at(y, height-bottom, top+bottom-height),
		"Width": width, "Height": height, "Left": left, "Right": width - right, "Top": top, "Bottom": height - bottom,
	})
}
