package attack

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/client"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/testkit/agenttest"
)

// deadline is the time limit of a rogue client's call.
const deadline = 20 * time.Second

// call makes a call of a rogue client with a deadline and returns its error.
func (w *target) call(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(w.ctx, deadline)
	defer cancel()
	return f(ctx)
}

// unserved checks that a listener rejects a method. The error must name the option of the
// listener that serves the method.
func (w *target) unserved(what string, err error, option string) {
	w.Helper()
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), option) {
		w.Errorf("%s: got %v, want UNIMPLEMENTED with the name of %s", what, err, option)
	}
}

// cycle sends a scheduling cycle as a registry would.
func (w *target) cycle(conn grpc.ClientConnInterface, term, number int64) error {
	return w.call(func(ctx context.Context) error {
		_, err := controlv1.NewInventoryClient(conn).TryAllocateAndLease(ctx,
			&controlv1.CycleRequest{Term: term, Cycle: number})
		return err
	})
}

// A rogue client sends a scheduling cycle. Its term or its cycle number is higher than any
// real one.
func TestHighestTermA1(t *testing.T) {
	w := attack(t)
	leader, term := w.leader(model.ServiceRegistry)
	for _, at := range []place{public, agents} {
		w.unserved("TryAllocateAndLease on "+string(at), w.cycle(w.rogueClient(at), math.MaxInt64, 1), "--internal-listen")
	}
	for _, name := range []place{internal, executorState} {
		conn := w.rogueClient(name)
		for _, wrong := range []int64{math.MaxInt64, term + 1, term - 1, 0, -1} {
			if err := w.cycle(conn, wrong, 1); err == nil {
				w.Errorf("%s accepted a cycle of term %d, want only term %d", name, wrong, term)
			}
		}
		for _, number := range []int64{math.MaxInt64, math.MaxInt64 - 1, -1} {
			if err := w.cycle(conn, term, number); err == nil {
				w.Errorf("%s accepted cycle number %d", name, number)
			}
		}
		// A possible cycle number does no harm either, because the registry continues above it.
		_ = w.cycle(conn, term, 1<<40)
	}
	for _, name := range []place{internal, assigner} {
		conn := w.rogueClient(name)
		for _, wrong := range []int64{math.MaxInt64, term + 1, 0, -1} {
			err := w.call(func(ctx context.Context) error {
				_, err := controlv1.NewDispatchClient(conn).CreateAssignmentTasks(ctx, dispatch(wrong))
				return err
			})
			if err == nil {
				w.Errorf("%s accepted a dispatch of term %d", name, wrong)
			}
		}
	}
	if again, now := w.leader(model.ServiceRegistry); again != leader || now != term {
		w.Errorf("the registry's leader is %s in term %d, want %s in term %d", again.Name, now, leader.Name, term)
	}
}

// A rogue client acts for an executor that belongs to another agent.
func TestForeignExecutorA2(t *testing.T) {
	w := attack(t)
	executor, err := w.client.Executor(w.ctx, "host")
	if err != nil {
		t.Fatal(err)
	}
	worker := w.workerOn("host")
	completed := &controlv1.ReportWorkersRequest{Reports: []*controlv1.ExecutorReport{{
		Executor: "host", Incarnation: executor.GetIncarnation(), Sequence: 1 << 40, Complete: true,
		Workers: []*controlv1.WorkerReport{{
			Job: worker.GetJob(), Stage: worker.GetStage(), Index: worker.GetIndex(), Number: worker.GetNumber(),
			Epoch: worker.GetEpoch(), Uid: worker.GetUid(), State: berthv1.Assignment_COMPLETED,
		}},
	}}}
	register := thiefsRegistration()
	for _, at := range []place{public, internal} {
		conn := w.rogueClient(at)
		w.unserved("Register on "+string(at), w.call(func(ctx context.Context) error {
			_, err := controlv1.NewAgentsClient(conn).Register(ctx, register)
			return err
		}), "--agents-listen")
		w.unserved("Heartbeat on "+string(at), w.heartbeat(conn, &controlv1.HeartbeatRequest{Id: "host",
			Incarnation: executor.GetIncarnation()}), "--agents-listen")
	}
	for _, at := range []place{public, agents} {
		conn := w.rogueClient(at)
		w.unserved("ReportWorkers on "+string(at), w.call(func(ctx context.Context) error {
			_, err := controlv1.NewDispatchClient(conn).ReportWorkers(ctx, completed)
			return err
		}), "--internal-listen")
		w.unserved("Depart on "+string(at), w.call(func(ctx context.Context) error {
			_, err := controlv1.NewAgentsClient(conn).Depart(ctx,
				&controlv1.DepartRequest{Id: "host", Incarnation: executor.GetIncarnation()})
			return err
		}), "--internal-listen")
	}
	conn := w.rogueClient(agents)
	w.unserved("ListExecutors on --agents-listen", w.call(func(ctx context.Context) error {
		_, err := berthv1.NewExecutorsClient(conn).ListExecutors(ctx, &berthv1.ListExecutorsRequest{})
		return err
	}), "--listen")

	// On the agents listener, a rogue client can only use the ID of another executor.
	if err := w.call(func(ctx context.Context) error {
		_, err := controlv1.NewAgentsClient(conn).Register(ctx, register)
		return err
	}); err == nil {
		t.Error("a registration with the ID of a present executor was accepted")
	}
	if err := w.call(func(ctx context.Context) error {
		_, err := controlv1.NewGangsClient(conn).ListMembers(ctx,
			bystandersMembers(executor).(*controlv1.GangMembersRequest))
		return err
	}); !fault.Is(rpc.FromStatus(err), fault.ReasonPermissionDenied) {
		t.Errorf("the members of another agent's gang: %v", err)
	}
	for _, nonce := range []string{"", "thief"} {
		for _, report := range []*controlv1.ExecutorReport{
			{Executor: "host", Incarnation: executor.GetIncarnation(), Sequence: 1 << 40, Complete: true},
			completed.GetReports()[0],
		} {
			err := w.heartbeat(conn, &controlv1.HeartbeatRequest{Id: "host", Incarnation: executor.GetIncarnation(),
				Nonce: nonce, Report: report})
			if err == nil {
				t.Errorf("a report for another executor was accepted with nonce %q", nonce)
			}
		}
	}
	now, err := w.client.Executor(w.ctx, "host")
	if err != nil || now.GetIncarnation() != executor.GetIncarnation() || now.GetAddress() != executor.GetAddress() ||
		now.GetState() != berthv1.Executor_READY {
		t.Errorf("executor = %v, %v", now, err)
	}
}

// heartbeat sends one heartbeat of a rogue client. It returns nil if the heartbeat gets an
// answer, and otherwise the error of the stream.
func (w *target) heartbeat(conn grpc.ClientConnInterface, m *controlv1.HeartbeatRequest) error {
	return w.call(func(ctx context.Context) error {
		stream, err := controlv1.NewHeartbeatsClient(conn).Heartbeat(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(m); err != nil && err != io.EOF {
			return err
		}
		for {
			answer, err := stream.Recv()
			if err != nil {
				return err
			}
			// An answer to the report means that the report was accepted.
			if m.GetReport() == nil || answer.GetReport() != nil {
				return nil
			}
		}
	})
}

// workerOn returns the bystander's worker on an executor.
func (w *target) workerOn(executor string) *berthv1.Assignment {
	w.Helper()
	for a, err := range w.client.Assignments(w.ctx, &berthv1.ListAssignmentsRequest{Executor: executor,
		Job: "bystander"}) {
		if err != nil {
			w.Fatal(err)
		}
		return a
	}
	w.Fatalf("no bystander worker runs on %s", executor)
	return nil
}

// A rogue client calls an agent directly, with the highest possible term.
func TestForeignRequestsToAgentA4(t *testing.T) {
	w := attack(t)
	executor, err := w.client.Executor(w.ctx, "host")
	if err != nil {
		t.Fatal(err)
	}
	worker := w.workerOn("host")
	agent := controlv1.NewExecutorClient(w.rogueClient(host))
	ref := &controlv1.WorkerRef{
		Job: worker.GetJob(), Stage: worker.GetStage(), Index: worker.GetIndex(), Number: worker.GetNumber(),
		Epoch: worker.GetEpoch(), Uid: worker.GetUid(),
	}
	other := &controlv1.WorkerRef{Job: "thief", Stage: "s", Number: 1, Epoch: worker.GetEpoch(), Uid: "thief"}
	task := sleep()
	for _, nonce := range []string{"", "thief"} {
		for what, err := range map[string]error{
			"a start request": w.call(func(ctx context.Context) error {
				_, err := agent.SubmitTask(ctx, &controlv1.SubmitTaskRequest{Term: math.MaxInt64, Executor: "host",
					Incarnation: executor.GetIncarnation(), Worker: other, Task: task, Nonce: nonce})
				return err
			}),
			"a stop request": w.call(func(ctx context.Context) error {
				_, err := agent.StopTask(ctx, &controlv1.StopTaskRequest{Term: math.MaxInt64, Executor: "host",
					Incarnation: executor.GetIncarnation(), Worker: ref, Grace: durationpb.New(0), Nonce: nonce})
				return err
			}),
			"a request for output": w.call(func(ctx context.Context) error {
				_, err := agent.ReadOutput(ctx, &controlv1.ReadWorkerOutputRequest{Incarnation: executor.GetIncarnation(),
					Nonce: nonce, Request: bystandersOutput()})
				return err
			}),
		} {
			if status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s with nonce %q: got %v, want PERMISSION_DENIED", what, nonce, err)
			}
		}
		err := w.call(func(ctx context.Context) error {
			answer, err := agent.SubmitTasks(ctx, &controlv1.SubmitTasksRequest{
				Term: math.MaxInt64, Job: "thief", Stage: "s", Epoch: worker.GetEpoch(), Uid: "thief", Task: task,
				Orders: []*controlv1.SubmitOrder{{Executor: "host", Incarnation: executor.GetIncarnation(), Number: 1,
					Nonce: nonce}},
			})
			for _, outcome := range answer.GetOutcomes() {
				if len(outcome.GetFailure()) == 0 {
					t.Errorf("a start request for several workers with nonce %q was accepted: %v", nonce, outcome)
				}
			}
			return err
		})
		if err != nil && status.Code(err) != codes.PermissionDenied {
			t.Errorf("start request for several workers: %v", err)
		}
	}
	// The agent still accepts the requests of the real leader.
	r := &berthv1.Reservation{Job: "obeyed", Stage: "s", Count: 1, Task: task,
		Constraints: &berthv1.Constraints{Sku: "host"}}
	if _, err := w.client.Reserve(w.ctx, r); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.WaitFor(w.ctx, client.KeyOf(r), berthv1.Reservation_ACTIVE); err != nil {
		t.Fatal(err)
	}
	w.until(func() string {
		for a, err := range w.client.Assignments(w.ctx, &berthv1.ListAssignmentsRequest{Job: "obeyed"}) {
			if err == nil && a.GetExecutor() == "host" && a.GetState() == berthv1.Assignment_RUNNING {
				return ""
			}
		}
		return "the agent did not start the worker of its leader"
	})
	if _, err := w.client.Cancel(w.ctx, client.KeyOf(r)); err != nil {
		t.Error(err)
	}
}

// A caller sets environment variables that would make any allowed command run other code.
func TestEnvironmentA5(t *testing.T) {
	w := attack(t)
	rogue := w.rogueCaller()
	reserve := func(name string, env map[string]string) (*berthv1.Reservation, error) {
		r := &berthv1.Reservation{
			Job: "environment", Stage: "s", Name: name, Count: 1, OnAssignmentFailure: berthv1.OnAssignmentFailure_NOTIFY,
			Constraints: &berthv1.Constraints{Sku: "host"},
			Task:        &berthv1.Task{Command: "env", Env: env, Payload: []byte("payload")},
		}
		_, err := rogue.Reserve(w.ctx, r)
		return r, err
	}
	for _, name := range []string{"BERTH_PAYLOAD_FILE", "BERTH_ANYTHING"} {
		_, err := reserve("own", map[string]string{name: "x"})
		w.refused(name, err, fault.Invalid, fault.ReasonInvalid)
		if f := fault.Of(err); f != nil && (len(f.Fields) != 1 || !strings.Contains(f.Fields[0].Name, name)) {
			t.Errorf("the rejection of %s has the fields %v", name, f.Fields)
		}
	}
	for i, name := range []string{"LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "PYTHONPATH",
		"NODE_OPTIONS"} {
		r, err := reserve(fmt.Sprintf("e%d", i), map[string]string{name: "./payload"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.WaitFor(w.ctx, client.KeyOf(r), berthv1.Reservation_FAILED,
			berthv1.Reservation_COMPLETED); err != nil {
			t.Fatal(err)
		}
		failed := false
		for e, err := range w.client.Events(w.ctx, "environment", "") {
			if err != nil {
				t.Fatal(err)
			}
			if e.GetReservation() == r.GetName() && strings.Contains(e.String(), "NOT_ALLOWED") &&
				strings.Contains(e.String(), name) {
				failed = true
				break
			}
			if e.GetKind() == berthv1.Event_WORKER_RUNNING && e.GetReservation() == r.GetName() {
				break
			}
		}
		if !failed {
			t.Errorf("a worker with the environment variable %s was not rejected", name)
		}
	}
}

// A web page or another caller floods the list of disabled executors.
func TestDisableFloodA8(t *testing.T) {
	w := attack(t)
	rogue, refused := w.rogueCaller(), 0
	var requests []string
	for i := range 200 {
		var ids []string
		for j := range 1000 {
			ids = append(ids, fmt.Sprintf("unknown-%d-%d", i, j))
		}
		id := fmt.Sprintf("flood-%d", i)
		answer, err := rogue.Disable(w.ctx, &berthv1.DisableExecutorsRequest{RequestId: id,
			Selector: &berthv1.ExecutorSelector{Ids: ids}})
		switch {
		case err != nil:
			refused++
		default:
			requests = append(requests, id)
			if len(answer.GetUnknown()) == 0 {
				t.Errorf("the answer does not have the unknown executors")
			}
		}
	}
	if refused == 0 || len(requests) == 0 {
		t.Errorf("%d requests were accepted and %d rejected, want some of each", len(requests), refused)
	}
	if _, err := w.client.Drain(w.ctx, &berthv1.DrainExecutorRequest{Id: w.spare(),
		RequestId: "drain-in-flood"}); err != nil {
		t.Errorf("drain: %v", err)
	}
	if _, err := w.client.Enable(w.ctx, &berthv1.EnableExecutorsRequest{DisableRequestId: "drain-in-flood"}); err != nil {
		t.Errorf("enable: %v", err)
	}
	for _, id := range requests {
		if _, err := w.client.Enable(w.ctx, &berthv1.EnableExecutorsRequest{DisableRequestId: id}); err != nil {
			t.Errorf("enable: %v", err)
		}
	}
}

// spare returns a simulated executor on which no bystander's worker runs.
func (w *target) spare() string {
	for i := range simulatedExecutors {
		id := fmt.Sprintf("sim-%d", i)
		used := false
		for _, place := range w.bystandersStarted {
			used = used || strings.HasPrefix(place, id+" ")
		}
		if !used {
			return id
		}
	}
	w.Fatal("the bystanders' workers leave no executor idle")
	return ""
}

// A web page in an operator's browser posts to the gateway.
func TestBrowserA10(t *testing.T) {
	w := attack(t)
	send := func(c webCall) int {
		t.Helper()
		code, _, err := c.send(w.ctx, http.DefaultClient, "http://"+w.fleet.Gateway())
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	for _, c := range webCalls {
		if got := send(c); got != http.StatusForbidden {
			t.Errorf("%s: status %d, want 403", c.name, got)
		}
	}
	if e, err := w.client.Executor(w.ctx, "host"); err != nil || len(e.GetDisabled()) != 0 {
		t.Errorf("host = %v, %v", e, err)
	}
	// Requests as curl sends them are accepted.
	const enable, body = "/v1/executors:enable", `{"selector":{"ids":["host"]}}`
	for _, c := range []webCall{
		{name: "POST without a content type", method: http.MethodPost, path: enable, body: body},
		{name: "POST with the content type of curl -d", method: http.MethodPost, path: enable, body: body,
			header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}},
		{name: "GET with the host localhost", method: http.MethodGet, path: "/v1/executors", host: "localhost:8080"},
	} {
		if got := send(c); got != http.StatusOK {
			t.Errorf("%s: status %d, want 200", c.name, got)
		}
	}
}

// An agent gives impossible answers to start and stop requests, and reports impossible
// states.
func TestLyingAgentA3(t *testing.T) {
	w := attack(t)
	gateway := w.rogueClient(agents)
	ctx, leave := context.WithCancel(w.ctx)
	var joined sync.WaitGroup
	t.Cleanup(func() { leave(); joined.Wait() })
	worker := w.workerOn("host")
	reports := []*controlv1.ExecutorReport{
		{Executor: "host", Sequence: math.MaxInt64, Complete: true},
		{Sequence: 1, Complete: true, Workers: []*controlv1.WorkerReport{nil, {}, {State: -1}, {
			Job: worker.GetJob(), Stage: worker.GetStage(), Index: worker.GetIndex(), Number: worker.GetNumber(),
			Epoch: worker.GetEpoch(), Uid: worker.GetUid(), State: berthv1.Assignment_COMPLETED,
		}}},
		{Sequence: 2, Complete: true},
	}
	for i, lie := range agenttest.Lies() {
		liar := agenttest.Serve(t, lie.Script)
		sku := fmt.Sprintf("liar-%d", i)
		joined.Go(func() {
			for lies := reports; ctx.Err() == nil; lies = nil { // an invalid report ends the stream
				_ = liar.Join(ctx, gateway, &controlv1.RegisterRequest{Id: sku, Sku: sku, Host: sku,
					Resources: map[string]int64{"slots": 2}, Secret: sku}, lies...)
				_ = store.Sleep(ctx, 100*time.Millisecond) // the loop checks ctx
			}
		})
		r := &berthv1.Reservation{
			Job: "lied", Stage: "s", Name: sku, Count: 2, MaxAttempts: new(int32(1)),
			OnAssignmentFailure: berthv1.OnAssignmentFailure_NOTIFY, Constraints: &berthv1.Constraints{Sku: sku},
		}
		if _, err := w.client.Reserve(w.ctx, r); err != nil {
			t.Fatalf("%s: %v", lie.Name, err)
		}
		select {
		case <-liar.Called():
		case <-w.ctx.Done():
			t.Fatalf("the agent with the fault %q got no call", lie.Name)
		}
	}
	if _, err := w.client.CancelJob(w.ctx, "lied"); err != nil {
		t.Errorf("cancel: %v", err)
	}
}

// Reports of very many workers do not affect other callers. A rogue client's report is not
// decoded. A registered agent can invent only a limited number of workers.
func TestLargeReportsA3(t *testing.T) {
	w := attack(t)
	// Each worker has two bytes on the wire.
	workers := make([]*controlv1.WorkerReport, 90_000)
	for i := range workers {
		workers[i] = &controlv1.WorkerReport{}
	}
	var rogueCalls sync.WaitGroup
	for i := range 20 {
		conn := w.rogueClient(agents)
		rogueCalls.Go(func() {
			if err := w.heartbeat(conn, &controlv1.HeartbeatRequest{
				Id: fmt.Sprintf("nobody-%d", i), Incarnation: 1, Nonce: "guess",
				Report: &controlv1.ExecutorReport{Complete: true, Workers: workers},
			}); err == nil {
				t.Error("the report of an unknown executor was answered")
			}
		})
	}
	var reports []*controlv1.ExecutorReport
	for n := range 8 {
		r := &controlv1.ExecutorReport{Sequence: int64(n + 1), Complete: n == 0}
		for i := range 20_000 {
			r.Workers = append(r.Workers, &controlv1.WorkerReport{
				Job: "invented", Stage: "s", Index: int32(20_000*n + i), Number: 1, Epoch: 1, State: berthv1.Assignment_RUNNING,
			})
		}
		reports = append(reports, r)
	}
	liar := agenttest.Serve(t, agenttest.Lies()[0].Script)
	err := liar.Join(w.ctx, w.rogueClient(agents), &controlv1.RegisterRequest{
		Id: "crowded", Sku: "crowded", Host: "crowded", Resources: map[string]int64{"slots": 2}, Secret: "crowded",
	}, reports...)
	if kind := fault.Of(rpc.FromStatus(err)).Kind; kind != fault.Exhausted && kind != fault.Unavailable {
		t.Errorf("the stream of an agent with 160000 workers ended with %v", err)
	}
	rogueCalls.Wait()
	for e, err := range w.client.Executors(w.ctx, &berthv1.ListExecutorsRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		if id := e.GetId(); (id == "host" || strings.HasPrefix(id, "sim-")) && e.GetState() != berthv1.Executor_READY {
			t.Errorf("executor %s is %s", id, e.GetState())
		}
	}
	for _, service := range []string{model.ServiceExecutorState, model.ServiceAssigner} {
		p, _ := w.leader(service)
		checkMemory(t, p)
	}
}

// Rogue clients and careless callers send registrations, catalog records and reservations
// without limit.
func TestUnboundedRequestsA9(t *testing.T) {
	w := attack(t)
	gateway := controlv1.NewAgentsClient(w.rogueClient(agents))
	reservations, rogue := berthv1.NewReservationsClient(w.rogueClient(public)), w.rogueCaller()
	accepted, refused := 0, 0
	count := func(what string, err error) {
		t.Helper()
		switch f := rpc.FromStatus(err); {
		case err == nil:
			accepted++
		case f.Kind == fault.Exhausted:
			refused++
		default:
			t.Errorf("%s: %v", what, err)
		}
	}
	bounded := func(what string) {
		t.Helper()
		if accepted == 0 || refused == 0 {
			t.Errorf("%s: %d accepted and %d rejected, want some of each", what, accepted, refused)
		}
		accepted, refused = 0, 0
	}
	for i := range 100 {
		count("register", w.call(func(ctx context.Context) error {
			_, err := gateway.Register(ctx, &controlv1.RegisterRequest{
				Id: fmt.Sprintf("flood-%d", i), Address: "127.0.0.1:1", Sku: "flood", Host: "flood",
				Resources: map[string]int64{"slots": 1}, Nonce: "flood", Secret: "flood",
			})
			return err
		}))
	}
	bounded("registrations")
	for i := range 30 {
		_, err := rogue.PutSKU(w.ctx, &berthv1.Sku{Name: fmt.Sprintf("flood-%d", i),
			Resources: map[string]int64{"slots": 1}})
		count("SKU", err)
	}
	bounded("SKUs")
	for i := range 100 {
		r := &berthv1.Reservation{Job: "flood", Stage: "s", Name: fmt.Sprintf("n%d", i), Count: 1,
			Constraints: &berthv1.Constraints{Sku: "none"}}
		count("reservation", w.call(func(ctx context.Context) error {
			_, err := reservations.UpsertReservation(ctx,
				&berthv1.UpsertReservationRequest{Reservation: r})
			return err
		}))
	}
	bounded("reservations")
	for i := range 40 {
		r := &berthv1.Reservation{
			Job: "bytes", Stage: "s", Name: fmt.Sprintf("n%d", i), Count: 1, Constraints: &berthv1.Constraints{Sku: "none"},
			Task: &berthv1.Task{Command: "x", Payload: make([]byte, 60<<10)},
		}
		count("reservation", w.call(func(ctx context.Context) error {
			_, err := reservations.UpsertReservation(ctx,
				&berthv1.UpsertReservationRequest{Reservation: r})
			return err
		}))
	}
	bounded("payloads")
	for _, job := range []string{"flood", "bytes"} {
		if _, err := w.client.CancelJob(w.ctx, job); err != nil {
			t.Errorf("cancel: %v", err)
		}
	}
}
