// Package executorstate gives the promises of package inventory to callers that may
// repeat every call, whichever replica leads. It is the service with the inventory of
// executors and the leases on them.
//
//	agents ─▶ gateway ─▶ Agents, Heartbeats ─▶ inventory (core) ─▶ etcd
//	registry ─▶ gateway ─▶ Inventory (cycles) ──▲
//
// Every replica handles heartbeats. Heartbeats renew etcd leases and write no records.
package executorstate

import (
	"context"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/replica"
	"berth.dev/services/executor-state/internal"
	"berth.dev/services/executor-state/internal/liveness"
	"berth.dev/services/executor-state/inventory"
)

// HeartbeatEvery is the interval at which agents should send heartbeats.
const HeartbeatEvery = internal.HeartbeatEvery

// Run runs one replica until ctx ends. If listening is set, Run calls it with the
// addresses of the replica.
func Run(ctx context.Context, config Config, listening func(process.Addresses)) error {
	core, err := config.inventory()
	if err != nil {
		return err
	}
	r, err := replica.Open(ctx, model.ServiceExecutorState, config.Service, listening)
	if err != nil {
		return err
	}
	l, err := replica.NewLoop(r, func() *inventory.Core { return inventory.New(core) }, internal.NoActions)
	if err != nil {
		return err
	}
	renewer := liveness.NewRenewer(r.Store.Client())
	r.Go("renewals", renewer.Run)
	reports := internal.NewReports(r.Gateway, l.Guard)
	r.Go("reports", reports.Run)
	prober := internal.NewProber(r.Gateway, l.Guard, r.Log)
	r.Go("probes", prober.Run)

	internal.CollectMetrics(r, l)

	Serve(r.Server, l, config.Cluster)
	heartbeats := internal.NewHeartbeats(l, r.Store, renewer, reports, prober, controlv1.NewAgentsClient(r.Gateway), r.Log)
	r.Go("heartbeats", heartbeats.Run)
	r.Go("offers", heartbeats.PushOffers)
	r.Metrics.Collect(heartbeats.Show)
	controlv1.RegisterHeartbeatsServer(r.Server, heartbeats)
	return replica.Run(r, l)
}

// Serve registers all services of executor-state except Heartbeats. They answer from the
// core of owner. Agents learn the name of the cluster.
func Serve(s grpc.ServiceRegistrar, owner loop.Owner[*inventory.Core], cluster string) {
	berthv1.RegisterExecutorsServer(s, internal.NewExecutors(owner))
	berthv1.RegisterCatalogServer(s, internal.NewCatalog(owner))
	berthv1.RegisterUsageServer(s, internal.NewUsage(owner))
	berthv1.RegisterVolumesServer(s, internal.NewVolumes(owner))
	controlv1.RegisterInventoryServer(s, internal.NewInventory(owner))
	controlv1.RegisterAgentsServer(s, internal.NewAgents(owner, cluster))
}
