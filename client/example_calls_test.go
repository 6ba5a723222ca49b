package client_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
)

// Read a reservation. A reservation that does not exist is an error.
func ExampleClient_Get() {
	c, stop := startGateway()
	defer stop()

	r, err := c.Get(context.Background(), client.Key{Job: "train", Stage: "gpu"})
	if fault.Is(err, fault.ReasonNotFound) {
		log.Fatal("no such reservation")
	} else if err != nil {
		log.Fatal(err)
	}
	fmt.Println(client.KeyOf(r), r.GetState())
	// Output:
	// train/gpu/main ACTIVE
}

// Block executors now, and start the workers on them when they are needed. A hold that has
// ended, or was bound before, is a conflict.
func ExampleClient_Bind() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	_, err := c.Reserve(ctx, &berthv1.Reservation{Job: "noon", Stage: "batch", Count: 2, Hold: berthv1.Hold_HOLD.Enum(),
		HoldTimeout: durationpb.New(6 * time.Hour)})
	if err != nil {
		log.Fatal(err)
	}
	bind := &berthv1.BindReservationRequest{Job: "noon", Stage: "batch", Task: &berthv1.Task{Command: "/opt/batch"}}
	r, err := c.Bind(ctx, bind)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.GetChange(), r.GetTask().GetCommand())

	_, err = c.Bind(ctx, bind)
	fmt.Println("it is not held any more:", fault.Is(err, fault.ReasonNotHeld))
	// Output:
	// BOUND /opt/batch
	// it is not held any more: true
}

// Cancel the version that was read, but no version that replaced it in the meantime.
func ExampleClient_CancelVersion() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	r, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2})
	if err != nil {
		log.Fatal(err)
	}
	cancelled, err := c.CancelVersion(ctx, client.KeyOf(r), r.GetEpoch())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cancelled, "cancelled")

	_, err = c.CancelVersion(ctx, client.KeyOf(r), r.GetEpoch()+1)
	fmt.Println("another version is a mismatch:", fault.Is(err, fault.ReasonEpochMismatch))
	// Output:
	// 1 cancelled
	// another version is a mismatch: true
}

// Cancel everything that a job has.
func ExampleClient_CancelJob() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	cancelled, err := c.CancelJob(ctx, "train")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cancelled, "cancelled")
	// Output:
	// 1 cancelled
}

// Cancel one worker and keep the others of its gang.
func ExampleClient_CancelWorkers() {
	c, stop := startGateway()
	defer stop()

	cancelled, err := c.CancelWorkers(context.Background(), "train", "gpu", &berthv1.WorkerID{Index: 7, Number: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cancelled, "cancelled")
	// Output:
	// 1 cancelled
}

// Kill the workers of a job at once, also those that are being stopped already.
func ExampleClient_CancelWith() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	atOnce := time.Duration(0)
	cancelled, known, err := c.CancelWith(ctx, client.Key{Job: "train"}, &atOnce)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cancelled, "cancelled, known:", known)
	// Output:
	// 1 cancelled, known: true
}

// Cancel one worker and kill it after a second if it has not ended by then.
func ExampleClient_CancelWorkersWith() {
	c, stop := startGateway()
	defer stop()

	grace := time.Second
	cancelled, known, err := c.CancelWorkersWith(context.Background(), "train", "gpu", &grace,
		&berthv1.WorkerID{Index: 7, Number: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cancelled, "cancelled, known:", known)
	// Output:
	// 1 cancelled, known: true
}

// List the reservations of a job. The loop reads further pages as needed.
func ExampleClient_List() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	for r, err := range c.List(ctx, &berthv1.ListReservationsRequest{Job: "train"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(client.KeyOf(r), r.GetCount(), "workers")
	}
	// Output:
	// train/gpu/main 2 workers
}

// Read the cursor of a list. The events after this cursor continue the list.
func ExampleClient_ListPage() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	page, err := c.ListPage(ctx, &berthv1.ListReservationsRequest{Job: "train", PageSize: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(page.GetReservations()), "reservation, cursor", page.GetCursor())
	// Output:
	// 1 reservation, cursor 1
}

// List the jobs that wait for executors.
func ExampleClient_Jobs() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	for job, err := range c.Jobs(ctx, &berthv1.ListJobsRequest{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %d workers run, %d are pending\n", job.GetName(), job.GetRunningWorkers(), job.GetPendingWorkers())
	}
	// Output:
	// train: 2 workers run, 0 are pending
}

// List the jobs of one tenant, one page at a time.
func ExampleClient_JobsPage() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train-eu", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	page, err := c.JobsPage(ctx, &berthv1.ListJobsRequest{Prefix: "train", PageSize: 100})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(page.GetJobs()), "job, next page:", page.GetNextPageToken() != "")
	// Output:
	// 1 job, next page: false
}

// Show why the head of each queue is pending.
func ExampleClient_Pending() {
	c, stop := startGateway()
	defer stop()

	pending, err := c.Pending(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, group := range pending.GetGroups() {
		head := group.GetHead()
		fmt.Printf("%s/%s/%s: %s\n", head.GetJob(), head.GetStage(), head.GetName(), group.GetMessage())
	}
	// Output:
	// etl/map/main: 12 needed, 8 fit now
}

// Read one page of the queues, with the totals of all queues.
func ExampleClient_PendingPage() {
	c, stop := startGateway()
	defer stop()

	page, err := c.PendingPage(context.Background(), &berthv1.ListPendingRequest{PageSize: 100})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of %d queues, with %d workers\n", len(page.GetGroups()), page.GetTotalGroups(), page.GetTotalWorkers())
	// Output:
	// 1 of 1 queues, with 12 workers
}

// Show how many workers were queued in the last hour.
func ExampleClient_PendingHistory() {
	c, stop := startGateway()
	defer stop()

	history, err := c.PendingHistory(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, point := range history.GetPoints() {
		fmt.Println(point.GetTime().AsTime().Format(time.TimeOnly), point.GetWorkers(), "workers")
	}
	// Output:
	// 10:00:00 0 workers
	// 10:00:15 12 workers
}

// Show how many executors fail which check.
func ExampleClient_Explain() {
	c, stop := startGateway()
	defer stop()

	why, err := c.Explain(context.Background(), client.Key{Job: "etl", Stage: "map"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(why.GetMessage())
	for _, check := range why.GetChecks() {
		fmt.Printf("%d executors have %s %s, want %s\n", check.GetCount(), check.GetCheck(), check.GetHave(), check.GetWant())
	}
	// Output:
	// 12 needed, 8 fit now
	// 8 executors have free.slots 0, want 1
}

// Declare that all job services have repeated their requests.
func ExampleClient_MarkReady() {
	c, stop := startGateway()
	defer stop()

	since, err := c.MarkReady(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready since", since.Format(time.RFC3339))
	// Output:
	// ready since 2026-11-23T10:00:00Z
}

// Cancel the queued reservations of a job. Its running workers stay.
func ExampleClient_FlushJob() {
	c, stop := startGateway()
	defer stop()

	cancelled, err := c.FlushJob(context.Background(), "etl")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cancelled, "cancelled")
	// Output:
	// 1 cancelled
}

// Cancel the queued reservations of a job, and report a misspelled name.
func ExampleClient_FlushKnown() {
	c, stop := startGateway()
	defer stop()

	cancelled, known, err := c.FlushKnown(context.Background(), &berthv1.FlushReservationsRequest{Job: "etl"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cancelled, "cancelled, known:", known)
	// Output:
	// 1 cancelled, known: true
}

// Cancel the queued reservations of every queue.
func ExampleClient_FlushGroup() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	pending, err := c.Pending(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, group := range pending.GetGroups() {
		cancelled, err := c.FlushGroup(ctx, group.GetId())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(cancelled, "cancelled")
	}
	// Output:
	// 1 cancelled
}

// List the workers of a job with their executors.
func ExampleClient_Assignments() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	for a, err := range c.Assignments(ctx, &berthv1.ListAssignmentsRequest{Job: "train"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("worker %d.%d %s on %s\n", a.GetIndex(), a.GetNumber(), a.GetState(), a.GetExecutor())
	}
	// Output:
	// worker 0.1 RUNNING on host-0
	// worker 1.1 RUNNING on host-1
}

// Read one page of a list, and the token of the next page.
func ExampleClient_AssignmentsPage() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	page, err := c.AssignmentsPage(ctx, &berthv1.ListAssignmentsRequest{Job: "train", PageSize: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(page.GetAssignments()), "worker, more:", page.GetNextPageToken() != "")
	// Output:
	// 1 worker, more: true
}

// Make all workers of a stage write a checkpoint. The answer names those that did not get the signal.
func ExampleClient_SignalWorkers() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	answer, err := c.SignalWorkers(ctx, &berthv1.SignalWorkersRequest{Job: "train", Stage: "gpu", Signal: "USR1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.GetSignalled(), "signalled")
	for _, f := range answer.GetFailed() {
		fmt.Println(f.GetWorker().GetIndex(), f.GetReason())
	}
	// Output:
	// 1 signalled
	// 1 EXECUTOR_UNREACHABLE
}

// Give up the workers of an executor that has burned down. They must not run any more.
func ExampleClient_ClearQuarantine() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	var workers []*berthv1.Assignment
	for a, err := range c.Assignments(ctx, &berthv1.ListAssignmentsRequest{Executor: "host-0"}) {
		if err != nil {
			log.Fatal(err)
		}
		if a.GetExecutor() == "host-0" {
			workers = append(workers, a)
		}
	}
	cleared, err := c.ClearQuarantine(ctx, "host-0", workers...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cleared, "LOST")
	// Output:
	// 1 LOST
}

// Distinguish final states from the others.
func ExampleEnded() {
	fmt.Println(client.Ended(berthv1.Reservation_ACTIVE), client.Ended(berthv1.Reservation_COMPLETED))
	// Output:
	// false true
}

// The text of a key always has all three parts.
func ExampleKey_String() {
	fmt.Println(client.Key{Job: "train", Stage: "gpu"})
	// Output:
	// train/gpu/main
}

// The text of a version has its key, UID and state.
func ExampleVersion_String() {
	fmt.Println(client.Version{Key: client.Key{Job: "train", Stage: "gpu"}, UID: "3-1", State: berthv1.Reservation_ACTIVE})
	// Output:
	// train/gpu/main(3-1) ACTIVE
}

// The text of a worker has its ID and its state.
func ExampleWorker_String() {
	key := client.Key{Job: "train", Stage: "gpu"}
	fmt.Println(client.Worker{Key: key, Index: 0, Number: 2, State: berthv1.Assignment_RUNNING})
	fmt.Println(client.Worker{Key: key, Index: 1, Number: 1})
	// Output:
	// train/gpu/0.2 RUNNING
	// train/gpu/1.1 queued
}

// Name the job of a change.
func ExampleJob_Name() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	for change, err := range c.Watch(ctx, "train") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(change.Job.Name())
		break
	}
	// Output:
	// train
}

// Compare the state with the revision of an event or a list.
func ExampleJob_Revision() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	for change, err := range c.Watch(ctx, "train") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("at revision", change.Job.Revision())
		break
	}
	// Output:
	// at revision 1
}

// Show the versions of all reservations of a job.
func ExampleJob_Versions() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	for change, err := range c.Watch(ctx, "train") {
		if err != nil {
			log.Fatal(err)
		}
		for _, version := range change.Job.Versions() {
			fmt.Println(version.Key, version.State)
		}
		break
	}
	// Output:
	// train/gpu/main QUEUED
}

// Show the workers of a stage.
func ExampleJob_Workers() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	for change, err := range c.Watch(ctx, "train") {
		if err != nil {
			log.Fatal(err)
		}
		for _, worker := range change.Job.Workers("gpu") {
			fmt.Println(worker.Index, worker.Number, worker.State)
		}
		break
	}
	// Output:
	// 0 1 RUNNING
	// 1 1 RUNNING
}

// Find the next number of a worker index.
func ExampleJob_NewestWorkers() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	for change, err := range c.Watch(ctx, "train") {
		if err != nil {
			log.Fatal(err)
		}
		worker := change.Job.NewestWorkers("gpu")[0]
		fmt.Println("the next number of index 0 is", worker.Number+1)
		break
	}
	// Output:
	// the next number of index 0 is 2
}

// A closed client does not wait for gateways any more.
func ExampleClient_Close() {
	c, stop := startGateway()
	defer stop()

	if err := c.Close(); err != nil {
		log.Fatal(err)
	}
	_, err := c.Get(context.Background(), client.Key{Job: "train", Stage: "gpu"})
	fmt.Println("closed:", fault.Is(err, fault.ReasonUnavailable))
	// Output:
	// closed: true
}

// Prove the role of the caller with a bearer token, which is read again for each call.
func ExampleWithToken() {
	address, authorities, stop := serveTLSGateway(grpc.UnaryInterceptor(printAuthorization))
	defer stop()

	readToken := func(context.Context) (string, error) { return "of-alice", nil } // os.ReadFile("alice.token")
	c, err := client.Dial([]string{"https://" + address}, client.WithTLS(&tls.Config{RootCAs: authorities}),
		client.WithToken(readToken))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Get(context.Background(), client.Key{Job: "train", Stage: "gpu"}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// called with Bearer of-alice
}

// Print all stored output of a worker, and follow it until the worker has ended.
func ExampleClient_Output() {
	c, stop := startGateway()
	defer stop()

	request := &berthv1.ReadOutputRequest{Job: "train", Stage: "gpu", Index: 0, Offset: proto.Int64(0), Follow: true}
	for part, err := range c.Output(context.Background(), request) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s", part.GetData())
	}
	// Output:
	// step 1
	// step 2
	// done
}

// List the members of a gang.
func ExampleClient_Members() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	gang, err := c.Members(ctx, &berthv1.ListMembersRequest{Job: "train", Stage: "gpu", Name: "main"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(gang.GetMembers()), "of", gang.GetWorkers(), "workers are placed")
	for _, m := range gang.GetMembers() {
		fmt.Printf("%d.%d at %s\n", m.GetIndex(), m.GetNumber(), m.GetHost())
	}
	// Output:
	// 2 of 2 workers are placed
	// 0.1 at 10.0.0.0
	// 1.1 at 10.0.0.1
}

// Follow the members of a gang, one of which is replaced.
func ExampleClient_WatchMembers() {
	c, replace, stop := startReplacingGateway()
	defer stop()

	ctx := context.Background()
	if _, err := c.Reserve(ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 2}); err != nil {
		log.Fatal(err)
	}
	for gang, err := range c.WatchMembers(ctx, client.Key{Job: "train", Stage: "gpu"}) {
		if err != nil {
			log.Fatal(err)
		}
		first := gang.GetMembers()[0]
		fmt.Printf("%d.%d\n", first.GetIndex(), first.GetNumber())
		if first.GetNumber() == 2 {
			break
		}
		replace()
	}
	// Output:
	// 0.1
	// 0.2
}

// Set the members of a gang of which a cell runs a part, as the agent of the cell does.
func ExampleClient_SetMembers() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	request := &berthv1.SetMembersRequest{Job: "zone-a.train", Stage: "gpu", Name: "4f2", Version: "7"}
	known, err := c.SetMembers(ctx, request)
	if err == nil && !known {
		request.Workers = 2
		request.Members = []*berthv1.Member{{Index: 0, Number: 1, Executor: "host-0", Host: "10.0.0.1"}}
		request.Waiting = []*berthv1.IndexRange{{First: 1, Last: 1}}
		known, err = c.SetMembers(ctx, request)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("known:", known)
	// Output: known: true
}
