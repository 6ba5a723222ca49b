// Jobservice keeps a number of workers of a stage running and replaces each worker that
// has ended. A number on its standard input sets the number of workers; -1 cancels the
// job.
//
//	jobservice -job web -stage serve -workers 3 my-server --some-flag
//
// If the cluster uses TLS, -tls-ca, -tls-cert, -tls-key and -token-file set the
// authorities and prove the role.
//
// It stores nothing, because Watch returns the current workers and the input is the
// desired number. So you can kill it at any time, and another jobservice can continue its
// work.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/examples/security"
)

var (
	gateway = flag.String("gateway", "127.0.0.1:8080", "address of a gateway")
	job     = flag.String("job", "web", "name of the job")
	stage   = flag.String("stage", "serve", "name of the stage")
	workers = flag.Int("workers", 1, "initial number of workers")
)

func main() {
	flag.Parse()
	log.SetFlags(0)
	ctx, c := context.Background(), must(client.Dial([]string{*gateway}, must(security.Options())...))
	states, wanted := make(chan *client.Job), make(chan int32)
	go func() {
		for change, err := range c.Watch(ctx, *job) {
			states <- must(change, err).Job
		}
	}()
	go func() {
		for input := bufio.NewScanner(os.Stdin); input.Scan(); {
			number, err := strconv.ParseInt(input.Text(), 10, 32)
			if err != nil {
				log.Printf("%q is not a number of workers", input.Text())
				continue
			}
			wanted <- int32(number)
		}
	}()
	want, state := int32(*workers), <-states
	log.Printf("wanted: %d; type another number, or -1 to cancel the job", want)
	// pace limits how often a worker that always fails is replaced.
	for pace := time.Tick(time.Second); want >= 0; {
		select {
		case state = <-states:
		case <-pace:
			reconcile(ctx, c, state.NewestWorkers(*stage), want)
		case want = <-wanted:
			log.Printf("wanted: %d", want)
		}
	}
	must(c.CancelJob(ctx, *job))
	log.Printf("cancelled %s", *job)
}

// reconcile requests missing workers and cancels surplus workers. The names and numbers
// in the requests depend only on the current workers, so that a repeated request changes
// nothing.
func reconcile(ctx context.Context, c *client.Client, workers map[int32]client.Worker, want int32) {
	var fresh, surplus []*berthv1.WorkerID
	for index := range want {
		switch worker, taken := workers[index]; {
		case !taken:
			fresh = append(fresh, &berthv1.WorkerID{Index: index, Number: 1})
		case worker.Ended && !worker.Requeued: // Berth itself replaces requeued workers
			reserve(ctx, c, "replace", &berthv1.WorkerID{Index: index, Number: worker.Number + 1})
		}
	}
	for index, worker := range workers {
		if index >= want && !worker.Ended {
			surplus = append(surplus, &berthv1.WorkerID{Index: index, Number: worker.Number})
		}
	}
	if len(surplus) > 0 {
		if cancelled := must(c.CancelWorkers(ctx, *job, *stage, surplus...)); cancelled > 0 {
			log.Printf("cancelled %d workers", cancelled)
		}
	}
	if len(fresh) > 0 {
		reserve(ctx, c, "scale", fresh...) // one gang: all workers get executors, or none
	}
}

// reserve requests a gang of workers. The name of the reservation depends only on its workers.
func reserve(ctx context.Context, c *client.Client, why string, workers ...*berthv1.WorkerID) {
	name := fmt.Sprintf("%s-%d-%d", why, workers[0].Index, workers[0].Number)
	task := &berthv1.Task{Command: flag.Arg(0), Args: flag.Args()[min(1, flag.NArg()):]}
	stored, err := c.Reserve(ctx, &berthv1.Reservation{Job: *job, Stage: *stage, Name: name, Workers: workers, Task: task})
	if fault.Is(err, fault.ReasonWorkerIDUsed) {
		return // requested before, but the events about it have not arrived yet
	}
	if must(stored, err).GetChange() == berthv1.UpsertReservationRequest_CREATED {
		log.Print("requested ", name)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
