// Package assigner is the service that hands workers to executors.
//
//	registry ─▶ gateway ─▶ Handout ─▶ handout (core) ─▶ etcd
//	                          SubmitTask, StopTask ─▶ executor agents
//	agents ─▶ executor-state ─▶ gateway ─▶ ReportWorkers
//
// It promises what package handout promises, to callers that may repeat every
// call, on whichever of its replicas leads.
package assigner

import (
	"context"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/replica"
	"berth.dev/services/assigner/handout"
	"berth.dev/services/assigner/internal"
)

// Config of an assigner replica.
type Config struct {
	process.Service `mapstructure:",squash"`
}

// Defaults of an assigner replica.
func Defaults() Config { return Config{process.ServiceDefaults(7103, 7183)} }

// Run runs one replica until ctx ends. Told, if given, learns where it listens.
func Run(ctx context.Context, config Config, told func(process.Addresses)) error {
	r, err := replica.Open(ctx, model.ServiceAssigner, config.Service, told)
	if err != nil {
		return err
	}
	orders := internal.NewOrders(r.Log)
	defer orders.Close()
	core := func() *handout.Core { return handout.New(handout.Default) }
	l, err := replica.NewLoop(r, core, orders.Perform)
	if err != nil {
		return err
	}
	berthv1.RegisterAssignmentsServer(r.Server, internal.NewAssignments(l))
	controlv1.RegisterHandoutServer(r.Server, internal.NewHandout(l))
	replica.Figures(r, l, internal.Take, internal.Show)
	return replica.Run(r, l)
}
