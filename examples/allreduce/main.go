// Allreduce shows how the workers of a gang find each other. It starts a gang whose workers
// form a ring over TCP, and sum a number of each worker with a ring allreduce. If a worker
// dies, Berth replaces it, and the ring forms anew with the replacement.
//
//	allreduce -gateway 127.0.0.1:8080 -workers 4
//
// It prints what the workers print, until it is interrupted. Then it cancels the job. The
// program is also the worker: executors must have it at the same path.
package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
)

var (
	gateway = flag.String("gateway", "127.0.0.1:8080", "address of a gateway")
	job     = flag.String("job", "allreduce", "name of the job")
	workers = flag.Int("workers", 4, "number of workers")
	port    = flag.Int("port", 29400, "port of worker 0; worker 1 has the next port, and so on")
)

func main() {
	flag.Parse()
	log.SetFlags(0)
	if file := os.Getenv("BERTH_GANG_FILE"); file != "" {
		index := must(strconv.ParseInt(os.Getenv("BERTH_WORKER_INDEX"), 10, 32))
		work(file, int32(index))
		return
	}
	program := must(os.Executable())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := must(client.Dial([]string{*gateway}))
	must(c.Reserve(ctx, &berthv1.Reservation{
		Job: *job, Stage: "ring", Count: int32(*workers),
		Task: &berthv1.Task{Command: program, Args: []string{"-port", strconv.Itoa(*port)}},
		// A worker that fails is started again, and a lost one is replaced on another executor.
		Restart: proto.String("ON_FAILURE"), OnWorkerLoss: proto.String("REPLACE"), MaxRestarts: proto.Int32(100),
	}))
	printAll(ctx, c)
	must(c.CancelJob(context.Background(), *job))
	log.Printf("cancelled %s", *job)
}

// printAll prints the output of every member of the gang, also of later ones, until ctx ends.
func printAll(ctx context.Context, c *client.Client) {
	var printing sync.WaitGroup
	defer printing.Wait()
	known := map[string]bool{}
	for gang, err := range c.WatchMembers(ctx, client.Key{Job: *job, Stage: "ring"}) {
		for _, m := range must(gang, err).GetMembers() {
			name := fmt.Sprintf("%d.%d", m.GetIndex(), m.GetNumber())
			if known[name] {
				continue
			}
			known[name] = true
			log.Printf("worker %s is on %s at %s", name, m.GetExecutor(), m.GetHost())
			printing.Go(func() { printOutput(ctx, c, name, m) })
		}
	}
}

// printOutput prints the output of a worker until it ends. A member may not have been started
// yet, and then has no output.
func printOutput(ctx context.Context, c *client.Client, name string, m *berthv1.Member) {
	for range 100 {
		if !fault.Is(printFrom(ctx, c, name, m), fault.ReasonNotFound) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func printFrom(ctx context.Context, c *client.Client, name string, m *berthv1.Member) error {
	request := &berthv1.ReadOutputRequest{Job: *job, Stage: "ring", Index: m.GetIndex(), Number: m.GetNumber(),
		Executor: m.GetExecutor(), Offset: proto.Int64(0), Follow: true}
	for part, err := range c.Output(ctx, request) {
		if err != nil {
			return err
		}
		for lines := bufio.NewScanner(bytes.NewReader(part.GetData())); lines.Scan(); {
			log.Printf("worker %s: %s", name, lines.Text())
		}
	}
	return nil
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
