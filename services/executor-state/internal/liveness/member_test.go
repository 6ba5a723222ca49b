package liveness

import (
	"context"
	"sync"
	"testing"
	"time"

	"berth.dev/pkg/store/etcdtest"
)

// Renewals go to the member that leads, which others would pass them on to, and to
// who leads next when it is cut off. A stream that goes to another is told so, and
// one that goes to the leader is not.
func TestRenewAtTheLeader(t *testing.T) {
	cluster := etcdtest.StartCluster(t, 3)
	s := cluster.Store(t)
	ctx := within(t)
	leads := cluster.Leader()
	if got := leadingMember(ctx, s.Client()); got != cluster.Endpoints()[leads] {
		t.Errorf("%q leads, not %q", got, cluster.Endpoints()[leads])
	}
	elsewhere := make(chan struct{})
	look(ctx, s.Client(), cluster.Endpoints()[(leads+1)%3], time.Millisecond, elsewhere)
	<-elsewhere
	over, end := context.WithTimeout(ctx, 20*time.Millisecond)
	defer end()
	here := make(chan struct{})
	look(over, s.Client(), cluster.Endpoints()[leads], time.Millisecond, here)
	select {
	case <-here:
		t.Error("the leader was left")
	default:
	}

	lease, err := s.Grant(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRenewer(s.Client())
	running, stop := context.WithCancel(ctx)
	var run sync.WaitGroup
	run.Go(func() { _ = r.Run(running) })
	defer run.Wait()
	defer stop()
	if err := r.one(ctx, lease.ID); err != nil {
		t.Error(err)
	}
	cluster.Cut(t, leads)
	for r.one(ctx, lease.ID) != nil && ctx.Err() == nil { // a stream that broke is told of, and asked again
	}
	if ctx.Err() != nil {
		t.Error("nothing was renewed after the leader was cut off")
	}
}
