package liveness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"berth.dev/testkit/etcdtest"
)

// Renewals go to the member that leads, which others would pass them on to, and to
// who leads next when it is cut off. A stream that goes to another is told so, and
// one that goes to the leader is not.
func TestRenewAtTheLeader(t *testing.T) {
	cluster := etcdtest.StartCluster(t, 3)
	s := cluster.Store(t)
	ctx := within(t)
	// A machine that stands still may change its leader meanwhile, or not say in time
	// who leads. That is not the renewer's fault, so there are a few tries.
	for tries := 10; ; tries-- {
		leads := leading(ctx, t, cluster)
		wrong := toldOf(ctx, s.Client(), cluster.Endpoints()[leads], cluster.Endpoints()[(leads+1)%3])
		if wrong == nil {
			break
		}
		if tries == 1 || !errors.Is(wrong, errUntold) && leading(ctx, t, cluster) == leads {
			t.Fatal(wrong)
		}
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
	leads := leading(ctx, t, cluster)
	if err := r.one(ctx, lease.ID); err != nil && leading(ctx, t, cluster) == leads {
		t.Error(err)
	}
	cluster.Cut(t, leading(ctx, t, cluster))
	for r.one(ctx, lease.ID) != nil && ctx.Err() == nil { // a stream that broke is told of, and asked again
	}
	if ctx.Err() != nil {
		t.Error("nothing was renewed after the leader was cut off")
	}
}

// leading is the index of the member that leads, once there is one.
func leading(ctx context.Context, t *testing.T, cluster *etcdtest.Cluster) int {
	t.Helper()
	for ctx.Err() == nil {
		if leads := cluster.Leader(); leads >= 0 {
			return leads
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("no member leads")
	return 0
}

var errUntold = errors.New("no member says that it leads")

// toldOf says what is wrong with what a stream is told about the leader and another
// member.
func toldOf(ctx context.Context, client *clientv3.Client, leader, other string) error {
	switch leadingMember(ctx, client) {
	case leader:
	case "":
		return errUntold
	default:
		return fmt.Errorf("%q is not known to lead", leader)
	}
	if !leaves(ctx, client, other, 20*time.Second) {
		return fmt.Errorf("who renews at %q is not told that %q leads", other, leader)
	}
	if leaves(ctx, client, leader, 20*time.Millisecond) {
		return errors.New("the leader was left")
	}
	return nil
}

// leaves says whether a stream to a member is told within a time that another leads.
func leaves(ctx context.Context, client *clientv3.Client, member string, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	elsewhere := make(chan struct{})
	watchLeader(ctx, client, member, time.Millisecond, elsewhere)
	select {
	case <-elsewhere:
		return true
	default:
		return false
	}
}
