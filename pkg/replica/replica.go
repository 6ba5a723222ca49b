// Package replica starts and stops the parts of an elected service in one order, so that
// callers always reach a replica that serves or can redirect them. Registry,
// executor-state and assigner use it for all parts from the ports to the core.
//
//	config ─▶ telemetry ─▶ ports ─▶ etcd ─▶ view ─▶ peers ─▶ loop ─▶ election ─▶ serve
//
// It promises:
//
//   - While etcd does not answer, the process waits, and /readyz reports it.
//   - Only a serving leader is reported as healthy under the service's health name for
//     leaders, and under the gRPC services that only the leader serves.
//   - An orderly stop first resigns the leadership and last closes the port, so callers
//     always reach a replica that can redirect them.
package replica

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/access"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/leader"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/rpcstats"
	"berth.dev/pkg/store"
	"berth.dev/pkg/tracing"
	"berth.dev/pkg/wire"
)

// Replica contains the parts of a process that every elected service needs.
type Replica struct {
	Service string
	// ID is the name of the replica. A configured name stays the same after a restart.
	ID      string
	Config  process.Service
	Log     *slog.Logger
	Metrics *process.Metrics
	// Tracing is nil if tracing is off.
	Tracing *tracing.Tracing
	Space   keyspace.Space
	Store   *store.Etcd
	// Gateway is the connection for calls to other services.
	Gateway *grpc.ClientConn
	// Server serves calls. Services must be registered before Run.
	Server *rpc.Server

	instance string // ID that is unique for each process
	secured  *process.Secured
	ports    *process.Listeners
	address  string // the address at which others reach this process
	group    *process.Group
}

// warmHandlers is the number of goroutines that the server keeps to handle calls. Further
// concurrent calls get new goroutines. The stack of a new goroutine is copied three times
// until it is large enough for a call, which was 5% of the cost of an upsert.
const warmHandlers = 256

// gatewaySilence is how long a gateway may be silent before the client repeats the calls
// in flight at another gateway.
const gatewaySilence = 2 * time.Second

// Open binds the ports and creates the clients. It does not wait for etcd or the gateway.
// If announce is not nil, Open calls it with the addresses at which the replica listens.
func Open(ctx context.Context, service string, config process.Service, announce func(process.Addresses)) (*Replica,
	error) {
	log, err := process.NewLogger(os.Stderr, config.LogFormat, config.LogLevel)
	if err != nil {
		return nil, err
	}
	r := &Replica{
		Service: service, ID: config.ReplicaID(), instance: rand.Text(), Config: config, Space: keyspace.New(config.Cluster),
	}
	r.Log = log.With("service", service, "replica", r.ID)
	if r.Metrics, err = config.NewMetrics(service); err != nil {
		return nil, err
	}
	if err := eventLimits(config).Check(); err != nil {
		return nil, err
	}
	if r.secured, err = config.Secure(identity.Service, r.Log); err != nil {
		return nil, err
	}
	r.Metrics.Collect(r.secured.Metrics)
	if r.Tracing, err = config.Trace(ctx, service, r.ID, r.secured.External(config.Tracing.OTLPEndpoint), r.Log,
		r.Metrics); err != nil {
		r.close()
		return nil, err
	}
	if r.ports, err = config.Open(r.Log); err != nil {
		r.close()
		return nil, err
	}
	if r.address, err = process.Instance(config.Advertise, r.ports.Calls.Addr()); err != nil {
		r.close()
		return nil, err
	}
	etcd, err := r.secured.Etcd(config.Common)
	if err != nil {
		r.close()
		return nil, err
	}
	if r.Store, err = store.Dial(store.DialConfig(etcd)); err != nil {
		r.close()
		return nil, err
	}
	if r.Gateway, err = rpc.Dial(config.Gateways, rpc.DialOptions{
		Silence: gatewaySilence, TLS: r.Peers(identity.Gateway),
		Stats: rpcstats.Client(r.Metrics.Provider, r.Tracing.Provider()),
		More:  []grpc.DialOption{rpc.WarnMisdirected(r.Log)},
	}); err != nil {
		r.close()
		return nil, err
	}
	r.Server = rpc.NewServer(rpc.ServerOptions{
		Log: r.Log, Stats: rpcstats.Server(r.Metrics.Provider, r.Tracing.Provider()),
		More: append(r.secured.ServerOptions(access.Service), grpc.NumStreamWorkers(warmHandlers)),
	})
	access.Reflect(r.Server, access.Service)
	r.group = process.NewGroup(ctx)
	if err := config.Announce(r.Log, r.ports, announce); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// close closes everything that Open has opened so far.
func (r *Replica) close() {
	if r.ports != nil {
		r.ports.Close()
	}
	if r.Gateway != nil {
		r.Gateway.Close()
	}
	if r.Store != nil {
		r.Store.Close()
	}
	r.Tracing.Close()
	r.secured.Close()
}

// Peers returns the TLS configuration of calls to processes with one of the roles; nil if
// calls are in plain text.
func (r *Replica) Peers(roles identity.Role) *tls.Config { return r.secured.Client(roles) }

// Tenants returns the tenants in the access file; nil without one.
func (r *Replica) Tenants() *model.Tenants { return r.secured.Access.Tenants() }

// Go runs a member of the process in addition to the loop. The member stops with the
// process, and the process stops if the member fails.
func (r *Replica) Go(name string, member func(ctx context.Context) error) { r.group.Go(name, member) }

// NewLoop returns the loop of the service's core. If it returns an error, it has closed
// the replica.
func NewLoop[C model.Core](r *Replica, core func() C, perform func(*loop.Term, C, model.Action)) (*loop.Loop[C],
	error) {
	var l *loop.Loop[C]
	election, err := leader.New(leader.Config{
		Store:     r.Store,
		Key:       r.Space.Key(model.LeaderRef(r.Service)),
		TTL:       r.Config.TTL,
		Candidate: leader.Candidate{ID: r.ID, Instance: r.instance, Address: r.address, Version: process.Version},
		WaitDead:  (&leader.Probe{Identify: r.identify}).WaitDead,
		MayEvict:  func() bool { return l.Status().Current },
		Log:       r.Log,
	})
	if err != nil {
		r.close()
		return nil, err
	}
	l = loop.New(loop.Config[C]{
		Service: r.Service, Replica: r.ID, Version: process.Version, Space: r.Space, Store: r.Store, Election: election,
		New: core, Perform: perform, Log: r.Log, Events: eventLimits(r.Config),
		OnLead:  r.setLeads,
		Durable: steps(r),
	})
	return l, nil
}

// onEveryReplica lists the services that a replica serves whether it leads or not.
var onEveryReplica = []string{healthpb.Health_ServiceDesc.ServiceName,
	reflectionpb.ServerReflection_ServiceDesc.ServiceName, controlv1.Replicas_ServiceDesc.ServiceName,
	controlv1.Heartbeats_ServiceDesc.ServiceName}

// setLeads sets the health of the leader and of the services that only the leader serves.
func (r *Replica) setLeads(serving bool) {
	r.Server.SetServing(rpc.LeaderHealth(r.Service), serving)
	for service := range r.Server.GetServiceInfo() {
		if !slices.Contains(onEveryReplica, service) {
			r.Server.SetServing(service, serving)
		}
	}
}

// eventLimits returns the configured limits of job events.
func eventLimits(config process.Service) loop.EventLimits {
	return loop.EventLimits{Retention: config.EventRetention, PerJob: config.EventMaxPerJob, Bytes: config.EventMaxBytes}
}

// identifyTimeout is the timeout of a call of identify. It is short, because an exiting
// process may accept connections without answering.
const identifyTimeout = 200 * time.Millisecond

// identify returns the ID and the instance of the process that answers at an address.
func (r *Replica) identify(ctx context.Context, address string) (leader.Candidate, error) {
	conn, err := rpc.Dial([]string{address}, rpc.DialOptions{TLS: r.Peers(identity.Service), FailFast: true})
	if err != nil {
		return leader.Candidate{}, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	answer, err := controlv1.NewReplicasClient(conn).GetReplica(ctx, &controlv1.GetReplicaRequest{})
	return leader.Candidate{ID: answer.GetId(), Instance: answer.GetInstance()}, err
}

// Run serves until the context of Open ends or a part of the process fails.
func Run[C model.Core](r *Replica, l *loop.Loop[C]) error {
	r.Metrics.Collect(func(f process.Scrape) { r.showStatus(f, l.Status()) })
	r.Server.SetServing(r.Service, true)
	r.setLeads(false)

	leaderKey := r.Space.Key(model.LeaderRef(r.Service))
	ready := &readiness{
		current: func() bool { return l.Status().Current },
		leads:   func() bool { return l.Status().Serving },
		check:   func(ctx context.Context) error { return r.Store.Check(ctx, leaderKey) },
		etcd:    strings.Join(r.Config.Etcd, ", "), expired: r.secured.Expired,
	}
	gateways := &gateways{check: r.checkGateways}
	lacks := func() []string {
		return slices.DeleteFunc([]string{ready.lacks(), gateways.lacks()}, func(s string) bool { return s == "" })
	}
	controlv1.RegisterReplicasServer(r.Server, &self[C]{r: r, loop: l, lacks: lacks})
	leading := func(ctx context.Context) (process.Leadership, error) {
		info := leadership(ctx, r.Store, leaderKey, l.Status)
		info.Service, info.Replica = r.Service, r.ID
		if s := l.Status(); !s.Serving {
			return info, fmt.Errorf("this replica of %s does not lead", r.Service)
		}
		return info, nil
	}
	r.group.Go("readiness", func(ctx context.Context) error { return ready.watch(ctx, r.Log) })
	r.group.Go("gateways", func(ctx context.Context) error { return gateways.watch(ctx, r.Log) })
	ops := r.secured.Operations(process.Profiled(r.Config.Pprof,
		process.OpsHandler(l.Alive, ready.probe, leading, r.Metrics)))
	calls := r.secured.Listener(r.ports.Calls, "--listen", false)
	r.group.Go("calls", func(context.Context) error { return r.Server.Serve(calls) })
	if r.ports.HTTP != nil {
		r.group.Go("health and metrics", process.ServeHTTP(ops, r.secured.Listener(r.ports.HTTP, "--http-listen", true)))
	}

	looping, stopLoop := context.WithCancel(context.Background())
	defer stopLoop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(looping)
	}()

	<-r.group.Stopping()
	process.Stop(r.Log, r.Config.StopTimeout,
		process.Step{Name: "resign leadership", Do: func(ctx context.Context) error {
			stopLoop()
			select {
			case <-ended:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}},
		process.Step{Name: "health and metrics", Do: ops.Shutdown},
		process.Step{Name: "calls", Do: r.Server.Shutdown},
	)
	err := r.group.Wait()
	r.close()
	return err
}

// self serves control.v1.Replicas.
type self[C model.Core] struct {
	controlv1.UnimplementedReplicasServer
	r     *Replica
	loop  *loop.Loop[C]
	lacks func() []string
}

// GetReplica implements control.v1.Replicas.
func (s *self[C]) GetReplica(context.Context, *controlv1.GetReplicaRequest) (*berthv1.Replica, error) {
	status := s.loop.Status()
	role := berthv1.Replica_STANDBY
	if status.Serving {
		role = berthv1.Replica_LEADER
	}
	return &berthv1.Replica{
		Id: s.r.ID, Instance: s.r.instance, Service: s.r.Service, Address: s.r.address, Role: role,
		Cluster: s.r.Config.Cluster, EtcdCluster: s.r.Store.ClusterID(), Lacks: s.lacks(),
		Revision: status.Revision,
		Version:  process.Version,
		Term:     status.Term, Since: wire.Timestamp(status.Since), Renewed: wire.Timestamp(status.Renewed),
		Now: timestamppb.Now(),
	}, nil
}

// Resign implements control.v1.Replicas.
func (s *self[C]) Resign(ctx context.Context, req *controlv1.ResignRequest) (*controlv1.ResignAnswer, error) {
	s.r.Log.Info("requested to resign", "term", req.GetTerm())
	if err := s.loop.Resign(ctx, req.GetTerm()); err != nil {
		return nil, err
	}
	return &controlv1.ResignAnswer{}, nil
}
