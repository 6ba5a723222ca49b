package bench

import (
	"context"
	"strings"
	"testing"

	"berth.dev/pkg/store"
)

func TestReadBeats(t *testing.T) {
	got, err := readBeats(strings.NewReader(`# HELP berth_executor_state_heartbeat_lateness_seconds late
# TYPE berth_executor_state_heartbeat_lateness_seconds histogram
berth_executor_state_heartbeat_lateness_seconds_bucket{le="1"} 7
berth_executor_state_heartbeat_lateness_seconds_sum 2.5
berth_executor_state_heartbeat_lateness_seconds_count 12000
berth_executor_state_heartbeat_streams 9
`))
	if err != nil || got != (beatsTaken{count: 12000, late: 2.5}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "berth_executor_state_heartbeat_lateness_seconds_sum 2.5", "berth_executor_state_heartbeat_lateness_seconds_count many"} {
		if _, err := readBeats(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken for figures", bad)
		}
	}
}

// What the services do without any heartbeat is not counted towards heartbeats.
func TestProcessors(t *testing.T) {
	idle := Cost{Seconds: 10, CPU: map[string]float64{"etcd": 1, "gateway": 1, kindLoad: 9}}
	busy := Cost{Seconds: 20, CPU: map[string]float64{"etcd": 6, "gateway": 1, kindLoad: 9}}
	if got := processors(idle, busy, 2); got != "etcd 0.40, gateway 0.00" {
		t.Error(got)
	}
}

// Executors that leave and come back are counted once.
func TestPresencesAwait(t *testing.T) {
	s := store.NewFake(store.FakeConfig{})
	p := watchPresences(s, "live/", 1)
	defer p.watch.Close()
	for _, op := range []store.Op{
		store.Put("live/a", nil), store.Put("live/b", nil), store.Put("other", nil), store.Delete("live/a"), store.Put("live/b", nil), store.Put("live/c", nil),
	} {
		if _, err := s.Txn(t.Context(), store.Txn{Then: []store.Op{op}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.await(t.Context(), 2); err != nil || !p.keys["live/b"] {
		t.Errorf("%v, %v", p.keys, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := p.await(ended, 3); err == nil {
		t.Error("three are present")
	}
}
