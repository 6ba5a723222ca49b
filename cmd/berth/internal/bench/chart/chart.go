package chart

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
	"text/template"
)

// Point is one value over another.
type Point struct{ X, Y float64 }

// Line is points, in order of X.
type Line struct {
	Name   string
	Points []Point
	// Baseline is what the line before it is compared with, and is dashed in the
	// same colour; it is grey where it comes first, for all.
	Baseline bool
	// Marked has each point shown.
	Marked bool
}

// Chart is lines over two axes.
type Chart struct {
	Title string
	X, Y  Axis
	Lines []Line
}

// The measures, in the units of the drawing.
const (
	width, height            = 720.0, 380.0
	left, right, top, bottom = 72.0, 190.0, 44.0, 52.0
	legendStep               = 34.0
	// colours is how many the style has.
	colours = 5
)

//go:embed chart.svg.tmpl
var text string

var drawing = template.Must(template.New("chart").Parse(text))

// tick is a line across the frame with its label.
type tick struct {
	At    string
	Label string
}

// drawn is a line as the template has it.
type drawn struct {
	Class, Path string
	Marks       []Point
	// Words are the name in lines of the legend, which begins at Y.
	Words []string
	Y     float64
}

// Write draws the chart.
func (c Chart) Write(w io.Writer) error {
	var xs, ys []float64
	for _, l := range c.Lines {
		for _, p := range l.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	x, y := c.X.fit(xs), c.Y.fit(ys)
	place := func(p Point) Point {
		return Point{left + x.at(p.X)*(width-left-right), height - bottom - y.at(p.Y)*(height-top-bottom)}
	}
	var across, up []tick
	for _, v := range x.ticks {
		across = append(across, tick{coordinate(place(Point{v, y.from}).X), label(v)})
	}
	for _, v := range y.ticks {
		up = append(up, tick{coordinate(place(Point{x.from, v}).Y), label(v)})
	}
	var lines []drawn
	class, used := "all", 0
	for i, l := range c.Lines {
		d := drawn{Class: class + " base", Words: wrap(l.Name, 24), Y: top + 10 + float64(i)*legendStep}
		if !l.Baseline {
			class = fmt.Sprint("c", used%colours)
			d.Class = class
			used++
		}
		var path strings.Builder
		for _, p := range l.Points {
			if !x.shows(p.X) || !y.shows(p.Y) {
				continue
			}
			at := place(p)
			command := "L"
			if path.Len() == 0 {
				command = "M"
			}
			path.WriteString(command + coordinate(at.X) + " " + coordinate(at.Y))
			if l.Marked {
				d.Marks = append(d.Marks, at)
			}
		}
		d.Path = path.String()
		lines = append(lines, d)
	}
	return drawing.Execute(w, map[string]any{
		"Chart": c, "Across": across, "Up": up, "Lines": lines, "Width": width, "Height": height,
		"Left": left, "Right": width - right, "Top": top, "Bottom": height - bottom, "Legend": width - right + 16,
		"Middle": left + (width-left-right)/2, "Centre": top + (height-top-bottom)/2,
	})
}

// coordinate is a number of the drawing, no finer than can be seen.
func coordinate(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// wrap breaks a name into lines of about n characters.
func wrap(name string, n int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(name) {
		if line != "" && len(line)+1+len(word) > n {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}
