package liveness

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

const (
	// leaderCheckInterval is how often a stream checks that its etcd member still leads.
	leaderCheckInterval = 10 * time.Second
	// statusTimeout is how long a member may take to answer whether it leads.
	statusTimeout = 500 * time.Millisecond
)

// leadingMember returns the endpoint of the etcd member that leads. Any other member
// forwards each renewal to the leader in a separate call, which costs etcd several times
// as much as the renewal. leadingMember returns an empty endpoint, which means any
// member, if the leader is unknown or there is only one endpoint.
func leadingMember(ctx context.Context, client *clientv3.Client) string {
	endpoints := client.Endpoints()
	if len(endpoints) < 2 {
		return ""
	}
	for _, endpoint := range endpoints {
		statusCtx, cancel := context.WithTimeout(ctx, statusTimeout)
		status, err := client.Status(statusCtx, endpoint)
		cancel()
		if err == nil && status.Leader != 0 && status.Leader == status.Header.GetMemberId() {
			return endpoint
		}
	}
	return ""
}

// dial returns a connection to an endpoint, or to any member if the endpoint is empty.
// done releases the connection.
func dial(client *clientv3.Client, endpoint string) (conn *grpc.ClientConn, done func()) {
	if endpoint != "" {
		if own, err := client.Dial(endpoint); err == nil {
			return own, func() { own.Close() }
		}
	}
	return client.ActiveConnection(), func() {}
}

// watchLeader closes moved and returns once a member other than the one at the endpoint
// leads. It also returns when ctx ends.
func watchLeader(ctx context.Context, client *clientv3.Client, endpoint string, interval time.Duration,
	moved chan<- struct{}) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if leads := leadingMember(ctx, client); leads != "" && leads != endpoint {
			close(moved)
			return
		}
	}
}
