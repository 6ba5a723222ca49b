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

// Renewals go to the leading member. When that member is cut off, they go to the next
// leader. The watch of a stream reports another leader only if the stream does not go to
// the leader.
func TestRenewAtTheLeader(t *testing.T) {
	cluster := etcdtest.StartCluster(t, 3)
	s := cluster.Store(t)
	ctx := within(t)
	// If the machine pauses, etcd may change its leader, or may not report its leader in time.
	// The test therefore retries a few times.
	for tries := 10; ; tries-- {
		leads := leading(ctx, t, cluster)
		wrong := checkWatch(ctx, s.Client(), cluster.Endpoints()[leads], cluster.Endpoints()[(leads+1)%3])
		if wrong == nil {
			break
		}
		if tries == 1 || !errors.Is(wrong, errNoLeaderReported) && leading(ctx, t, cluster) == leads {
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
	for r.one(ctx, lease.ID) != nil && ctx.Err() == nil { // until a renewal reaches the next leader
	}
	if ctx.Err() != nil {
		t.Error("nothing was renewed after the leader was cut off")
	}
}

// leading waits until a member leads and returns the index of that member.
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

var errNoLeaderReported = errors.New("no member reports that it leads")

// checkWatch returns an error if the watch of a stream reports the wrong result, for a
// stream to the leader or to another member.
func checkWatch(ctx context.Context, client *clientv3.Client, leader, other string) error {
	switch leadingMember(ctx, client) {
	case leader:
	case "":
		return errNoLeaderReported
	default:
		return fmt.Errorf("%q is not known to lead", leader)
	}
	if !leaves(ctx, client, other, 20*time.Second) {
		return fmt.Errorf("the watch of %q does not report that %q leads", other, leader)
	}
	if leaves(ctx, client, leader, 20*time.Millisecond) {
		return errors.New("the client disconnected from the leader")
	}
	return nil
}

// leaves reports whether the watch of a stream to the given member reports another leader
// within the given time.
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
