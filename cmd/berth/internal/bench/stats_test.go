package bench

import (
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestSummarize(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[99-i] = float64(i + 1)
	}
	for _, tt := range []struct {
		name    string
		samples []float64
		want    Summary
	}{
		{"none", nil, Summary{}},
		{"one", []float64{7}, Summary{N: 1, Median: 7, P99: 7, Min: 7, Max: 7}},
		{"two", []float64{9, 1}, Summary{N: 2, Median: 1, P99: 9, Min: 1, Max: 9}},
		{"a hundred", hundred, Summary{N: 100, Median: 50, P99: 99, Min: 1, Max: 100}},
	} {
		if got := Summarize(tt.samples); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("Summarize changed the order of the samples")
	}
}

// TestPercentiles compares percentiles with the definition of the nearest-rank method:
// the p-th percentile is the smallest sample for which at least p percent of the samples
// are not larger.
func TestPercentiles(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		samples := make([]float64, 1+random.IntN(300))
		for i := range samples {
			samples[i] = float64(random.IntN(50)) / 5 // some samples are equal
		}
		got := Summarize(samples)
		rank := func(percent int) float64 {
			best := slices.Max(samples)
			for _, s := range samples {
				below := 0
				for _, other := range samples {
					if other <= s {
						below++
					}
				}
				if below*100 >= percent*len(samples) {
					best = min(best, s)
				}
			}
			return best
		}
		if got.Median != rank(50) || got.P99 != rank(99) || got.Min != slices.Min(samples) || got.Max != slices.Max(samples) {
			t.Fatalf("%+v of %v", got, samples)
		}
	}
}

func TestAddEvaluatesTargets(t *testing.T) {
	r := &Run{Options: Options{Status: io.Discard, Scale: 1}}
	r.Add(Figure{Name: "base", Unit: "/s", Samples: []float64{100}})
	r.Add(Figure{Name: "base", Unit: "ms", Samples: []float64{4}})
	r.Add(Figure{Name: "ours", Unit: "ms", Samples: []float64{6, 5, 50}, Against: "base",
		Target: &Target{Of: Ratio, AtMost: 1.5}})
	r.Add(Figure{Name: "slow", Unit: "ms", Samples: []float64{6, 5, 50}, Against: "base",
		Target: &Target{P99: new(49.0)}})
	r.Add(Figure{Name: "never", Unit: "s", Target: &Target{Of: Median, AtMost: 60}})
	if f := r.Figures[2]; f.Ratio != 1.5 || !f.Target.Met {
		t.Errorf("%+v %+v", f, f.Target)
	}
	if r.Figures[3].Target.Met {
		t.Error("a figure above its target is reported as met")
	}
	if r.Figures[4].Target.Met {
		t.Error("a figure without samples is reported as met")
	}
}

// TestTargets checks when a figure meets its target, and the text of the target.
func TestTargets(t *testing.T) {
	f := Figure{Unit: "ms", Summary: Summary{N: 3, Median: 10, P99: 50, Max: 60}, Ratio: 0.6}
	for _, tt := range []struct {
		target Target
		met    bool
		text   string
	}{
		{Target{Of: Median, AtMost: 10}, true, "median <= 10.0"},
		{Target{Of: Median, AtMost: 9}, false, "median <= 9.00"},
		{Target{Of: Median, AtLeast: 11}, false, "median >= 11.0"},
		{Target{Of: Ratio, AtLeast: 0.6}, true, "ratio >= 0.600"},
		{Target{Of: Median, AtMost: 10, P99: new(50.0)}, true, "median <= 10.0, p99 <= 50.0"},
		{Target{Of: Median, AtMost: 10, P99: new(49.0)}, false, "median <= 10.0, p99 <= 49.0"},
		{Target{Max: new(60.0)}, true, "max <= 60.0"},
		{Target{Max: new(0.0)}, false, "max <= 0"},
	} {
		got := tt.target
		if got.evaluate(&f); got.Met != tt.met || got.String() != tt.text {
			t.Errorf("%s: met %v", got, got.Met)
		}
		if got.evaluate(&Figure{Unit: "ms"}); got.Met {
			t.Errorf("%s is met without samples", got)
		}
	}
}

func TestTable(t *testing.T) {
	r := &Run{Options: Options{Status: io.Discard, Scale: 1}, Result: Result{Workload: "toy", Shows: "nothing"}}
	r.Add(Figure{Name: "etcd, 64 callers", Unit: "/s", Samples: []float64{18_841, 18_000}})
	r.Add(Figure{Name: "a name that is far too long for its column", Unit: "/s", Samples: []float64{6000.4},
		Against: "etcd, 64 callers"})
	r.Add(Figure{Name: "took", Unit: "s", Samples: []float64{71.25}, Target: &Target{Of: Median, AtMost: 60}})
	r.Add(Figure{Name: "never", Unit: "s"})
	r.Costs = []Cost{
		{Phase: "load", Operations: 1000, Seconds: 1, CPU: map[string]float64{"etcd": 0.5, "load": 0.1}, Others: 1,
			Writes: map[string]int{writesTxn: 10, writesEvent: 2000}, Bytes: 100_000},
		{Phase: "load", Operations: 3000, Seconds: 3, CPU: map[string]float64{"etcd": 0.3, "load": 0.1}, Others: 0,
			Writes: map[string]int{writesTxn: 30, writesEvent: 2000}, Bytes: 100_000},
	}
	r.Note("a note")
	r.Audits = []Audit{{Revision: 12, WorkersLeased: 3, Violations: 1, First: []string{"revision 9: CAPACITY: too much"}}}
	var b strings.Builder
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	const want = `
toy: nothing
  figure                       unit n median p99   min   max ratio
  etcd, 64 callers             /s   2 18000  18841 18000 18841
  a name that is far too long… /s   1 6000   6000  6000  6000 0.333
  took                         s    1 71.2   71.2  71.2  71.2
  never                        s    0

  took median <= 60.0 MISSED

  processor ms each etcd  reg. ex-st. assig. gatew. sim load  other
  load              0.200 -    -      -      -      -   0.050 0.25

  keys written each txns  resvs stages leases tasks events others kB
  load              0.010 0     0      0      0     1.00   0      0.050

  a note
  audit: 1 violations in 12 revisions, 3 workers leased
    revision 9: CAPACITY: too much
`
	if got := b.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	wantNarrow(t, b.String())
}

func TestNumberWidth(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0012: "0.0012", 0.5: "0.500", 9.994: "9.99", 99.94: "99.9", 123.4: "123", 147_000: "147000", 2.5e6: "2.5M",
		1e9: "1000.0M",
	} {
		if got := number(v); got != want || len(got) > 7 {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}
