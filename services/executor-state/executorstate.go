// Package executorstate is the service that keeps the inventory of executors,
// and the leases on them.
//
//	agents ─▶ gateway ─▶ Agents, Heartbeats ─▶ inventory (core) ─▶ etcd
//	registry ─▶ gateway ─▶ Inventory (cycles) ──▲
//
// It promises what package inventory promises, to callers that may repeat every
// call, on whichever of its replicas leads. Heartbeats are taken by every
// replica and never write: they renew etcd leases.
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

// HeartbeatEvery is how often agents are told to send a heartbeat.
const HeartbeatEvery = internal.HeartbeatEvery

// Run runs one replica until ctx ends. Told, if given, learns where it listens.
func Run(ctx context.Context, config Config, told func(process.Addresses)) error {
	core, err := config.inventory()
	if err != nil {
		return err
	}
	r, err := replica.Open(ctx, model.ServiceExecutorState, config.Service, told)
	if err != nil {
		return err
	}
	l, err := replica.NewLoop(r, func() *inventory.Core { return inventory.New(core) }, internal.NoActions)
	if err != nil {
		return err
	}
	renewer := liveness.NewRenewer(r.Store.Client())
	r.Go("renewals", renewer.Run)
	reports := internal.NewReports(r.Gateway)
	reports.Guard = l.Guard
	r.Go("reports", reports.Run)
	gone := internal.NewDepartures(r.Gateway, r.Log)
	gone.Guard = l.Guard
	r.Go("departures", gone.Run)

	internal.ShowFigures(r, l)

	Serve(r.Server, l)
	heartbeats := internal.NewHeartbeats(l, r.Store, renewer, reports, gone, r.Gateway, r.Log)
	r.Go("heartbeats", heartbeats.Run)
	r.Metrics.Collect(heartbeats.Show)
	controlv1.RegisterHeartbeatsServer(r.Server, heartbeats)
	return replica.Run(r, l)
}

// Serve answers executor-state's calls, heartbeats aside, from the core that
// owner owns.
func Serve(s grpc.ServiceRegistrar, owner loop.Owner[*inventory.Core]) {
	berthv1.RegisterExecutorsServer(s, internal.NewExecutors(owner))
	berthv1.RegisterCatalogServer(s, internal.NewCatalog(owner))
	berthv1.RegisterUsageServer(s, internal.NewUsage(owner))
	controlv1.RegisterInventoryServer(s, internal.NewInventory(owner))
	controlv1.RegisterAgentsServer(s, internal.NewAgents(owner))
}
