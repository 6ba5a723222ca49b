package chart

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the expected drawing")

// TestDrawing compares one chart of everything with the drawing that was looked at.
func TestDrawing(t *testing.T) {
	c := Chart{
		Title: `Rates & "sizes" <all>`,
		X:     Axis{Label: "workers a batch", Log: true}, Y: Axis{Label: "workers a second", Log: true},
		Lines: []Line{
			{Name: "a level that is there for all of them", Baseline: true, Points: []Point{{1, 1000}, {1000, 1000}}},
			{Name: "Berth", Marked: true, Points: []Point{{1, 470}, {10, 0}, {100, 5490}, {1000, 6994}}},
			{Name: "etcd", Baseline: true, Points: []Point{{1, 5180}, {1000, 5180}}},
		},
	}
	var b strings.Builder
	if err := c.Write(&b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "drawing.svg")
	if *rewrite {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("got:\n%s", got)
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("no XML: %v", err)
		}
	}
}

// TestScales says that a scale holds all values that it shows, ends at ticks, and
// has as many as there is room for.
func TestScales(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 2000 {
		a := Axis{Log: random.IntN(2) == 0}
		if random.IntN(2) == 0 {
			a.To = 1 + 1000*random.Float64()
		}
		values := make([]float64, random.IntN(10))
		for i := range values {
			values[i] = math.Trunc(math.Pow(10, 9*random.Float64()-3)) / 100
			if random.IntN(4) == 0 {
				values[i] = -values[i]
			}
		}
		s := a.fit(values)
		if n := len(s.ticks); n < 2 || n > mostTicks+1 && !a.Log || s.ticks[0] != s.from || math.Abs(s.ticks[n-1]-s.to) > 1e-9*math.Abs(s.to) {
			t.Fatalf("%+v %v: ticks %v of %v to %v", a, values, s.ticks, s.from, s.to)
		}
		for i := range s.ticks[1:] {
			if s.ticks[i] >= s.ticks[i+1] {
				t.Fatalf("%+v %v: ticks %v", a, values, s.ticks)
			}
		}
		for _, v := range values {
			if at := s.at(v); s.shows(v) && (at < -1e-9 || at > 1+1e-9) {
				t.Fatalf("%v is at %v of %+v", v, at, s)
			}
		}
	}
}

func TestScalesAreRound(t *testing.T) {
	for _, tt := range []struct {
		axis   Axis
		values []float64
		want   []float64
	}{
		{Axis{Log: true}, []float64{1, 1000}, []float64{1, 3, 10, 30, 100, 300, 1000}},
		{Axis{Log: true}, []float64{470, 6994}, []float64{200, 500, 1000, 2000, 5000, 10_000}},
		{Axis{Log: true}, []float64{0.05, 90_000}, []float64{0.01, 0.1, 1, 10, 100, 1000, 10_000, 100_000}},
		{Axis{To: 100}, []float64{3, 97}, []float64{0, 20, 40, 60, 80, 100}},
		{Axis{To: 2}, []float64{1.6}, []float64{0, 0.5, 1, 1.5, 2}},
		{Axis{}, nil, []float64{0, 2, 4, 6, 8, 10}},
	} {
		got := tt.axis.fit(tt.values).ticks
		if len(got) != len(tt.want) {
			t.Errorf("%+v %v: %v, want %v", tt.axis, tt.values, got, tt.want)
			continue
		}
		for i := range got {
			if math.Abs(got[i]-tt.want[i]) > 1e-9*tt.want[i] {
				t.Errorf("%+v %v: %v, want %v", tt.axis, tt.values, got, tt.want)
				break
			}
		}
	}
}

func TestLabels(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.05: "0.05", 1: "1", 999: "999", 1000: "1,000", 1_000_000: "1,000,000", -2500: "-2,500", 0.30000000000000004: "0.3"} {
		if got := label(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
