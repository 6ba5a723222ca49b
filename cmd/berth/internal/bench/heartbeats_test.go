package bench

import (
	"context"
	"strings"
	"testing"

	"berth.dev/pkg/store"
)

func TestReadHeartbeats(t *testing.T) {
	count, late, err := readHeartbeats(strings.NewReader(`# HELP berth_executor_state_heartbeat_lateness_seconds late
# TYPE berth_executor_state_heartbeat_lateness_seconds histogram
berth_executor_state_heartbeat_lateness_seconds_bucket{le="1"} 7
berth_executor_state_heartbeat_lateness_seconds_sum 2.5
berth_executor_state_heartbeat_lateness_seconds_count 12000
berth_executor_state_heartbeat_streams 9
`))
	if err != nil || count != 12000 || late != 2.5 {
		t.Errorf("%v, %v, %v", count, late, err)
	}
	for _, bad := range []string{"", "berth_executor_state_heartbeat_lateness_seconds_sum 2.5",
		"berth_executor_state_heartbeat_lateness_seconds_count many"} {
		if _, _, err := readHeartbeats(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// TestProcessors checks that processors subtracts the processor time that the services
// use without heartbeats.
func TestProcessors(t *testing.T) {
	idle := Cost{Seconds: 10, CPU: map[string]float64{"etcd": 1, "gateway": 1, kindLoad: 9}}
	busy := Cost{Seconds: 20, CPU: map[string]float64{"etcd": 6, "gateway": 1, kindLoad: 9}}
	if got := processors(idle, busy, 2); got != "etcd 0.40, gateway 0.00" {
		t.Error(got)
	}
}

// TestPresencesAwait checks that an executor that registers again counts once.
func TestPresencesAwait(t *testing.T) {
	s := store.NewFake(store.FakeConfig{})
	p := &presences{watch: s.Watch("live/", 1), keys: map[string]bool{}}
	defer p.watch.Close()
	for _, op := range []store.Op{
		store.Put("live/a", nil), store.Put("live/b", nil), store.Put("other", nil), store.Delete("live/a"),
		store.Put("live/b", nil), store.Put("live/c", nil),
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
		t.Error("await returned for three executors, two are present")
	}
}
