package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/testkit/porttest"
)

func signalOf(s *controlv1.SubmitTaskRequest, signal, id string) *controlv1.SignalTaskRequest {
	return &controlv1.SignalTaskRequest{Term: s.Term, Executor: s.Executor, Incarnation: s.Incarnation, Worker: s.Worker,
		Signal: signal, RequestId: id}
}

func trySignal(ctx context.Context, a *Agent, req *controlv1.SignalTaskRequest) error {
	req.Nonce = a.ledger.nonce
	_, err := a.SignalTask(ctx, req)
	return err
}

func (s signed) SignalTask(ctx context.Context, req *controlv1.SignalTaskRequest,
	o ...grpc.CallOption) (*controlv1.SignalTaskAnswer, error) {
	req.Nonce = s.nonce(req.GetExecutor())
	return s.ExecutorClient.SignalTask(ctx, req, o...)
}

// counter returns a program that writes a line for each SIGUSR1 and SIGHUP. It writes its ID first.
func counter(f *fifo) string {
	return `trap "echo usr1 >` + f.path + `" USR1; trap "echo hup >` + f.path + `" HUP; echo $$ >` + f.path +
		`; while :; do sleep 0.01; done`
}

// Linux has every signal that requests may name.
func TestSignalsAreKnown(t *testing.T) {
	for _, name := range model.SignalNames() {
		if n := unix.SignalNum("SIG" + name); n < 1 || n > 31 {
			t.Errorf("%s is %d", name, n)
		}
	}
}

// A worker gets each signal of a request ID once, and only its own process gets it. After SIGKILL it
// is FAILED, because Berth did not stop it.
func TestSignal(t *testing.T) {
	a, c, _ := processAgent(t, agentDir(t))
	f := newFIFO(t)
	// The child has no handler, so the signal would end it.
	req := submit(0, 1, "sh", "-c", "sleep 1000 & echo $! >"+f.path+"; "+counter(f))
	mustSubmit(t, a, req)
	child := f.pid(t)
	f.pid(t)
	for _, id := range []string{"a", "a", "a"} {
		if err := trySignal(t.Context(), a, signalOf(req, "SIGUSR1", id)); err != nil {
			t.Fatal(err)
		}
	}
	// The keeper delivers in order, so a second usr1 would precede hup.
	if got := f.line(t); got != "usr1" {
		t.Fatal(got)
	}
	if err := trySignal(t.Context(), a, signalOf(req, "SIGHUP", "b")); err != nil {
		t.Fatal(err)
	}
	if got := f.line(t); got != "hup" {
		t.Fatal(got)
	}
	if !alive(child) {
		t.Error("the child of the worker got the signal")
	}
	if err := trySignal(t.Context(), a, signalOf(req, "SIGKILL", "c")); err != nil {
		t.Fatal(err)
	}
	if w := c.awaitState(t, key(0), "FAILED"); w.GetExitCode() != 128+9 || w.GetSignal() != 9 {
		t.Error(w)
	}
	if err := trySignal(t.Context(), a, signalOf(req, "SIGKILL", "d")); !fault.Is(err, fault.ReasonNotFound) {
		t.Error(err)
	}
}

// A worker that an agent adopts gets no signal twice.
func TestSignalIsNotRepeatedAfterARestart(t *testing.T) {
	dir := agentDir(t)
	c := newControl(50 * time.Millisecond)
	gateway, _ := c.serve(t, porttest.Hold(t))
	f := newFIFO(t)
	executor, kill := startChild(t, c, dir, gateway)
	c.registered(t, "host", 1)
	req := submit(0, 1, "sh", "-c", counter(f))
	if _, err := executor.SubmitTask(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	pid := f.pid(t)
	t.Cleanup(func() { _ = unix.Kill(-pid, unix.SIGKILL) }) // it outlives the agents
	if _, err := executor.SignalTask(t.Context(), signalOf(req, "SIGUSR1", "a")); err != nil {
		t.Fatal(err)
	}
	if got := f.line(t); got != "usr1" {
		t.Fatal(got)
	}
	kill()
	executor, _ = startChild(t, c, dir, gateway)
	c.registered(t, "host", 2)
	if _, err := executor.SignalTask(t.Context(), signalOf(req, "SIGUSR1", "a")); err == nil {
		t.Error("the agent accepted a request for its earlier incarnation")
	}
	req.Incarnation = 2
	for id, signal := range map[string]string{"a": "SIGUSR1", "b": "SIGHUP"} {
		if _, err := executor.SignalTask(t.Context(), signalOf(req, signal, id)); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.line(t); got != "hup" {
		t.Fatal(got)
	}
	if _, err := executor.SignalTask(t.Context(), signalOf(req, "SIGUSR1", "c")); err != nil {
		t.Fatal(err)
	}
	if got := f.line(t); got != "usr1" {
		t.Fatal(got)
	}
}

// An agent refuses what it cannot deliver, and says why.
func TestSignalRefused(t *testing.T) {
	a, c, _ := processAgent(t, agentDir(t))
	f := newFIFO(t)
	req := submit(0, 1, "sh", "-c", counter(f))
	mustSubmit(t, a, req)
	f.pid(t)
	for name, test := range map[string]struct {
		edit func(*controlv1.SignalTaskRequest)
		want fault.Reason
	}{
		"other worker":      {func(r *controlv1.SignalTaskRequest) { r.Worker = submit(1, 1, "").Worker }, fault.ReasonNotFound},
		"unknown signal":    {func(r *controlv1.SignalTaskRequest) { r.Signal = "SIGNEW" }, fault.ReasonUnsupported},
		"no ID":             {func(r *controlv1.SignalTaskRequest) { r.RequestId = "" }, fault.ReasonBadName},
		"two lines":         {func(r *controlv1.SignalTaskRequest) { r.RequestId = "a\n0" }, fault.ReasonBadName},
		"lower term":        {func(r *controlv1.SignalTaskRequest) { r.Term = 4 }, fault.ReasonLowerTerm},
		"other incarnation": {func(r *controlv1.SignalTaskRequest) { r.Incarnation = 7 }, fault.ReasonOtherIncarnation},
	} {
		request := signalOf(req, "SIGUSR1", "a")
		test.edit(request)
		if err := trySignal(t.Context(), a, request); !fault.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.SignalTask(t.Context(), signalOf(req, "SIGUSR1", "a")); !fault.Is(err, fault.ReasonPermissionDenied) {
		t.Error(err)
	}
	if _, err := tryStop(t.Context(), a, stopOf(req, time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := trySignal(t.Context(), a, signalOf(req, "SIGUSR1", "b")); !fault.Is(err, fault.ReasonNotFound) {
		t.Errorf("a worker that is being stopped: %v", err)
	}
	c.awaitState(t, key(0), "EVICTED")
}

// The keeper of an older agent would ignore the request, so the new agent does not send it.
func TestSignalOfAnOlderKeeper(t *testing.T) {
	dir := agentDir(t)
	a, _, stop := processAgent(t, dir)
	f := newFIFO(t)
	req := submit(0, 1, "sh", "-c", counter(f))
	mustSubmit(t, a, req)
	f.pid(t)
	stop()
	path := filepath.Join(dir, "workers", "job", "stage.0.1.100", fileWorker)
	var pl plan
	if err := readJSON(path, &pl); err != nil || !pl.Signals {
		t.Fatal(pl, err)
	}
	pl.Signals = false
	if err := writeJSON(path, pl); err != nil {
		t.Fatal(err)
	}
	a, c, _ := processAgent(t, dir)
	c.awaitState(t, key(0), "RUNNING")
	request := signalOf(req, "SIGUSR1", "a")
	request.Incarnation = a.ledger.incarnation
	if err := trySignal(t.Context(), a, request); !fault.Is(err, fault.ReasonUnsupported) {
		t.Error(err)
	}
}

// A worker remembers the last 256 request IDs.
func TestRequestIDs(t *testing.T) {
	var ids requestIDs
	for round := range 3 {
		for i := range keptRequestIDs {
			id := fmt.Sprint(round, ".", i)
			if !ids.add(id) || ids.add(id) {
				t.Fatal(id)
			}
		}
	}
	if len(ids.list) != keptRequestIDs || ids.add("2.0") || !ids.add("1.255") || !ids.add("2.0") || ids.add("2.2") {
		t.Error(ids)
	}
}

// A simulated worker ends by the signals that end a process without handlers, and ignores others.
func TestSignalOfASimulatedWorker(t *testing.T) {
	ended := make(chan Exit, 1)
	h, err := Simulated{}.Start(Spec{}, func(x Exit) { ended <- x })
	if err != nil {
		t.Fatal(err)
	}
	worker := h.(Signaller)
	for _, test := range []struct {
		signal model.Signal
		id     string
	}{{"SIGUSR1", "a"}, {"SIGKILL", "a"}} { // a repeat of an ID
		if err := worker.Signal(t.Context(), test.signal, test.id); err != nil {
			t.Fatal(err)
		}
	}
	if len(ended) > 0 {
		t.Fatal("ended")
	}
	if err := worker.Signal(t.Context(), model.SIGTERM, "b"); err != nil {
		t.Fatal(err)
	}
	if x := <-ended; x.state() != model.WorkerFailed || *x.Code != 128+15 || x.Signal != 15 {
		t.Error(x)
	}
	if err := worker.Signal(t.Context(), model.SIGTERM, "c"); !fault.Is(err, fault.ReasonNotFound) {
		t.Error(err)
	}
}
