// Package gateway shows callers a failover as a pause and not as an error, and each of its
// listeners serves only the methods of its callers (package surface). It is the entry
// point of Berth. A gateway has no state and makes no decisions, so any number of gateways
// may run at a time.
//
//	job services ─┐  --listen           ┌─ REST ─ JSON ─┐            ┌─▶ leader of registry
//	operators    ─┴──▶ berth.v1        ─┤               ├─▶ router ──┼─▶ leader of executor-state
//	agents       ────▶ --agents-listen ─┼─ gRPC ─ frames┘            └─▶ leader of assigner
//	the services ────▶ --internal-listen┘
//	                                    └─ answered here: leaders (calls the replicas),
//	                                       events (reads etcd), explanations and
//	                                       findings (merges answers of the leaders),
//	                                       output of workers (assigner, events), callers
//	                                       and audited calls (this gateway's), watches
//	                                       (repeat REST calls)
package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"slices"

	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/access"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/rpcstats"
	"berth.dev/pkg/store"
	"berth.dev/pkg/transport"
	"berth.dev/services/gateway/internal/admission"
	"berth.dev/services/gateway/internal/compose"
	"berth.dev/services/gateway/internal/guard"
	"berth.dev/services/gateway/internal/leaders"
	"berth.dev/services/gateway/internal/needs"
	"berth.dev/services/gateway/internal/relay"
	"berth.dev/services/gateway/internal/rest"
	"berth.dev/services/gateway/internal/router"
	"berth.dev/services/gateway/internal/stream"
	"berth.dev/services/gateway/internal/watch"
)

// Run runs a gateway until ctx ends or a part of the gateway fails, and then stops it
// gracefully. If bound is not nil, Run calls it with the addresses on which the gateway
// listens.
func Run(ctx context.Context, config Config, bound func(process.Addresses)) error {
	if err := config.validate(); err != nil {
		return err
	}
	// Telemetry.
	log, err := process.NewLogger(os.Stderr, config.LogFormat, config.LogLevel)
	if err != nil {
		return err
	}
	// Without a configured ID, each call of ReplicaID returns another one.
	replicaID := config.ReplicaID()
	log = log.With("service", model.ServiceGateway, "replica", replicaID)
	metrics, err := config.NewMetrics(model.ServiceGateway)
	if err != nil {
		return err
	}
	secured, err := config.Secure(identity.Gateway, log)
	if err != nil {
		return err
	}
	defer secured.Close()
	metrics.Collect(secured.Metrics)
	services := secured.Client(identity.Service)
	traces, err := config.Trace(ctx, model.ServiceGateway, replicaID,
		secured.External(config.Tracing.OTLPEndpoint), log, metrics)
	if err != nil {
		return err
	}
	defer traces.Close()
	g := process.NewGroup(ctx)
	defer g.Stop()

	// etcd, for job events.
	toEtcd, err := secured.Etcd(config.Common)
	if err != nil {
		return err
	}
	etcd, err := store.Dial(store.DialConfig(toEtcd))
	if err != nil {
		return err
	}
	defer etcd.Close()

	// Peers.
	leading, err := leaders.New(config.replicas(), services)
	if err != nil {
		return err
	}
	defer leading.Close()
	space := keyspace.New(config.Cluster)
	need := needs.New(needs.Options{Expired: secured.Expired, Etcd: etcd, Space: space, Replicas: leading,
		Cluster: config.Cluster, Replica: replicaID, Log: log})
	leading.Gateway = func() ([]string, string) { return need.Reasons(), etcd.ClusterID() }
	g.Go("needs", need.Run)
	calls, err := router.New(router.Options{
		Replicas: config.replicas(), Deadline: config.CallDeadline, TLS: services, Life: g.Context(),
		Reach: leading.Reach, Meters: metrics.Provider, Traces: traces.Provider(),
	})
	if err != nil {
		return err
	}
	defer calls.Close()
	relays, err := relay.New(relay.Options{
		Replicas: config.ExecutorState, Silence: router.Silence, TLS: services, Meters: metrics.Provider,
	})
	if err != nil {
		return err
	}
	defer relays.Close()
	stored := stream.NewEtcd(etcd, space)
	stored.Readable = need.EventsReadable
	events := stream.NewServer(g.Context(), stored, stream.Options{
		Patience: stream.DefaultPatience, Heartbeat: stream.DefaultHeartbeat, MaxStreams: config.MaxEventStreams,
		Tenants: secured.Access.Tenants,
	})
	metrics.Collect(events.Metrics)
	callers := secured.Guard(access.Public)
	callers.Base = config.base()
	watches := watch.NewServer(g.Context(), watch.Options{
		Patience: stream.DefaultPatience, Heartbeat: stream.DefaultHeartbeat, Admit: events.Admit, Guard: callers,
	})
	metrics.Collect(watches.Metrics)
	g.Go("watches", watches.Run)
	composed := compose.New(calls, events.OpenStreams, stored)
	composed.Own = need.Findings
	admitted := &admission.Server{Cluster: config.Cluster, Gateway: replicaID, Version: process.Version,
		Audit: secured.Audit}

	// Serve.
	newServer := func(at access.Listener, maxMessage int, connections []grpc.ServerOption) *rpc.Server {
		base := ""
		if at == access.Public {
			base = config.base()
		}
		server := rpc.NewServer(rpc.ServerOptions{
			Log: log, Deadline: config.CallDeadline, MaxMessage: maxMessage, Base: base,
			Stats: rpcstats.Server(metrics.Provider, traces.Provider()),
			More: slices.Concat(secured.ServerOptions(at), connections,
				[]grpc.ServerOption{grpc.UnknownServiceHandler(calls.Forward)}),
		})
		server.SetServing(model.ServiceGateway, true)
		access.Reflect(server, at)
		return server
	}
	ops := process.Profiled(config.Pprof, process.OpsHandler(nil, ready(g, need), nil, metrics))
	web, err := rest.New(rest.Options{
		Calls: calls, Leaders: leading, Explanations: composed, Findings: composed, Tenants: composed,
		Outputs: composed, Callers: admitted, AuditLog: admitted, Events: events, Ops: ops,
		Watch: func(calls rest.Calls) http.Handler { return watches.Handler(calls) }, Names: config.PublicNames,
		Base: config.base(), Serves: secured.Serves, Traces: traces.Tracer(), Guard: callers,
	})
	if err != nil {
		return err
	}
	connections := guard.New(guard.Limits{
		Connections: config.MaxConnections, Streams: config.MaxStreams, Memory: int64(config.MaxRequestMemory),
		OneMessage: true,
	})
	public := &endpoint{
		at: access.Public, guard: connections,
		server: newServer(access.Public, rpc.PublicMessageLimit, connections.ServerOptions()),
		web:    connections.HTTPServer(web, int64(config.MaxBody), rest.WriteStatus),
	}
	berthv1.RegisterLeadersServer(public.server, leading)
	berthv1.RegisterEventsServer(public.server, events)
	berthv1.RegisterCallersServer(public.server, admitted)
	berthv1.RegisterAuditLogServer(public.server, admitted)
	serve(public.server, composed)
	hosts := guard.New(guard.Limits{
		Connections: config.MaxAgentConnections, Streams: config.MaxStreams, Memory: int64(config.MaxRequestMemory),
	})
	agents := &endpoint{
		at: access.Agents, guard: hosts,
		server: newServer(access.Agents, agentMessageLimit, hosts.ServerOptions()),
	}
	relays.Register(agents.server)
	internal := &endpoint{at: access.Internal, server: newServer(access.Internal, rpc.PeerMessageLimit,
		connectionOptions())}
	endpoints := []*endpoint{public, agents, internal}
	calls.Watch(func(service string, reached bool) {
		watches.Reached(service, reached)
		for _, e := range endpoints {
			if _, served := e.at.GetServiceInfo()[service]; served {
				e.server.SetServing(service, reached)
			}
		}
	})
	transport.ServeHTTP(public.web)
	operations := secured.Operations(ops)
	public.web.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	operations.ErrorLog = public.web.ErrorLog

	// Run.
	g.Go("heartbeats", relays.Run)
	listeners, err := config.open(log)
	if err != nil {
		return err
	}
	public.listener, agents.listener, internal.listener = listeners.Calls, listeners.Agents, listeners.Internal
	for _, e := range endpoints {
		e.serve(g, secured)
	}
	if listeners.HTTP != nil {
		g.Go("operations", process.ServeHTTP(operations, secured.Listener(listeners.HTTP, "--http-listen", true)))
	}
	if err := config.Announce(log, listeners, bound); err != nil {
		g.Fail("announce", err)
	} else {
		process.NotifyReady(log)
	}
	<-g.Stopping()
	relays.End()
	process.Stop(log, config.StopTimeout,
		process.Step{Name: "finish REST calls", Do: public.web.Shutdown},
		process.Step{Name: "finish gRPC calls", Do: finish(endpoints)},
		process.Step{Name: "close the operations port", Do: operations.Shutdown})
	return g.Wait()
}

// ready returns the condition of /readyz: the gateway is not stopping and has what it needs.
func ready(g *process.Group, need *needs.Needs) process.Probe {
	running := process.Running(g.Context())
	return func() error {
		if err := running(); err != nil {
			return err
		}
		return need.Ready()
	}
}

// RunAlone is Run for a process that runs only a gateway. It also sets the limit on the
// heap of the process.
func RunAlone(ctx context.Context, config Config, bound func(process.Addresses)) error {
	go process.BoundHeap(ctx, process.LargeGateway)
	return Run(ctx, config, bound)
}

// Serve registers the calls that a gateway answers from several services. It calls the
// services through calls.
func Serve(s grpc.ServiceRegistrar, calls grpc.ClientConnInterface) {
	serve(s, compose.New(calls, nil, nil))
}

func serve(s grpc.ServiceRegistrar, composed *compose.Server) {
	berthv1.RegisterExplanationsServer(s, composed)
	berthv1.RegisterFindingsServer(s, composed)
	berthv1.RegisterTenantsServer(s, composed)
	berthv1.RegisterOutputsServer(s, composed)
}
