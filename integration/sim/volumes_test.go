package sim

import (
	"io"
	"slices"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/registry/queue"
)

// A directory that no record names is still there after the clock has stepped by a day, and
// after changes of each leader.
func TestForeignVolumeStays(t *testing.T) {
	s := NewStage(Config{Replicas: 2, Queue: queue.Config{}, Inventory: inventory.DefaultConfig()}, io.Discard)
	s.StartHost(hostWithSlots("host", 1))
	if err := s.AddVolume("host", foreign); err != nil {
		t.Fatal(err)
	}
	for _, step := range []time.Duration{0, 24 * time.Hour, 0} {
		for _, service := range services {
			if restart := s.KillLeader(service); restart != nil {
				restart()
			}
		}
		s.w.pass(step)
		if err := s.Wait(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if !s.HasVolume("host", foreign) {
		t.Error("the directory was removed")
	}
	found := false
	for _, r := range s.w.replicas[model.ServiceExecutorState] {
		n := r.(*node[*inventory.Core])
		found = found || n.leads() && slices.ContainsFunc(n.driver.Core.Findings(s.Now()), func(f inventory.Finding) bool {
			return f.Kind == inventory.FindingVolumeUnknown && f.Object == "host"
		})
	}
	if !found {
		t.Error("the directory is not a finding")
	}
}
