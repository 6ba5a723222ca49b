// Package running makes sure that a cluster that runs elsewhere is reachable before a
// command starts its work on the cluster. It checks the flags for the cluster, and waits
// until a gateway and etcd answer and executors are ready.
package running

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
)

// Cluster identifies a cluster that runs elsewhere.
type Cluster struct {
	// Gateways, AgentsGateways and Etcd are the addresses of the gateways, of the gateways'
	// listeners for agents, and of etcd. Either all three are empty or none is.
	Gateways, AgentsGateways, Etcd []string
	// Name is the name of the cluster.
	Name string
	// Timeout is the time within which a gateway and etcd must answer.
	Timeout time.Duration
}

// Flags adds the flags for the cluster.
func (r *Cluster) Flags(set *pflag.FlagSet) {
	set.StringSliceVar(&r.Gateways, "gateway", nil,
		"gateway addresses of a running cluster in plain text, host:port or http:// URLs (default: no running cluster)")
	set.StringSliceVar(&r.AgentsGateways, "agents-gateway", nil,
		"addresses of --agents-listen of those gateways, host:port; executors register there")
	set.StringSliceVar(&r.Etcd, "etcd-endpoints", nil, "etcd endpoints of that cluster, host:port")
	set.StringVar(&r.Name, "cluster", "default", "cluster name, which is also the prefix of its keys in etcd")
	set.DurationVar(&r.Timeout, "timeout", 10*time.Second,
		"maximum time for an answer of a gateway and of etcd of a running cluster")
}

// Check returns an error if the flags are invalid or incomplete.
func (r *Cluster) Check() error {
	switch {
	case r.Timeout <= 0:
		return fault.BadField(fault.ReasonInvalid, "--timeout", "must be longer than 0, got %v", r.Timeout)
	case (len(r.Gateways) == 0) != (len(r.Etcd) == 0):
		return fault.BadField(fault.ReasonInvalid, "--etcd-endpoints", "must be set together with --gateway")
	case (len(r.Gateways) == 0) != (len(r.AgentsGateways) == 0):
		return fault.BadField(fault.ReasonInvalid, "--agents-gateway", "must be set together with --gateway")
	}
	for _, list := range []struct {
		option, form string
		items        *[]string
	}{
		{"gateway", "gateway", &r.Gateways}, {"agents-gateway", "address", &r.AgentsGateways},
		{"etcd-endpoints", "etcd", &r.Etcd},
	} {
		var err error
		if *list.items, err = process.CheckList(list.option, list.form, *list.items); err != nil {
			return err
		}
	}
	for _, address := range slices.Concat(r.Gateways, r.Etcd) {
		if strings.HasPrefix(address, "https://") {
			return withTLS(address)
		}
	}
	return process.CheckCluster(r.Name)
}

// withTLS returns the error for a cluster with TLS. It would need certificates for an operator,
// for etcd and for the simulated executors.
func withTLS(address string) error {
	return fault.New(fault.Invalid, fault.ReasonUnsupported,
		"%s requires TLS: berth bench and berth replay support only running clusters in plain text", address)
}

// Reach waits until a gateway and etcd have answered. It converts the addresses of the
// gateways to host:port.
func (r *Cluster) Reach(ctx context.Context) error {
	addresses, err := client.Addresses(r.Gateways, nil)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(addresses, func(a string) bool { return strings.Contains(a, "/") }); i >= 0 {
		return fault.BadField(fault.ReasonUnsupported, "--gateways", "%q has a path: use host:port", addresses[i])
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	c, err := client.Dial(addresses)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Leaders(ctx); err != nil {
		if strings.Contains(err.Error(), "it may require TLS") {
			return withTLS(strings.Join(addresses, ","))
		}
		return err
	}
	etcd, err := store.Dial(store.DialConfig{Endpoints: r.Etcd})
	if err != nil {
		return err
	}
	defer etcd.Close()
	if _, err := etcd.Client().Get(ctx, "berth"); err != nil {
		return EtcdSilent(r.Etcd, r.Timeout).Because(err)
	}
	r.Gateways = addresses
	return nil
}

// AwaitReady waits until n executors of an SKU, by default of any SKU, are READY. After
// that, Berth grants a reservation that fits immediately. AwaitReady retries if a service
// is overloaded because all executors register at the same time.
func AwaitReady(ctx context.Context, c *client.Client, sku string, n int, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ready := 0
		for _, err := range c.Executors(ctx, &berthv1.ListExecutorsRequest{Sku: sku, State: berthv1.Executor_READY,
			PageSize: 1000}) {
			if fault.Is(err, fault.ReasonOverloaded) {
				break
			}
			if err != nil {
				return err
			}
			ready++
		}
		if ready >= n {
			return nil
		}
		if err := store.Sleep(ctx, pause); err != nil {
			return fault.New(fault.Unavailable, fault.ReasonUnavailable, "%d of %d executors are ready", ready, n).Because(err)
		}
	}
}
