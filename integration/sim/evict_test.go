package sim

import (
	"io"
	"testing"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/store"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/registry/queue"
)

// A false liveness probe only changes the leader. The test evicts the leader of one service
// after another while batches are requested, without other faults. Every batch runs, each
// worker is started once, and no worker is lost or stopped.
func TestFalseLivenessProbe(t *testing.T) {
	w := newWorld(1, io.Discard)
	w.faultsStopped, w.directed = true, true
	w.startReplicas(2, queue.Config{}, inventory.DefaultConfig())
	w.clients = newClients(w)
	const batches, workers = 9, 2
	for _, id := range []string{"host-0", "host-1"} {
		w.agents = append(w.agents, newAgent(w, hostWithSlots(id, batches*workers/2)))
	}
	leading := func() bool {
		for _, service := range services {
			if w.leader(service) == nil {
				return false
			}
		}
		return true
	}
	if !w.until(leading) {
		t.Fatalf("a service has no leader: %v", w.failure)
	}
	terms := map[string]map[int64]bool{}
	for i := range batches {
		key := model.Key{Job: string('a' + rune(i)), Stage: "stage", Name: model.MainName}
		acknowledged := false
		w.call("upsert", model.ServiceRegistry, func() bool { return true }, model.Upsert{
			Key: key, Count: workers, RequestID: key.Job, Spec: model.Spec{
				Constraints: constraint.Constraints{Resources: resource.Vector{"slots": 1}}, Task: model.Task{Command: "sh"},
			},
		}, func(_ any, err error) {
			if acknowledged = true; err != nil {
				t.Errorf("%s: %v", key.Job, err)
			}
		})
		// The eviction happens in a different state of each batch.
		for range i {
			w.round()
		}
		w.evict(services[i%len(services)])
		if !w.until(func() bool { return acknowledged && leading() }) {
			t.Fatalf("%s is not acknowledged: %v", key.Job, w.failure)
		}
	}
	if !w.until(func() bool { return len(w.starts) == batches*workers }) || w.settle() != nil {
		t.Fatalf("%d workers of %d were started: %v", len(w.starts), batches*workers, w.failure)
	}
	for _, r := range w.store.History() {
		countTerms(w, r.Changes, terms)
	}
	for _, service := range services {
		if n := len(terms[service]); n != 1+batches/len(services) {
			t.Errorf("%s had %d terms after %d evictions", service, n, batches/len(services))
		}
	}
	for _, a := range w.agents {
		for k, wk := range a.workers {
			if wk.state != model.WorkerRunning {
				t.Errorf("%s is %s on %s", k.worker, wk.state, a.id)
			}
		}
	}
}

// countTerms records the terms that have begun.
func countTerms(w *World, changes []store.Change, terms map[string]map[int64]bool) {
	for _, c := range changes {
		ref, ok := w.space.Parse(c.Key)
		if !ok || ref.Kind != model.KindLeader || c.Deleted {
			continue
		}
		if terms[ref.ID] == nil {
			terms[ref.ID] = map[int64]bool{}
		}
		terms[ref.ID][c.Create] = true
	}
}
