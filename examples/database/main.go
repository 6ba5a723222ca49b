// Database runs a small replicated database of documents. Its nodes keep their documents in
// volumes, so a node that is started again continues with its documents. The commands are:
//
//	database          request the nodes that are missing, and show their states
//	database restart  restart all nodes, one after another
//	database node     what the workers execute
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/examples/security"
)

var (
	gateway = flag.String("gateway", cmp.Or(os.Getenv("BERTH_GATEWAY"), "127.0.0.1:8080"), "address of a gateway")
	dir     = flag.String("dir", filepath.Join(os.Getenv("HOME"), "database"), "directory of the program and the addresses of the nodes")
	size    = flag.Int64("size", 1<<30, "size of each volume in bytes of the resource disk")
)

const job = "db"

// stage is a kind of nodes.
type stage struct {
	name    string
	workers int32
	gang    int    // number of workers that are requested together; they get different executors
	apart   string // the stage whose worker of the same index has another executor
	onLoss  string // of the volumes; without it the nodes have none
	restart string
}

// stages are in the order in which they are started.
var stages = []stage{
	{name: "agents", workers: 3, gang: 3, onLoss: "WAIT", restart: "ON_FAILURE"},
	{name: "data", workers: 2, gang: 2, onLoss: "REPLACE", restart: "ON_FAILURE"},
	{name: "secondary", workers: 2, gang: 1, apart: "data", onLoss: "REPLACE", restart: "ON_FAILURE"},
	{name: "coordinator", workers: 2, gang: 2, restart: "ALWAYS"},
}

func main() {
	flag.Parse()
	log.SetFlags(log.Ltime)
	*dir = must(filepath.Abs(*dir))
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	if flag.Arg(0) == "node" {
		serve(ctx)
		return
	}
	repeated := client.WithOnRetry(func(err error) { log.Print(err) })
	c := must(client.Dial([]string{*gateway}, append(must(security.Options()), repeated)...))
	switch command := flag.Arg(0); command {
	case "":
		start(ctx, c)
	case "restart":
		restart(ctx, c)
	default:
		log.Fatalf("unknown command %q", command)
	}
}

// start requests the nodes that are missing, and shows the states of all until ctx ends.
func start(ctx context.Context, c *client.Client) {
	if program := must(os.Executable()); program != in("database") { // go run deletes its own program
		replace(in("database"), must(os.ReadFile(program)), 0o755)
	}
	if page := must(c.VolumesPage(ctx, &berthv1.ListVolumesRequest{Job: job})); len(page.GetVolumes()) == 0 {
		check(os.RemoveAll(in("nodes"))) // the database is new, so no node has documents to copy
	}
	complete(ctx, c)
	log.Print("all nodes run")
	await(ctx, c, func(change client.Change) bool {
		for _, w := range change.Event.GetWorkers() {
			log.Printf("%s/%d: %s", change.Event.GetStage(), w.GetIndex(), change.Event.GetKind())
		}
		return false
	})
}

// restart restarts one node at a time, while all others run. Berth does not start a cancelled
// worker again, so complete requests the next number. It gets the same volume.
func restart(ctx context.Context, c *client.Client) {
	complete(ctx, c)
	for _, s := range stages {
		for index := range s.workers {
			number := await(ctx, c, nil).NewestWorkers(s.name)[index].Number
			must(c.CancelWorkers(ctx, job, s.name, &berthv1.WorkerID{Index: index, Number: number}))
			await(ctx, c, func(change client.Change) bool {
				w := change.Job.NewestWorkers(s.name)[index]
				return w.Ended || w.Number > number
			})
			complete(ctx, c)
		}
	}
}

// complete requests the workers that do not exist, stage by stage, and waits until all run.
func complete(ctx context.Context, c *client.Client) {
	for _, s := range stages {
		await(ctx, c, func(change client.Change) bool { return request(ctx, c, s, change.Job.NewestWorkers(s.name)) })
	}
}

// request requests the workers of a stage that do not exist, and reports whether all run. The
// state may be slightly stale, so it is called after each change. A repeat changes nothing.
func request(ctx context.Context, c *client.Client, s stage, newest map[int32]client.Worker) (running bool) {
	var missing []*berthv1.WorkerID
	running = true
	for index := range s.workers {
		w, known := newest[index]
		if running = running && w.State == berthv1.Assignment_RUNNING; !known || w.Ended && !w.Requeued {
			missing = append(missing, &berthv1.WorkerID{Index: index, Number: w.Number + 1}) // Berth requests requeued workers
		}
	}
	for gang := range slices.Chunk(missing, s.gang) {
		r := &berthv1.Reservation{
			Job: job, Stage: s.name, Name: fmt.Sprintf("%d-%d", gang[0].Index, gang[0].Number), Workers: gang,
			Constraints: &berthv1.Constraints{Sku: "database", Resources: map[string]int64{"slots": 1},
				Spread: &berthv1.Spread{By: "executor", Max: 1}},
			Task: &berthv1.Task{Command: in("database"), Args: []string{"-dir", *dir, "node"},
				Readiness: berthv1.Readiness_REPORTED.Enum()},
			TargetSize: s.workers, Restart: &s.restart, MaxRestarts: proto.Int32(100), OnWorkerLoss: proto.String("REPLACE"),
		}
		if s.onLoss != "" {
			r.Constraints.Resources["disk"] = *size
			r.Volume = &berthv1.VolumeRequest{Resource: "disk", OnLoss: &s.onLoss}
		}
		if s.apart != "" {
			r.Constraints.Avoid = []string{await(ctx, c, nil).NewestWorkers(s.apart)[gang[0].Index].Executor}
		}
		if stored, err := c.Reserve(ctx, r); !fault.Is(err, fault.ReasonWorkerIDUsed) { // its event has not arrived yet
			log.Printf("%s: %s", client.KeyOf(r), must(stored, err).GetChange())
		}
	}
	return running
}

// await returns the job once done returns true, or at once without done. If ctx ends before,
// it ends the program; the nodes continue.
func await(ctx context.Context, c *client.Client, done func(client.Change) bool) (now *client.Job) {
	for change, err := range c.Watch(ctx, job) {
		if now = must(change, err).Job; done == nil || done(change) {
			return now
		}
	}
	os.Exit(0)
	return nil
}

// in returns the path of a file in -dir.
func in(names ...string) string { return filepath.Join(append([]string{*dir}, names...)...) }

// replace writes a file as a whole or not at all.
func replace(path string, text []byte, mode os.FileMode) {
	check(os.MkdirAll(filepath.Dir(path), 0o755))
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	check(os.WriteFile(next, text, mode))
	check(os.Rename(next, path))
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
