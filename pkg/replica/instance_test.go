package replica

import (
	"context"
	"testing"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
)

// Two processes with the same name have different instances, for example a process before
// and after a restart. The liveness probe depends on that.
func TestProcessesOfOneNameDiffer(t *testing.T) {
	first, second := serveReplica(t, "registry-0"), serveReplica(t, "registry-0")
	a, err := second.identify(t.Context(), first.address)
	if err != nil {
		t.Fatal(err)
	}
	b, err := first.identify(t.Context(), second.address)
	if err != nil {
		t.Fatal(err)
	}
	if a.ID != "registry-0" || b.ID != "registry-0" {
		t.Errorf("the names are %q and %q", a.ID, b.ID)
	}
	if a.Instance == "" || b.Instance == "" || a.Instance == b.Instance {
		t.Errorf("the instances are %q and %q", a.Instance, b.Instance)
	}
	if again, err := second.identify(t.Context(), first.address); err != nil || again != a {
		t.Errorf("second answer: %+v, %v, want %+v", again, err, a)
	}
}

// serveReplica returns a replica that serves control.v1.Replicas, without etcd.
func serveReplica(t *testing.T, name string) *Replica {
	t.Helper()
	config := process.ServiceDefaults(0, 0)
	config.Replica = name
	r, err := Open(t.Context(), model.ServiceRegistry, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLoop[model.Core](r, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	controlv1.RegisterReplicasServer(r.Server, &self[model.Core]{r: r, loop: l, lacks: func() []string { return nil }})
	served := make(chan error, 1)
	go func() { served <- r.Server.Serve(r.ports.Calls) }()
	t.Cleanup(func() {
		if err := r.Server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		r.close()
	})
	return r
}
