// Jobservice keeps workers of a stage running. It asks for them, replaces each
// that has ended, and scales to the number on the last line of its input; the
// line `cancel` ends the job.
//
//	jobservice -job web -stage serve -workers 3 my-server --some-flag
//
// It stores nothing. What there is comes from Watch, what is wanted from whoever
// runs it; so it may be killed at any time, and the next one goes on.
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
	"berth.dev/pkg/client"
	"berth.dev/pkg/fault"
)

var (
	gateway = flag.String("gateway", "127.0.0.1:8080", "address of a gateway")
	job     = flag.String("job", "web", "name of the job")
	stage   = flag.String("stage", "serve", "name of the stage")
	workers = flag.Int("workers", 1, "workers that are wanted at first")
)

func main() {
	flag.Parse()
	ctx, lines, states := context.Background(), make(chan string), make(chan *client.Job)
	c := must(client.Dial([]string{*gateway}))
	go func() {
		for input := bufio.NewScanner(os.Stdin); input.Scan(); {
			lines <- input.Text()
		}
	}()
	go func() {
		for change, err := range c.Watch(ctx, *job) {
			states <- must(change, err).Job
		}
	}()
	want, state := int32(*workers), <-states
	// A worker that always fails is replaced no faster than once a second.
	for tick := time.Tick(time.Second); ; {
		select {
		case state = <-states:
		case <-tick:
			reconcile(ctx, c, state, want)
		case line := <-lines:
			if line == "cancel" {
				must(c.CancelJob(ctx, *job))
				return
			}
			want = int32(must(strconv.ParseInt(line, 10, 32)))
		}
	}
}

// reconcile asks for what is missing and cancels what is too much. Names and
// numbers follow from the state alone: to ask twice is to ask once.
func reconcile(ctx context.Context, c *client.Client, state *client.Job, want int32) {
	seats := state.Seats(*stage)
	var fresh, surplus []*berthv1.Seat
	for index := range want {
		switch w, taken := seats[index]; {
		case !taken:
			fresh = append(fresh, &berthv1.Seat{Index: index, Number: 1})
		case w.Ended && !w.Requeued: // what is requeued is replaced by Berth
			reserve(ctx, c, fmt.Sprintf("replace-%d-%d", index, w.Number+1), &berthv1.Seat{Index: index, Number: w.Number + 1})
		}
	}
	if len(fresh) > 0 {
		reserve(ctx, c, fmt.Sprintf("scale-%d", fresh[0].Index), fresh...)
	}
	for index, w := range seats {
		if index >= want && !w.Ended {
			surplus = append(surplus, &berthv1.Seat{Index: index, Number: w.Number})
		}
	}
	if len(surplus) > 0 {
		must(c.CancelWorkers(ctx, *job, *stage, surplus...))
	}
}

// reserve asks for workers, all of which are to start or none.
func reserve(ctx context.Context, c *client.Client, name string, seats ...*berthv1.Seat) {
	task := &berthv1.Task{Command: flag.Arg(0), Args: flag.Args()[1:]}
	_, err := c.Reserve(ctx, &berthv1.Reservation{Job: *job, Stage: *stage, Name: name, Workers: seats, Task: task})
	if !fault.Is(err, fault.ReasonWorkerIDUsed) { // then the state was behind
		must(name, err)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
