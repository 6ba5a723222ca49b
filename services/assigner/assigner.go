// Package assigner keeps the promises of package dispatch across changes of leader: only the
// replica that leads answers, and callers may repeat every call. It runs a replica of the
// service that starts leased workers on their executors.
//
//	registry ─▶ gateway ─▶ Dispatch ─▶ dispatch (core) ─▶ etcd
//	                          SubmitTask, StopTask, SignalTask, ReadOutput ─▶ executor agents
//	agents ─▶ executor-state ─▶ gateway ─▶ ReportWorkers
//	agents ─▶ gateway ─▶ Gangs.ListMembers
//
// Agents report through executor-state, which keeps their heartbeat streams.
package assigner

import (
	"context"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/replica"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/services/assigner/internal"
)

// Run runs one replica until ctx ends. If announce is not nil, Run calls it with the
// addresses that the replica listens on.
func Run(ctx context.Context, config Config, announce func(process.Addresses)) error {
	bounds, err := config.dispatch()
	if err != nil {
		return err
	}
	r, err := replica.Open(ctx, model.ServiceAssigner, config.Service, announce)
	if err != nil {
		return err
	}
	sender := internal.NewSender(r.Peers(identity.Agent), r.Tracing, r.Log)
	defer sender.Close()
	core := func() *dispatch.Core { return dispatch.New(bounds) }
	l, err := replica.NewLoop(r, core, sender.Perform)
	if err != nil {
		return err
	}
	Serve(r.Server, l, sender)
	replica.CollectMetrics(r, l, internal.TakeSnapshot, internal.ShowMetrics)
	return replica.Run(r, l)
}

// Serve registers the assigner's gRPC services. They use the core that owner owns. If agents
// is nil, the output of workers cannot be read, no worker gets a signal, and no call waits for a change.
func Serve(s grpc.ServiceRegistrar, owner loop.Owner[*dispatch.Core], agents *internal.Sender) {
	members := internal.NewMembers(owner, agents)
	berthv1.RegisterAssignmentsServer(s, internal.NewAssignments(owner, members, agents))
	controlv1.RegisterGangsServer(s, internal.NewGangs(members))
	controlv1.RegisterDispatchServer(s, internal.NewDispatch(owner, agents))
}
