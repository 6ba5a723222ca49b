package chart

import (
	"math"
	"strconv"
	"strings"
)

// Axis is one of the two.
type Axis struct {
	// Label names what it is of, with its unit.
	Label string
	// Log has each step be a multiple of the last one. Values that are not above 0
	// are not drawn then.
	Log bool
	// From and To are what it reaches to at least; only the values count unless
	// given.
	From, To float64
}

// scale is an axis with its range.
type scale struct {
	log      bool
	from, to float64
	ticks    []float64
}

// fit makes a scale that holds all values, and ends at ticks.
func (a Axis) fit(values []float64) scale {
	from, to := math.Inf(1), math.Inf(-1)
	if a.From != a.To {
		values = append(values[:len(values):len(values)], a.From, a.To)
	}
	for _, v := range values {
		if !a.Log || v > 0 {
			from, to = min(from, v), max(to, v)
		}
	}
	switch {
	case math.IsInf(from, 1):
		from, to = 1, 10
	case from == to && a.Log:
		from, to = from/2, to*2
	case from == to:
		from, to = min(0, from), max(0, to)+1
	}
	if a.Log {
		return logarithmic(from, to)
	}
	return linear(from, to)
}

// mostTicks is how many an axis has room for.
const mostTicks = 7

// logarithmic has ticks at powers of ten, and at 2 and 5 times those if they are
// few.
func logarithmic(from, to float64) scale {
	for _, steps := range [][]float64{{1, 2, 5}, {1, 3}, {1}} {
		s := scale{log: true}
		for decade := math.Floor(math.Log10(from)); decade <= math.Ceil(math.Log10(to)); decade++ {
			for _, step := range steps {
				s.ticks = append(s.ticks, step*math.Pow(10, decade))
			}
		}
		for len(s.ticks) > 2 && s.ticks[1] <= from*(1+1e-9) {
			s.ticks = s.ticks[1:]
		}
		for len(s.ticks) > 2 && s.ticks[len(s.ticks)-2] >= to*(1-1e-9) {
			s.ticks = s.ticks[:len(s.ticks)-1]
		}
		s.from, s.to = s.ticks[0], s.ticks[len(s.ticks)-1]
		if len(s.ticks) <= mostTicks || len(steps) == 1 {
			return s
		}
	}
	panic("unreachable: the last steps are taken")
}

// linear has ticks at multiples of 1, 2 or 5 times a power of ten.
func linear(from, to float64) scale {
	step := math.Pow(10, math.Floor(math.Log10(to-from))-1)
	for _, more := range []float64{2, 2.5, 2, 2, 2.5, 2} {
		if (to-from)/step <= mostTicks-1 {
			break
		}
		step *= more
	}
	s := scale{from: math.Floor(from/step) * step, to: math.Ceil(to/step) * step}
	for i := 0.0; s.from+i*step <= s.to+step/2; i++ {
		s.ticks = append(s.ticks, s.from+i*step)
	}
	return s
}

// at is where a value lies, from 0 to 1.
func (s scale) at(v float64) float64 {
	if s.log {
		return (math.Log10(v) - math.Log10(s.from)) / (math.Log10(s.to) - math.Log10(s.from))
	}
	return (v - s.from) / (s.to - s.from)
}

// shows says whether a value can be drawn.
func (s scale) shows(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) && (!s.log || v > 0) }

// label is a value at a tick: rounded, with commas between thousands.
func label(v float64) string {
	text := strconv.FormatFloat(v, 'g', 6, 64)
	if strings.Contains(text, "e") {
		text = strconv.FormatFloat(v, 'f', -1, 64)
	}
	whole, fraction, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		return whole + "." + fraction
	}
	return whole
}
