// Package host runs executor agents in this process, one or thousands, behind
// one port: what `berth agent`, `berth dev`, `berth sim` and `berth replay`
// share.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/client"
	"berth.dev/pkg/fault"
	"berth.dev/pkg/process"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/rpc"
	"berth.dev/pkg/store"
	"berth.dev/pkg/tracing"
	"berth.dev/pkg/wire"
)

// agentsPerConn is how many agents share a connection to the gateway.
const agentsPerConn = 500

// Host is a port and the agents behind it.
type Host struct {
	listener net.Listener
	server   *rpc.Server
	agents   *agent.Server
	gateways []string
	traces   *tracing.Tracing
	log      *slog.Logger
	group    *process.Group

	mu      sync.Mutex
	conns   []*grpc.ClientConn
	running []*agent.Agent
}

// Open serves on a listener and traces, which may be nil, to where it is told;
// both are its own from now on.
func Open(ctx context.Context, listener net.Listener, gateways []string, traces *tracing.Tracing, log *slog.Logger) *Host {
	h := &Host{
		listener: listener,
		server: rpc.NewServer(rpc.ServerOptions{
			Log: log, Traces: traces.Provider(), MaxMessage: agent.MaxRequest, MaxFields: wire.MaxOrders + agent.MaxFields,
			More: []grpc.ServerOption{grpc.MaxConcurrentStreams(agent.MaxCalls)},
		}),
		agents:   agent.NewServer(),
		gateways: gateways, traces: traces, log: log, group: process.NewGroup(ctx),
	}
	h.agents.Register(h.server)
	h.group.Go("orders", func(context.Context) error { return h.server.Serve(listener) })
	return h
}

// Address is where the agents take orders.
func (h *Host) Address() string { return h.listener.Addr().String() }

// Add makes an agent and runs it. Address, Conn and Log are the host's.
func (h *Host) Add(config agent.Config) (*agent.Agent, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.running) >= agentsPerConn*len(h.conns) {
		conn, err := rpc.Dial(h.gateways, rpc.DialOptions{More: append(agent.DialOptions(), rpc.WarnMisdirected(h.log))})
		if err != nil {
			return nil, err
		}
		h.conns = append(h.conns, conn)
	}
	if config.Address == "" {
		config.Address = h.Address()
	}
	config.Conn, config.Log = h.conns[len(h.conns)-1], h.log
	a, err := agent.New(config)
	if err != nil {
		return nil, err
	}
	h.running = append(h.running, a)
	h.agents.Add(a)
	_, simulated := config.Driver.(agent.Simulated)
	h.group.Go("agent "+config.ID, func(ctx context.Context) error {
		err := a.Run(ctx)
		if simulated && errors.Is(err, agent.ErrSuperseded) {
			return nil // the agent said so; the others of the simulation go on
		}
		return err
	})
	return a, nil
}

// Simulate adds n simulated agents, named prefix-0 and so on.
func (h *Host) Simulate(prefix string, n int, sku string, resources resource.Vector) error {
	for i := range n {
		config := agent.Config{ID: fmt.Sprintf("%s-%d", prefix, i), SKU: sku, Host: prefix, Resources: resources, Driver: agent.Simulated{}, TombstoneAge: time.Minute}
		if _, err := h.Add(config); err != nil {
			return err
		}
	}
	return nil
}

// Stopping is closed when an agent has failed or the host is to stop.
func (h *Host) Stopping() <-chan struct{} { return h.group.Stopping() }

// Close stops the agents; with stopWorkers their workers too, each within its
// grace, otherwise they run on for the next agent to adopt.
func (h *Host) Close(stopWorkers bool, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []error
	if stopWorkers {
		stopped := make(chan error, len(h.running))
		for _, a := range h.running {
			go func() { stopped <- a.StopWorkers(ctx) }()
		}
		for range h.running {
			all = append(all, <-stopped)
		}
	}
	h.group.Stop()
	all = append(all, h.server.Shutdown(ctx), h.group.Wait())
	for _, a := range h.running {
		all = append(all, a.Close())
	}
	for _, conn := range h.conns {
		all = append(all, conn.Close())
	}
	h.traces.Close()
	return errors.Join(all...)
}

// Running names a cluster that runs elsewhere.
type Running struct {
	// Gateways, AgentsGateways and Etcd are the addresses of its gateways, of their
	// listeners for agents, and of etcd. All are empty if no cluster is named.
	Gateways, AgentsGateways, Etcd []string
	// Name is the name of the cluster.
	Name string
	// Timeout is the time within which a gateway and etcd must answer.
	Timeout time.Duration
}

// Flags adds the flags that name the cluster.
func (r *Running) Flags(set *pflag.FlagSet) {
	set.StringSliceVar(&r.Gateways, "gateway", nil, "gateways of a running cluster, host:port or http:// URLs of them")
	set.StringSliceVar(&r.AgentsGateways, "agents-gateway", nil, "the --agents-listen of those gateways, host:port: executors register there")
	set.StringSliceVar(&r.Etcd, "etcd-endpoints", nil, "etcd endpoints of that cluster, host:port")
	set.StringVar(&r.Name, "cluster", "default", "name of the cluster, and of its prefix in etcd")
	set.DurationVar(&r.Timeout, "timeout", 10*time.Second, "how long a gateway and etcd of a running cluster may take to answer")
}

// Check refuses flags that are wrong or incomplete.
func (r *Running) Check() error {
	switch {
	case r.Timeout <= 0:
		return fault.BadField(fault.ReasonInvalid, "--timeout", "must be longer than 0, got %v", r.Timeout)
	case (len(r.Gateways) == 0) != (len(r.Etcd) == 0):
		return fault.BadField(fault.ReasonInvalid, "--etcd-endpoints", "must be given with --gateway, and --gateway with it")
	case (len(r.Gateways) == 0) != (len(r.AgentsGateways) == 0):
		return fault.BadField(fault.ReasonInvalid, "--agents-gateway", "must be given with --gateway, and --gateway with it")
	}
	return process.CheckCluster(r.Name)
}

// Reach waits until a gateway and etcd have answered, and turns the addresses of the
// gateways into host:port.
func (r *Running) Reach(ctx context.Context) error {
	addresses, err := client.Addresses(r.Gateways, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	c, err := client.Dial(addresses)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Leaders(ctx); err != nil {
		return err
	}
	etcd, err := store.Dial(store.DialConfig{Endpoints: r.Etcd})
	if err != nil {
		return err
	}
	defer etcd.Close()
	if _, err := etcd.Client().Get(ctx, "berth"); err != nil {
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "no answer from etcd at %s within %v", strings.Join(r.Etcd, ","), r.Timeout).Because(err)
	}
	r.Gateways = addresses
	return nil
}

// AwaitReady waits until n executors of an SKU, or of any if it is empty, are READY:
// from then on a reservation that fits is granted at once. A service that is
// overloaded because all of them join at once is asked again.
func AwaitReady(ctx context.Context, c *client.Client, sku string, n int, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ready := 0
		for _, err := range c.Executors(ctx, &berthv1.ListExecutorsRequest{Sku: sku, State: berthv1.Executor_READY, PageSize: 1000}) {
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
