// Package assigner is the service that hands workers to executors.
//
//	registry ─▶ gateway ─▶ Dispatch ─▶ dispatch (core) ─▶ etcd
//	                          SubmitTask, StopTask ─▶ executor agents
//	agents ─▶ executor-state ─▶ gateway ─▶ ReportWorkers
//
// It promises what package dispatch promises, to callers that may repeat every
// call, on whichever of its replicas leads.
package assigner

import (
	"context"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/replica"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/services/assigner/internal"
)

// Run runs one replica until ctx ends. Told, if given, learns where it listens.
func Run(ctx context.Context, config Config, told func(process.Addresses)) error {
	bounds, err := config.dispatch()
	if err != nil {
		return err
	}
	r, err := replica.Open(ctx, model.ServiceAssigner, config.Service, told)
	if err != nil {
		return err
	}
	orders := internal.NewOrders(r.Tracing, r.Log)
	defer orders.Close()
	core := func() *dispatch.Core { return dispatch.New(bounds) }
	l, err := replica.NewLoop(r, core, orders.Perform)
	if err != nil {
		return err
	}
	Serve(r.Server, l)
	replica.Figures(r, l, internal.Take, internal.Show)
	return replica.Run(r, l)
}

// Serve answers the assigner's calls from the core that owner owns.
func Serve(s grpc.ServiceRegistrar, owner loop.Owner[*dispatch.Core]) {
	berthv1.RegisterAssignmentsServer(s, internal.NewAssignments(owner))
	controlv1.RegisterDispatchServer(s, internal.NewDispatch(owner))
}
