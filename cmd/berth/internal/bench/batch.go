package bench

import (
	"fmt"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

// Batch describes a reservation.
type Batch struct {
	Job, Stage string
	Workers    int
	SKU        string
	// CPU tells groups apart: reservations that ask for different amounts are in
	// different queues. 0 asks for none.
	CPU int64
	// Spread puts each worker on an executor of its own, as on hosts that take
	// but one; without it a batch goes to as few as will do.
	Spread bool
	// RunFor ends each worker after a while; 0 lets it run until it is stopped.
	RunFor time.Duration
}

// Request is the reservation to ask for.
func (b Batch) Request() *berthv1.Reservation {
	r := &berthv1.Reservation{
		Job: b.Job, Stage: b.Stage, Name: "main", Count: int32(b.Workers),
		Constraints: &berthv1.Constraints{Sku: b.SKU},
		Task:        &berthv1.Task{Command: "/opt/worker", Args: []string{"--stage", b.Stage}},
	}
	if b.CPU > 0 {
		r.Constraints.Resources = map[string]int64{"cpu": b.CPU}
	}
	if b.Spread {
		r.Constraints.Spread = &berthv1.Spread{By: "executor", Max: 1}
	}
	if b.RunFor > 0 {
		r.Task.Payload = fmt.Appendf(nil, `{"runFor":%q}`, b.RunFor)
	}
	return r
}

// Key names the reservation.
func (b Batch) Key() client.Key { return client.Key{Job: b.Job, Stage: b.Stage, Name: "main"} }
