package sim

import (
	"io"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// manualLeader is a leader that answers a call only if its test does.
type manualLeader struct {
	replica
	take func(request any, until time.Time, answer func(any, error))
}

func (manualLeader) leads() bool { return true }
func (manualLeader) turn()       {}
func (m manualLeader) ask(request any, until time.Time, answer func(any, error)) {
	m.take(request, until, answer)
}

// The registry may forget a request ID, and a later copy of its call would be a new call.
// No such copy may be executed. If the outcome of a call is unknown for longer, the client
// uses a new request ID.
func TestCallsUseNewRequestIDs(t *testing.T) {
	w := newWorld(1, io.Discard)
	w.retention = time.Second
	began, copies := map[string]time.Time{}, map[string]int{}
	w.replicas[model.ServiceRegistry] = []replica{manualLeader{take: func(asked any, until time.Time, _ func(any, error)) {
		id := asked.(request.Flush).RequestID
		copies[id]++
		if until.IsZero() || until.Sub(began[id]) > w.retention {
			t.Errorf("a copy of %s may be executed at %v, but it began at %v", id, until, began[id])
		}
	}}}
	flush := func(id string) any {
		if !began[id].IsZero() {
			t.Errorf("%s is used for two calls", id)
		}
		began[id] = w.now
		return request.Flush{Job: "j", RequestID: id}
	}
	newClients(w).call("flush", func() bool { return true }, flush, func(any, error) { t.Error("the call was answered") })
	if !w.until(func() bool { return len(began) == 5 }) {
		t.Fatalf("%d request IDs were used", len(began))
	}
	for id, n := range copies {
		if n > 1 {
			return
		}
		t.Logf("%s was sent only once", id)
	}
	t.Error("no call was repeated")
}
