// Package running waits for a cluster that runs: for its gateways and etcd, and for its
// executors.
package running

import (
	"context"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/pkg/store"
)

// Reach returns the gateways of a running cluster as host:port, once one of them
// and etcd have answered within the given time.
func Reach(ctx context.Context, gateways, endpoints []string, within time.Duration) ([]string, error) {
	addresses, err := client.Addresses(gateways, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c, err := client.Dial(addresses)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := c.Leaders(ctx); err != nil {
		return nil, err
	}
	etcd, err := store.Dial(store.DialConfig{Endpoints: endpoints})
	if err != nil {
		return nil, err
	}
	defer etcd.Close()
	if _, err := etcd.Client().Get(ctx, "berth"); err != nil {
		return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "no answer from etcd at %s within %v", strings.Join(endpoints, ","), within).Because(err)
	}
	return addresses, nil
}

// AwaitReady waits until n executors are READY: from then on what fits is
// granted at once.
func AwaitReady(ctx context.Context, c *client.Client, n int) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ready := 0
		for _, err := range c.Executors(ctx, &berthv1.ListExecutorsRequest{State: berthv1.Executor_READY}) {
			if err != nil {
				return err
			}
			ready++
		}
		if ready >= n {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fault.New(fault.Unavailable, fault.ReasonUnavailable, "%d of %d executors are ready", ready, n).Because(ctx.Err())
		}
	}
}
