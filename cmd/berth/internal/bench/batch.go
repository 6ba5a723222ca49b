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
	// CPU is the amount of cpu that each worker requests. If it is 0, the workers request no
	// cpu. Batches with different values belong to different groups.
	CPU int64
	// Spread places each worker on a different executor. The default packs a batch onto as
	// few executors as possible.
	Spread bool
	// RunFor is how long each worker runs. If it is 0, a worker runs until it is stopped.
	RunFor time.Duration
}

// Request returns the reservation to send.
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

// Key returns the key of the reservation.
func (b Batch) Key() client.Key { return client.Key{Job: b.Job, Stage: b.Stage, Name: "main"} }

// keyOf returns the key of the reservation that an event names.
func keyOf(e *berthv1.Event) client.Key {
	return client.Key{Job: e.GetJob(), Stage: e.GetStage(), Name: e.GetReservation()}
}
