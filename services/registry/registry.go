// Package registry is the service that keeps the reservation queue.
//
//	job services ─▶ gateway ─▶ Reservations ─▶ queue (core) ─▶ etcd
//	                              pass ─▶ gateway ─▶ executor-state
//	                         hand-over ─▶ gateway ─▶ assigner
//
// It promises what package queue promises, to callers that may repeat every
// call, on whichever of its replicas leads.
package registry

import (
	"context"

	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/replica"
	"berth.dev/services/registry/internal"
	"berth.dev/services/registry/queue"
)

// Config of a registry replica.
type Config struct {
	process.Service `mapstructure:",squash"`
}

// Defaults of a registry replica.
func Defaults() Config { return Config{process.ServiceDefaults(7101, 7181)} }

// Run runs one replica until ctx ends. Told, if given, learns where it listens.
func Run(ctx context.Context, config Config, told func(process.Addresses)) error {
	r, err := replica.Open(ctx, model.ServiceRegistry, config.Service, told)
	if err != nil {
		return err
	}
	calls := internal.NewCalls(r.Gateway, r.Log)
	core := func() *queue.Core { return queue.New(queue.Config{}) }
	l, err := replica.NewLoop(r, core, calls.Perform)
	if err != nil {
		return err
	}
	Serve(r.Server, l)
	return replica.Run(r, l)
}

// Serve answers the registry's calls from the core that owner owns.
func Serve(s grpc.ServiceRegistrar, owner loop.Owner[*queue.Core]) {
	berthv1.RegisterReservationsServer(s, internal.NewReservations(owner))
}
