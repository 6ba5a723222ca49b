package replay

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth.dev/cmd/berth/audit"
)

func TestPercentiles(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)*time.Millisecond)
	}
	tests := []struct {
		list []time.Duration
		want Percentiles
	}{
		{nil, Percentiles{}},
		{[]time.Duration{1500 * time.Microsecond}, Percentiles{1.5, 1.5, 1.5, 1.5}},
		{[]time.Duration{3 * time.Millisecond, time.Millisecond, 2 * time.Millisecond}, Percentiles{2, 3, 3, 3}},
		{hundred, Percentiles{50, 90, 99, 100}},
	}
	for _, tt := range tests {
		if got := percentiles(tt.list); got != tt.want {
			t.Errorf("of %d: %+v, want %+v", len(tt.list), got, tt.want)
		}
	}
}

func TestReportText(t *testing.T) {
	r := Report{
		Executors: 3, Batches: 5, Workers: 40, Granted: 2, Waiting: 2, Withdrawn: 1, Cancelled: 2,
		WaitingFor: []WaitingFor{{"INSUFFICIENT_CAPACITY", "8 needed, 3 fit now", 2, 16, "a/CN/0"}},
		Wait:       Percentiles{1, 2, 3, 4}, AskedSeconds: 1.25, Seconds: 10,
		Stats:          audit.Stats{Revision: 77, Snapshots: 1, LeasesGranted: 2, WorkersLeased: 20, WorkersRunning: 19},
		ViolationCount: 1, Violations: []audit.Violation{{Revision: 42, Rule: audit.RuleCapacity,
			Message: "executor a: cpu used 2 of 1"}},
	}
	want := `batches     5 with 40 workers, on 3 executors
granted     2
withdrawn   1 deleted by the trace before they were granted
waiting     2
            2 with 16 workers: INSUFFICIENT_CAPACITY 8 needed, 3 fit now (first: a/CN/0)
cancelled   2
wait        p50 1.0 ms, p90 2.0 ms, p99 3.0 ms, max 4.0 ms
took        1.2 s for all requests, 10.0 s in total
etcd        2 leases for 20 workers, 19 ever running, 0 started twice, audited up to revision 77
violations  1
            revision 42: CAPACITY: executor a: cpu used 2 of 1
`
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestReportJSON(t *testing.T) {
	text, err := json.Marshal(Report{WaitingFor: []WaitingFor{}, Violations: []audit.Violation{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{`"batches":0`, `"granted":0`, `"waiting":0`, `"violations":[]`, `"leasesGranted":0`,
		`"waitMillis":{"p50":0`} {
		if !strings.Contains(string(text), field) {
			t.Errorf("no %s in %s", field, text)
		}
	}
	if err := Save(filepath.Join(t.TempDir(), "no", "dir"), &Report{}); err == nil {
		t.Error("saved to a missing directory")
	}
}

func TestBar(t *testing.T) {
	p := Progress{Done: 5, Actions: 10, Granted: 3, Waiting: 1, Cancelled: 1, Running: 7}
	want := " 50%  0 violations  5/10 requested  3 granted  1 waiting  1 cancelled  7 running"
	if p.String() != want {
		t.Errorf("%q", p)
	}
	var lines strings.Builder
	b := newBar(&lines)
	now := time.Unix(1000, 0)
	for range 11 { // one line immediately and every five seconds
		b.show(p, now)
		now = now.Add(time.Second)
	}
	b.end()
	if lines.String() != strings.Repeat(want+"\n", 3) {
		t.Errorf("%q", lines.String())
	}
	var drawn strings.Builder
	b = &bar{out: &drawn, terminal: true}
	b.show(Progress{}, now)
	b.show(p, now)
	b.end()
	if !strings.HasSuffix(drawn.String(), "\r\x1b[K"+want[:lineWidth]+"\n") || strings.Count(drawn.String(), "\n") != 1 {
		t.Errorf("%q", drawn.String())
	}
}

// TestBarWidth checks that a line of the bar is narrower than 80 columns, because a
// wrapped line cannot be overwritten.
func TestBarWidth(t *testing.T) {
	for _, p := range []Progress{
		{Done: 1, Actions: 2},
		{Actions: 1 << 40, Granted: 1 << 40, Waiting: 1 << 40, Running: 1 << 40, Violations: 1 << 40},
	} {
		var out strings.Builder
		b := &bar{out: &out, terminal: true}
		b.show(p, time.Now())
		line := strings.TrimPrefix(out.String(), "\r\x1b[K")
		if len(line) >= 80 || !strings.Contains(line, "violations") {
			t.Errorf("%d columns: %q", len(line), line)
		}
	}
}
