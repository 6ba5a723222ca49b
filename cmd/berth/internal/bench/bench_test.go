package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/internal/asberth"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/store"
)

// TestSmallWorkloads runs workloads with small sizes on real processes and checks their
// reports and audits.
func TestSmallWorkloads(t *testing.T) {
	asberth.Children(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "report.json")
	cmd := Command()
	cmd.SetArgs([]string{"--only", "latency,freed-to-leased,fleet", "--scale", "0.01", "--window", "50ms", "--repeat",
		"1", "--dir", dir, "--json", file})
	var out, status bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&status)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Fatalf("%v\n%s%s", err, status.String(), out.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 3 || r.Machine.CPUs == 0 {
		t.Fatalf("report %s", text)
	}
	figures := map[string]Figure{}
	for _, result := range r.Results {
		for _, a := range result.Audits {
			if a.Violations != 0 || (a.WorkersRunning == 0) != (result.Workload == "fleet") {
				t.Errorf("%s: audit %+v", result.Workload, a)
			}
		}
		if len(result.Audits) == 0 {
			t.Errorf("%s was not audited", result.Workload)
		}
		for _, f := range result.Figures {
			figures[f.Name] = f
			if f.N == 0 || f.N != len(f.Samples) || f.Min < 0 || f.Median <= 0 || f.Against != "" && f.Ratio <= 0 {
				t.Errorf("%s: figure %+v", result.Workload, f)
			}
		}
		for _, c := range result.Costs {
			kinds := len(costKinds)
			if result.Workload == "fleet" {
				kinds-- // the executors of this workload have no process
			}
			if c.Operations == 0 || c.CPU["etcd"] < 0 || len(c.CPU) != kinds {
				t.Errorf("%s: cost %+v", result.Workload, c)
			}
		}
	}
	if f := figures["batches of 8, 100/s"]; f.N != 20 {
		t.Errorf("latency %+v", f)
	}
	if f := figures["freed to leased"]; f.N != 4 || f.Target != nil {
		t.Errorf("freed %+v", f)
	}
	if f := figures["memory of executor-state, 1000 executors"]; f.Median < 1 ||
		f.Against != "memory of executor-state, 10 executors" {
		t.Errorf("memory %+v", f)
	}
	// The registry writes each of the 20 reservations twice: when the batch is requested
	// and after it is dispatched. The phase ends when the last worker is started,
	// possibly before the second write.
	for _, c := range r.Results[0].Costs {
		if c.Phase == "batches of 8, 100/s" && (c.Writes[writesReservation] < 21 || c.Writes[writesReservation] > 40 ||
			c.Writes[writesLease] != 20 || c.Bytes == 0) {
			t.Errorf("writes %+v", c)
		}
	}
	wantNarrow(t, out.String())
	left, err := filepath.Glob(filepath.Join(dir, "berth-bench-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("directories left: %v, %v", left, err)
	}
	t.Logf("%s%s", status.String(), out.String())
}

// TestRunningCluster runs a workload against a running cluster. After the workload, all
// its reservations must be cancelled, and etcd must have no key of the baseline.
func TestRunningCluster(t *testing.T) {
	asberth.Children(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	f, err := fleet.Start(ctx, fleet.Config{Binary: os.Args[0], Dir: t.TempDir(), Replicas: 1, LogLevel: "warn"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := Command()
	cmd.SetArgs([]string{"--only", "latency", "--scale", "0.01", "--gateway", f.Gateway(), "--agents-gateway",
		f.AgentsGateways()[0], "--etcd-endpoints", f.Etcd()[0]})
	var out, status bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&status)
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Fatalf("%v\n%s%s", err, status.String(), out.String())
	}
	reservations := 0
	for r, err := range f.Client().List(ctx, &berthv1.ListReservationsRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		reservations++
		if s := r.GetState(); s != berthv1.Reservation_CANCELLING && s != berthv1.Reservation_CANCELLED {
			t.Errorf("%s/%s was left %s", r.GetJob(), r.GetStage(), s)
		}
	}
	if reservations < 20 {
		t.Errorf("only %d reservations were created", reservations)
	}
	etcd, err := store.Dial(store.DialConfig{Endpoints: f.Etcd()})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	if left, _, err := store.Range(ctx, etcd, "/berth-bench/"); err != nil || len(left) != 0 {
		t.Errorf("%d keys are left, %v", len(left), err)
	}
}

// wantNarrow fails if a line is wider than a terminal of 80 columns.
func wantNarrow(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, tt := range []struct{ args, field string }{
		{"--only no-such", "--only"},
		{"--repeat 0", "--repeat"},
		{"--window 0s", "--window"},
		{"--scale 0", "--scale"},
		{"--idle 1s", "--idle"},
		{"--replicas 0", "--replicas"},
		{"--gateway 127.0.0.1:1", "--etcd-endpoints"},
		{"--gateway 127.0.0.1:1 --etcd-endpoints 127.0.0.1:2", "--agents-gateway"},
		{"--gateway 127.0.0.1:1 --agents-gateway 127.0.0.1:3 --etcd-endpoints 127.0.0.1:2 --only bursts", "--only"},
		{"--gateway 127.0.0.1:1 --agents-gateway 127.0.0.1:3 --etcd-endpoints 127.0.0.1:2 --profiles x", "--profiles"},
	} {
		cmd := Command()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(strings.Fields(tt.args))
		var f *fault.Error
		if err := cmd.ExecuteContext(t.Context()); !errors.As(err, &f) || f.Kind != fault.Invalid ||
			f.Fields[0].Name != tt.field {
			t.Errorf("%s: %v", tt.args, err)
		}
	}
}

// TestChoose checks which workloads run in a separate cluster and which run in a running
// cluster.
func TestChoose(t *testing.T) {
	names := func(f flags) string {
		chosen, err := f.choose()
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, w := range chosen {
			list = append(list, w.Name)
		}
		return strings.Join(list, " ")
	}
	if got := names(flags{}); len(strings.Fields(got)) != len(Workloads) {
		t.Errorf("all: %s", got)
	}
	if got := names(flags{only: []string{"latency", "raw-etcd"}}); got != "raw-etcd latency" {
		t.Errorf("two: %s", got)
	}
	inRunning := names(flags{Options: Options{Cluster: running.Cluster{Gateways: []string{"a"}}}})
	for _, w := range Workloads {
		if strings.Contains(inRunning, w.Name) != w.Anywhere {
			t.Errorf("in a running cluster: %s", inRunning)
		}
	}
}

// TestWorkloadDescriptions checks that names are unique and that the help text fits into
// 80 columns.
func TestWorkloadDescriptions(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range Workloads {
		if w.Run == nil || w.Shows == "" || seen[w.Name] {
			t.Errorf("workload %q is incomplete or not unique", w.Name)
		}
		seen[w.Name] = true
	}
	wantNarrow(t, Command().Long)
	wantNarrow(t, failoverCommand().Long)
}
