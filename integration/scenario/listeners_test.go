package scenario

import (
	"math"
	"os/exec"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/process/child"
)

// A caller of the public listener cannot act as an agent or as a service. A caller of the
// agents listener cannot act as a service. After such calls, the executor has not changed,
// its worker keeps running, and leasing continues.
func TestListenersAreSeparate(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{Gateways: 2})
	w.startSim("sim", 1, 2)
	w.awaitReady(1)
	w.await(w.upsert(&berthv1.Reservation{Job: "victim", Stage: "s", Count: 1}), berthv1.Reservation_ACTIVE)
	worker := w.awaitWorkers("victim", berthv1.Event_WORKER_RUNNING, 1)[0]
	w.awaitRecorded("victim")
	executor := func() *berthv1.Executor {
		e, err := w.client.Executor(w.ctx, "sim-0")
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	before := executor()

	on := map[string]*grpc.ClientConn{}
	for listener, addresses := range map[string][]string{
		"--listen": w.fleet.Gateways(), "--agents-listen": w.fleet.AgentsGateways(),
		"--internal-listen": w.fleet.InternalGateways(),
	} {
		conn, err := rpc.Dial(addresses, rpc.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		on[listener] = conn
	}
	refused := func(listener, served string, err error) {
		t.Helper()
		if status.Code(err) != codes.Unimplemented || !strings.HasSuffix(status.Convert(err).Message(),
			" is served on "+served) {
			t.Errorf("on %s: got %v, want an error that it is served on %s", listener, err, served)
		}
	}
	for _, listener := range []string{"--listen", "--internal-listen"} {
		_, err := controlv1.NewAgentsClient(on[listener]).Register(w.ctx, &controlv1.RegisterRequest{
			Id: "sim-0", Address: "127.0.0.1:1", Resources: map[string]int64{"slots": 2}, Nonce: "stolen",
		})
		refused(listener, "--agents-listen", err)
		stream, err := controlv1.NewHeartbeatsClient(on[listener]).Heartbeat(w.ctx)
		if err == nil {
			_, err = stream.Recv()
		}
		refused(listener, "--agents-listen", err)
	}
	for _, listener := range []string{"--listen", "--agents-listen"} {
		conn := on[listener]
		_, err := controlv1.NewDispatchClient(conn).ReportWorkers(w.ctx,
			&controlv1.ReportWorkersRequest{Reports: []*controlv1.ExecutorReport{
				{Executor: "sim-0", Incarnation: before.GetIncarnation(), Sequence: 1 << 40, Complete: true},
			}})
		refused(listener, "--internal-listen", err)
		_, err = controlv1.NewInventoryClient(conn).TryAllocateAndLease(w.ctx,
			&controlv1.CycleRequest{Term: math.MaxInt64, Cycle: math.MaxInt64})
		refused(listener, "--internal-listen", err)
		_, err = controlv1.NewDispatchClient(conn).CreateAssignmentTasks(w.ctx,
			&controlv1.CreateTasksRequest{Term: math.MaxInt64})
		refused(listener, "--internal-listen", err)
		_, err = controlv1.NewAgentsClient(conn).Depart(w.ctx,
			&controlv1.DepartRequest{Id: "sim-0", Incarnation: before.GetIncarnation()})
		refused(listener, "--internal-listen", err)
		_, err = controlv1.NewAgentsClient(conn).Announce(w.ctx,
			&controlv1.AnnounceRequest{Id: "sim-0", Incarnation: before.GetIncarnation()})
		refused(listener, "--internal-listen", err)
	}
	for _, listener := range []string{"--agents-listen", "--internal-listen"} {
		_, err := berthv1.NewReservationsClient(on[listener]).CancelJob(w.ctx, &berthv1.CancelJobRequest{Job: "victim"})
		refused(listener, "--listen", err)
	}

	if after := executor(); !proto.Equal(before, after) {
		t.Errorf("the executor changed from\n%v\nto\n%v", before, after)
	}
	w.await(w.upsert(&berthv1.Reservation{Job: "next", Stage: "s", Count: 1}), berthv1.Reservation_ACTIVE)
	w.awaitWorkers("next", berthv1.Event_WORKER_RUNNING, 1)
	listed, err := berthv1.NewAssignmentsClient(on["--listen"]).ListAssignments(w.ctx,
		&berthv1.ListAssignmentsRequest{Executor: "sim-0"})
	if err != nil {
		t.Fatal(err)
	}
	running := false
	for _, a := range listed.GetAssignments() {
		running = running || a.GetJob() == "victim" && a.GetIndex() == worker.GetIndex() &&
			a.GetState() == berthv1.Assignment_RUNNING
	}
	if !running {
		t.Errorf("the worker is no longer running: %v", listed)
	}
}

// If executors use the address of the wrong listener, they do not register. Their log and
// berth doctor name the right listener.
func TestWrongListener(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{})
	lost := child.New("lost", w.binary, w.dir, nil, "sim", "--executors", "1", "--prefix", "lost", "--gateways",
		w.fleet.Gateway())
	if err := lost.Start(w.ctx, "--listen"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lost.Kill)
	until(t, func() string {
		if log := tail(lost.LogFile(), 10_000); !strings.Contains(log,
			"berth.control.v1.Agents/Register is served on --agents-listen") {
			return "the log does not contain the listener: " + log
		}
		return ""
	})
	lost.Kill()
	host, _ := agentProcess(t, w.fleet.Gateway())
	awaitLog(t, host, "not ready", "Agents/Register is served on --agents-listen", w.fleet.Gateway()+": reachable")

	doctor := func(agents, internal string) string {
		// Other findings of berth doctor do not matter here.
		out, _ := exec.CommandContext(w.ctx, w.binary, "doctor", "--gateway", w.fleet.Gateway(), "--agents-gateway", agents,
			"--internal-gateway", internal).CombinedOutput()
		return string(out)
	}
	agents, internal := w.fleet.AgentsGateways()[0], w.fleet.InternalGateways()[0]
	for out, want := range map[string]string{
		doctor(agents, internal):            "correct: ",
		doctor(w.fleet.Gateway(), internal): w.fleet.Gateway() + " is an address of --listen, which rejects agents",
		doctor(agents, agents):              agents + " is an address of --agents-listen, which rejects the services",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
