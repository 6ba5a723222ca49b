package liveness

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

const (
	// lookEvery is how often a stream looks whether the member that it goes to
	// still leads.
	lookEvery = 10 * time.Second
	// lookFor is how long a member may take to say who leads.
	lookFor = 500 * time.Millisecond
)

// leadingMember finds the endpoint of the member of etcd that leads. It alone
// renews: any other passes each renewal on to it in a call of its own, which costs
// etcd several times what the renewal does. Empty where that cannot be told, or
// where there is no choice: any member will do then.
func leadingMember(ctx context.Context, client *clientv3.Client) string {
	endpoints := client.Endpoints()
	if len(endpoints) < 2 {
		return ""
	}
	for _, endpoint := range endpoints {
		asking, cancel := context.WithTimeout(ctx, lookFor)
		status, err := client.Status(asking, endpoint)
		cancel()
		if err == nil && status.Leader != 0 && status.Leader == status.Header.GetMemberId() {
			return endpoint
		}
	}
	return ""
}

// dial answers a connection to an endpoint, or for an empty one to any; done lets go
// of it.
func dial(client *clientv3.Client, endpoint string) (conn *grpc.ClientConn, done func()) {
	if endpoint != "" {
		if own, err := client.Dial(endpoint); err == nil {
			return own, func() { own.Close() }
		}
	}
	return client.ActiveConnection(), func() {}
}

// look closes elsewhere, and returns, once another member than that at the endpoint
// is known to lead, or ctx ends.
func look(ctx context.Context, client *clientv3.Client, endpoint string, every time.Duration, elsewhere chan<- struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if leads := leadingMember(ctx, client); leads != "" && leads != endpoint {
			close(elsewhere)
			return
		}
	}
}
