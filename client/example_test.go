package client_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
)

// A job service reserves workers, waits until they are dispatched and finally cancels them.
func Example() {
	c, stop := startGateway() // c, err := client.Dial([]string{"gateway-0:8080", "gateway-1:8080"})
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	r, err := c.Reserve(ctx, &berthv1.Reservation{
		Job: "train", Stage: "gpu", Count: 8,
		Constraints: &berthv1.Constraints{Resources: map[string]int64{"cpu": 2000}},
		Task:        &berthv1.Task{Command: "/opt/train"},
	})
	if err != nil {
		log.Fatal(err)
	}
	key := client.KeyOf(r)
	if _, err := c.WaitFor(ctx, key, berthv1.Reservation_ACTIVE); err != nil {
		log.Fatal(err)
	}
	fmt.Println(key, "has all its executors")
	if _, err := c.Cancel(ctx, key); err != nil {
		log.Fatal(err)
	}
	// Output:
	// train/gpu/main has all its executors
}

// Reserve two more workers for a stage, which start together or not at all. The job service
// chooses the name and the workers itself. It can therefore repeat the call at any time,
// even after a restart, and never gets more than these two workers.
func ExampleClient_Reserve() {
	c, stop := startGateway()
	defer stop()

	r, err := c.Reserve(context.Background(), &berthv1.Reservation{
		Job: "train", Stage: "gpu", Name: "scale-8",
		Workers: []*berthv1.WorkerID{{Index: 8, Number: 1}, {Index: 9, Number: 1}},
		Task:    &berthv1.Task{Command: "/opt/train"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(client.KeyOf(r), r.GetChange(), r.GetState())
	// Output:
	// train/gpu/scale-8 CREATED QUEUED
}

// Keep two workers running. When a worker ends, request the next worker of its index. After
// each change, decide from the state of the job what to request.
func ExampleClient_Watch() {
	c, stop := startGateway()
	defer stop()
	ctx := context.Background()
	const want = 2

	for change, err := range c.Watch(ctx, "train") {
		if err != nil {
			log.Fatal(err)
		}
		if change.Event == nil {
			fmt.Println("listed")
		} else {
			fmt.Println(change.Event.GetReservation(), change.Event.GetKind())
		}
		workers := change.Job.NewestWorkers("gpu")
		for index := range int32(want) {
			worker, taken := workers[index]
			if taken && (!worker.Ended || worker.Requeued) {
				continue
			}
			workerID := &berthv1.WorkerID{Index: index, Number: worker.Number + 1}
			_, err := c.Reserve(ctx, &berthv1.Reservation{
				Job: "train", Stage: "gpu", Name: fmt.Sprintf("worker-%d-%d", workerID.Index, workerID.Number),
				Workers: []*berthv1.WorkerID{workerID}, Task: &berthv1.Task{Command: "/opt/train"},
			})
			// The worker was already requested, and its events will follow.
			if err != nil && !fault.Is(err, fault.ReasonWorkerIDUsed) {
				log.Fatal(err)
			}
		}
		if w := workers[1]; w.Number == 2 && w.State == berthv1.Assignment_RUNNING {
			break // only to end the example
		}
	}
	// Output:
	// listed
	// worker-0-1 RESERVATION_QUEUED
	// worker-0-1 RESERVATION_ASSIGNED
	// worker-0-1 WORKER_RUNNING
	// worker-1-1 RESERVATION_QUEUED
	// worker-1-1 RESERVATION_ASSIGNED
	// worker-1-1 WORKER_RUNNING
	// worker-1-1 WORKER_LOST
	// worker-1-2 RESERVATION_QUEUED
	// worker-1-2 RESERVATION_ASSIGNED
	// worker-1-2 WORKER_RUNNING
}

// Read only the events, from a stored cursor.
func ExampleClient_Events() {
	c, stop := startGateway()
	defer stop()
	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 1}); err != nil {
		log.Fatal(err)
	}

	stored := "1"
	for event, err := range c.Events(ctx, "train", stored) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.GetKind())
		stored = event.GetCursor() // store the cursor once the event is processed
		if event.GetKind() == berthv1.Event_WORKER_RUNNING {
			break
		}
	}
	// Output:
	// RESERVATION_ASSIGNED
	// WORKER_RUNNING
}

// Read the events that are stored. Without an error, these are all events.
func ExampleClient_StoredEvents() {
	c, stop := startGateway()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 1}); err != nil {
		log.Fatal(err)
	}

	for event, err := range c.StoredEvents(ctx, "train", "") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.GetKind())
	}
	// Output:
	// RESERVATION_QUEUED
	// RESERVATION_ASSIGNED
	// WORKER_RUNNING
}

// Give a gang five minutes to get its executors.
func ExampleClient_WaitFor() {
	c, stop := startGateway()
	defer stop()
	key := client.Key{Job: "train", Stage: "gpu"}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	r, err := c.WaitFor(ctx, key, berthv1.Reservation_ACTIVE)
	if err != nil {
		log.Fatal(err) // the reservation was cancelled, for example; while it is pending, r has the reason
	}
	fmt.Println(r.GetState())
	// Output:
	// ACTIVE
}

// Wait until every worker of a gang runs. WaitFor with ACTIVE returns when each worker has an
// executor.
func ExampleClient_WaitRunning() {
	c, stop := startGateway()
	defer stop()
	key := client.Key{Job: "train", Stage: "gpu"}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	r, err := c.WaitRunning(ctx, key)
	if err != nil {
		log.Fatal(err) // a worker was given up, for example; the error names it
	}
	fmt.Println(r.GetState())
	// Output:
	// ACTIVE
}

// Find out which workers a reservation has that the latest request names. An upsert with a smaller
// count stops no worker.
func ExampleRequestedWorkers() {
	r := &berthv1.Reservation{
		Count: 3, Workers: []*berthv1.WorkerID{{Index: 0, Number: 1}, {Index: 1, Number: 4}, {Index: 2, Number: 1}},
		RequestedCount: proto.Int32(2),
	}
	for _, w := range client.RequestedWorkers(r) {
		fmt.Printf("%d.%d\n", w.GetIndex(), w.GetNumber())
	}
	// Output:
	// 0.1
	// 1.4
}

// Wait until a worker of a gang runs.
func ExampleClient_WaitUntil() {
	c, stop := startGateway()
	defer stop()
	key := client.Key{Job: "train", Stage: "gpu"}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	r, err := c.WaitUntil(ctx, key, func(r *berthv1.Reservation) bool {
		return r.GetWorkerCounts()["RUNNING"] > 0
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.GetState())
	// Output:
	// ACTIVE
}

// Cancel a reservation. A cancel may be repeated, because a missing reservation is not an
// error.
func ExampleClient_Cancel() {
	c, stop := startGateway()
	defer stop()
	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 8}); err != nil {
		log.Fatal(err)
	}

	for range 2 {
		cancelled, err := c.Cancel(ctx, client.Key{Job: "train", Stage: "gpu"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(cancelled, "cancelled")
	}
	// Output:
	// 1 cancelled
	// 0 cancelled
}
