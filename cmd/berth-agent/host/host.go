// Package host runs one or thousands of executor agents in this process on one port, and
// stops all of them when one fails. `berth agent`, `berth dev`, `berth sim` and `berth
// replay` use it.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/access"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/process"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/rpcstats"
	"berth.dev/pkg/tracing"
	"berth.dev/pkg/wire"
)

// agentsPerConn is the number of agents that share a connection to the gateway.
const agentsPerConn = 500

// Host runs agents that share a port.
type Host struct {
	listener net.Listener
	server   *rpc.Server
	agents   *agent.Server
	gateways []string
	secured  *process.Secured
	traces   *tracing.Tracing
	log      *slog.Logger
	group    *process.Group

	// operations serves health and metrics; nil without Operate.
	operations *http.Server
	// endWatch ends Watch; nil without Watch.
	endWatch context.CancelFunc

	mu      sync.Mutex
	conns   []*grpc.ClientConn
	running []*agent.Agent
}

// Open returns a host that serves on a listener. traces may be nil. Close closes the
// listener and traces.
func Open(ctx context.Context, listener net.Listener, gateways []string, secured *process.Secured,
	traces *tracing.Tracing, log *slog.Logger) *Host {
	h := &Host{
		listener: listener,
		server: rpc.NewServer(rpc.ServerOptions{
			Log: log, Stats: rpcstats.Server(nil, traces.Provider()), MaxMessage: agent.MaxRequest,
			MaxFields: wire.MaxStartRequests + agent.MaxFields,
			More:      append(secured.ServerOptions(access.Agent), grpc.MaxConcurrentStreams(agent.MaxCalls)),
		}),
		agents:   agent.NewServer(),
		gateways: gateways, secured: secured, traces: traces, log: log, group: process.NewGroup(ctx),
	}
	h.agents.Register(h.server)
	access.Reflect(h.server, access.Agent)
	calls := secured.Listener(listener, "--listen", false)
	h.group.Go("agent server", func(context.Context) error { return h.server.Serve(calls) })
	return h
}

// Address returns the address at which the agents serve requests.
func (h *Host) Address() string { return h.listener.Addr().String() }

// Add creates an agent and runs it. Add sets the Conn and Log of the configuration, and the
// Address if it is empty.
func (h *Host) Add(config agent.Config) (*agent.Agent, error) {
	if id := h.secured.Identity(); id != nil && !id.CoversExecutor(config.ID) {
		return nil, fault.BadField(fault.ReasonInvalid, "--tls-cert", "is for the executor %q, not for %q",
			id.Name, config.ID)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.running) >= agentsPerConn*len(h.conns) {
		conn, err := rpc.Dial(h.gateways, rpc.DialOptions{TLS: h.secured.Client(identity.Gateway),
			More: append(agent.DialOptions(), rpc.WarnMisdirected(h.log))})
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
			return nil // the agent has logged the error; the other agents keep running
		}
		return err
	})
	return a, nil
}

// Simulate adds n simulated agents, named prefix-0 and so on. starts is their
// agent.Config.Starts.
func (h *Host) Simulate(prefix string, n int, sku string, resources resource.Vector, starts int) error {
	for i := range n {
		config := agent.Config{ID: fmt.Sprintf("%s-%d", prefix, i), SKU: sku, Host: prefix, Resources: resources,
			Driver: agent.Simulated{}, TombstoneAge: time.Minute, Starts: starts}
		if _, err := h.Add(config); err != nil {
			return err
		}
	}
	return nil
}

// Stopping returns a channel that is closed when an agent fails or the process is stopped.
func (h *Host) Stopping() <-chan struct{} { return h.group.Stopping() }

// Close stops the agents. If stopWorkers is set, Close first stops their workers, each
// within its grace period, and reports their ends while the context of the host lasts. Otherwise the
// workers keep running, and the next agent adopts them.
func (h *Host) Close(stopWorkers bool, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if h.endWatch != nil {
		h.endWatch()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []error
	if stopWorkers {
		stopped := make(chan error, len(h.running))
		for _, a := range h.running {
			go func() { stopped <- a.StopAndReport(ctx) }()
		}
		for range h.running {
			all = append(all, <-stopped)
		}
	}
	h.group.Stop()
	all = append(all, h.server.Shutdown(ctx))
	if h.operations != nil {
		all = append(all, h.operations.Shutdown(ctx))
	}
	all = append(all, h.group.Wait())
	for _, a := range h.running {
		all = append(all, a.Close())
	}
	for _, conn := range h.conns {
		all = append(all, conn.Close())
	}
	h.traces.Close()
	return errors.Join(all...)
}
