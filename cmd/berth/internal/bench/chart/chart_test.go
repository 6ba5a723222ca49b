package chart

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the expected drawing")

// TestDrawing compares a chart that uses every feature with a drawing that was reviewed
// by eye.
func TestDrawing(t *testing.T) {
	c := Chart{
		Title: `Rates & "sizes" <all>`,
		X:     Axis{Label: "workers a batch", Log: true}, Y: Axis{Label: "workers a second", Log: true},
		Lines: []Line{
			{Name: "a baseline for all lines", Baseline: true, Points: []Point{{1, 1000}, {1000, 1000}}},
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
			t.Fatalf("invalid XML: %v", err)
		}
	}
}

// TestTicks checks that the ticks of an axis are round and enclose all values.
func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		axis         Axis
		values, want []float64
	}{
		{Axis{Log: true}, []float64{1, 1000}, []float64{1, 3, 10, 30, 100, 300, 1000}},
		{Axis{Log: true}, []float64{470, 6994}, []float64{100, 300, 1000, 3000, 10_000}},
		{Axis{Log: true}, []float64{0.05, 90_000}, []float64{0.01, 0.1, 1, 10, 100, 1000, 10_000, 100_000}},
		{Axis{Log: true}, []float64{10}, []float64{10, 30, 100}},
		{Axis{To: 100}, []float64{3, 97}, []float64{0, 25, 50, 75, 100}},
		{Axis{To: 2}, []float64{4}, []float64{0, 1, 2, 3, 4}},
	} {
		if got := tt.axis.ticks(tt.values); !slices.Equal(got, tt.want) {
			t.Errorf("%+v %v: %v, want %v", tt.axis, tt.values, got, tt.want)
		}
	}
}
