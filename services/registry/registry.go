// Package registry gives the promises of package queue to callers that may repeat every
// call, whichever of its replicas leads. It is the service that keeps the queue of
// reservations.
//
//	job services ─▶ gateway ─▶ Reservations ─▶ queue (core) ─▶ etcd
//	                              cycle ─▶ gateway ─▶ executor-state
//	                         dispatch ─▶ gateway ─▶ assigner
package registry

import (
	"context"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/replica"
	"berth.dev/services/registry/internal"
	"berth.dev/services/registry/queue"
)

// Run runs one replica until ctx ends. If announce is set, Run calls it with the
// addresses of the replica.
func Run(ctx context.Context, config Config, announce func(process.Addresses)) error {
	core, err := config.queue()
	if err != nil {
		return err
	}
	r, err := replica.Open(ctx, model.ServiceRegistry, config.Service, announce)
	if err != nil {
		return err
	}
	calls := internal.NewCalls(r.Gateway, r.Tracing.Tracer(), r.Log)
	l, err := replica.NewLoop(r, func() *queue.Core { return queue.New(core) }, calls.Perform)
	if err != nil {
		return err
	}
	reservations := Serve(r.Server, l, r.Tenants)
	replica.CollectMetrics(r, l, internal.TakeSnapshot, reservations.ShowMetrics)
	r.Go("history of the queues", func(ctx context.Context) error { return reservations.Sample(ctx, l.Peek) })
	return replica.Run(r, l)
}

// Serve registers the registry's calls, which it answers from the core of owner. If
// tenants is set, it returns the current tenants of the cluster: the same pointer until
// they change. Serve returns the server of the reservations, which shows the metrics of the
// core and of the calls, and samples the history of the queues.
func Serve(s grpc.ServiceRegistrar, owner loop.Owner[*queue.Core],
	tenants func() *model.Tenants) *internal.Reservations {
	reservations := internal.NewReservations(owner, tenants)
	berthv1.RegisterTenantsServer(s, internal.NewTenants(owner, tenants))
	berthv1.RegisterReservationsServer(s, reservations)
	controlv1.RegisterQueueServer(s, internal.NewQueue(owner))
	return reservations
}
