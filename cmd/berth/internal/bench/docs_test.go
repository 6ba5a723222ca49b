package bench

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
)

// toyReport returns a report that uses every field.
func toyReport() *Report {
	r := &Run{Options: Options{Scale: 1}, Result: Result{Workload: "latency", Shows: "nothing"}}
	r.Add(Figure{Name: "4 puts in a row, 100/s", Unit: "ms", Samples: []float64{1, 2, 3}})
	r.Add(Figure{
		Name: "batches of 8, 100/s", Unit: "ms", Samples: []float64{8, 9, 60}, Against: "4 puts in a row, 100/s",
		Target: &Target{Of: Median, AtMost: 10, P99: new(50.0)},
	})
	r.Add(Figure{Name: "never", Unit: "s", Target: &Target{Of: Ratio, AtMost: 1}})
	r.Costs = []Cost{{Phase: "load", Operations: 10, Seconds: 1, CPU: map[string]float64{"etcd": 0.5, "load": 0.1},
		Others: 0.25, Writes: map[string]int{writesTxn: 5}, Bytes: 2000}}
	r.Note("  a note")
	r.Audits = []Audit{{Revision: 12, WorkersLeased: 3, WorkersRunning: 2}}
	r.Seconds = 90
	return &Report{
		Version: "v1", Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Window: "3s", Repeats: 3, Replicas: 1, Scale: 1,
		Machine: Machine{CPUs: 2, Model: "Toy", Memory: "8 kB", Kernel: "6", Go: "go1"}, Results: []*Result{&r.Result},
	}
}

const toyMarkdown = `Measured 2026-01-02 03:04 UTC with ` + "`berth bench`" + ` of version v1: replicas of each service 1, windows 3s, repeats 3; 2 minutes in all.

Machine: 2 × Toy, 8 kB, Linux 6, go1.

### Targets

| workload | figure | target | measured | verdict |
|---|---|---|---|---|
| ` + "`latency`" + ` | batches of 8, 100/s | median <= 10.0, p99 <= 50.0 | median 9.00, p99 60.0, max 60.0 ms, ratio 4.50 | MISSED |
| ` + "`latency`" + ` | never | ratio <= 1.00 | not measured | MISSED |

### ` + "`latency`" + `: nothing

| figure | unit | n | median | p99 | min | max | ratio | baseline |
|---|---|---|---|---|---|---|---|---|
| 4 puts in a row, 100/s | ms | 3 | 2.00 | 3.00 | 1.00 | 3.00 |  |  |
| batches of 8, 100/s | ms | 3 | 9.00 | 60.0 | 8.00 | 60.0 | 4.50 | 4 puts in a row, 100/s |
| never | s | 0 |  |  |  |  |  |  |

<details><summary>Processor time (ms) and keys written per operation</summary>

| processor ms each | etcd | registry | executor-state | assigner | gateway | sim | load | other |
|---|---|---|---|---|---|---|---|---|
| load | 50.0 | - | - | - | - | - | 10.0 | 0.25 |

| keys written each | txns | resvs | stages | leases | tasks | events | others | kB |
|---|---|---|---|---|---|---|---|---|
| load | 0.500 | 0 | 0 | 0 | 0 | 0 | 0 | 0.200 |

</details>

- a note

Audit: 0 violations up to revision 12, 3 workers leased, 2 of them ever running.
`

// TestDocs writes a report into a document twice. The second time must change nothing.
func TestDocs(t *testing.T) {
	dir := t.TempDir()
	report, document, plots := filepath.Join(dir, "report.json"), filepath.Join(dir, "doc.md"), filepath.Join(dir, "plots")
	text, err := json.Marshal(toyReport())
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{report: string(text),
		document: "before\n\n" + beginMark + "\nold\n" + endMark + "\nafter\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		cmd := Command()
		cmd.SetArgs([]string{"docs", report, "--markdown", document, "--plots", plots})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(document)
		if want := "before\n\n" + beginMark + "\n\n" + toyMarkdown + "\n" + endMark + "\nafter\n"; err != nil ||
			string(got) != want {
			t.Errorf("%v, got:\n%s", err, got)
		}
	}
	drawn, err := filepath.Glob(filepath.Join(plots, "*"))
	if err != nil || len(drawn) != 1 || filepath.Base(drawn[0]) != "latency.svg" {
		t.Errorf("%v drawn, %v", drawn, err)
	}
}

func TestDocsErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "doc.md")
	if err := os.WriteFile(file, []byte(endMark+"\n"+beginMark+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var f *fault.Error
	if err := insert(file, nil); !errors.As(err, &f) || f.Kind != fault.Invalid {
		t.Errorf("marks in the wrong order: %v", err)
	}
	cmd := docsCommand()
	cmd.SetArgs([]string{file})
	if err := cmd.Execute(); !errors.As(err, &f) || f.Kind != fault.Invalid {
		t.Errorf("a file that is not a report: %v", err)
	}
}

// TestPlots draws each plot from figures that have the same names as the figures of the
// workloads.
func TestPlots(t *testing.T) {
	r := toyReport()
	add := func(workload, unit string, names ...string) {
		run := &Run{Options: Options{Scale: 1}, Result: Result{Workload: workload}}
		for _, name := range names {
			run.Add(Figure{Name: name, Unit: unit, Samples: []float64{1}})
		}
		r.Results = append(r.Results, &run.Result)
	}
	add("freed-to-leased", "ms", "freed to leased", "2 puts in a row, seen")
	add("batches", "/s", puts64, "workers, 1 a batch", "workers, 1000 a batch")
	add("fleet", "ms", "fit 100, 1000 executors", "usage, 1000 executors", "fit 100, 100000 executors",
		"usage, 100000 executors")
	add("waiting", "ms", "upsert, 0 in 1000 groups", "upsert, 100000 in 1000 groups")
	charts := r.charts()
	if got := slices.Sorted(maps.Keys(charts)); strings.Join(got,
		" ") != "batch-size.svg fleet-size.svg latency.svg waiting.svg" {
		t.Fatalf("charts %v", got)
	}
	for file, want := range map[string]int{"latency.svg": 4, "batch-size.svg": 2, "fleet-size.svg": 4, "waiting.svg": 2} {
		if got := len(charts[file].Lines); got != want {
			t.Errorf("%s has %d lines, not %d", file, got, want)
		}
	}
}
