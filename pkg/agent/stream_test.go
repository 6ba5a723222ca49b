package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/testkit/porttest"
)

func simulatedAgent(t *testing.T, c *control, cfg Config) (*Agent, string, func()) {
	t.Helper()
	address, stop := c.serve(t, porttest.Hold(t))
	cfg.ID, cfg.Driver, cfg.Conn, cfg.Log = "host", Simulated{}, dial(t, address), quiet()
	a, _ := runAgent(t, cfg)
	c.registered(t, "host", 1)
	return a, address, stop
}

// runsOne runs an agent with one worker and waits until the control plane knows the worker.
func runsOne(t *testing.T, c *control) {
	t.Helper()
	a, _, _ := simulatedAgent(t, c, Config{})
	mustSubmit(t, a, submit(0, 1, ""))
	c.awaitState(t, key(0), "RUNNING")
}

// The agent reports an end, even after an outage of the control plane, until an answer
// acknowledges the end. Later reports do not have it.
func TestEndsAreRepeated(t *testing.T) {
	c := newControl(20 * time.Millisecond)
	c.deaf = true
	a, address, stop := simulatedAgent(t, c, Config{})
	order := submit(0, 1, "")
	order.Task.Payload = []byte(`{"exitCode":3}`)
	mustSubmit(t, a, order)
	reported := func(times int) func() bool {
		return func() bool {
			n := 0
			for _, state := range c.history[key(0)] {
				if state == "FAILED" {
					n++
				}
			}
			return n >= times
		}
	}
	c.await(t, "the end to be repeated", reported(3))
	stop()
	c.mu.Lock()
	before := c.complete["host"]
	clear(c.history)
	c.mu.Unlock()
	c.serve(t, address)
	c.await(t, "a complete report with the end", func() bool { return c.complete["host"] > before && reported(1)() })
	c.mu.Lock()
	if n := c.incarnations["host"]; n != 1 {
		t.Errorf("incarnation %d after a broken stream", n)
	}
	clear(c.bare)
	c.deaf = false
	clear(c.history)
	c.mu.Unlock()
	c.await(t, "the report of the end", reported(1))
	c.await(t, "a heartbeat without a report", func() bool { return c.bare["host"] > 0 })
	if _, err := trySubmit(t.Context(), a, order); !fault.Is(err, fault.ReasonStopped) {
		t.Error(err)
	}
}

// If the control plane knows a higher incarnation of the executor, or does not know the
// executor, the agent registers again. Afterwards it refuses requests for the earlier
// incarnation.
func TestRegistersAgain(t *testing.T) {
	c := newControl(10 * time.Millisecond)
	a, _, _ := simulatedAgent(t, c, Config{})
	mustSubmit(t, a, submit(0, 1, ""))
	c.mu.Lock()
	c.incarnations["host"], c.nonces["host"] = 7, "another"
	before := c.complete["host"]
	c.mu.Unlock()
	c.await(t, "a complete report of incarnation 8", func() bool {
		return c.incarnations["host"] == 8 && c.complete["host"] > before
	})
	if _, err := trySubmit(t.Context(), a, submit(1, 1, "")); !fault.Is(err, fault.ReasonOtherIncarnation) {
		t.Error(err)
	}
	again := submit(0, 8, "")
	if answer := mustSubmit(t, a, again); answer.Worker.State != berthv1.Assignment_RUNNING {
		t.Error(answer)
	}
}

// Executor state 10: if two agents have the same ID, the superseded one logs the conflict
// once, together with the remedy. It refuses requests and keeps trying to register.
func TestExecutorState10Followed(t *testing.T) {
	c := newControl(10 * time.Millisecond)
	log := &lines{text: "another agent has taken this ID"}
	address, _ := c.serve(t, porttest.Hold(t))
	a, _ := runAgent(t, Config{ID: "host", Driver: Simulated{}, Conn: dial(t, address),
		Log: slog.New(slog.NewTextHandler(log, nil))})
	c.registered(t, "host", 1)
	mustSubmit(t, a, submit(0, 1, ""))
	c.mu.Lock()
	c.former[c.nonces["host"]] = true
	c.incarnations["host"], c.nonces["host"] = 7, "another"
	c.mu.Unlock()
	c.await(t, "three refusals", func() bool { return c.refused >= 3 })
	if n := log.count.Load(); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	if _, err := trySubmit(t.Context(), a, submit(1, 7, "")); !fault.Is(err, fault.ReasonOtherIncarnation) {
		t.Error(err)
	}
}

// lines counts the log lines that contain text.
type lines struct {
	text  string
	count atomic.Int32
}

func (l *lines) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(l.text)) {
		l.count.Add(1)
	}
	return len(line), nil
}

// Changes are reported at once and do not wait for the next heartbeat.
func TestChangesAreReportedAtOnce(t *testing.T) {
	c := newControl(time.Hour)
	a, _, _ := simulatedAgent(t, c, Config{})
	order := submit(0, 1, "")
	if answer := mustSubmit(t, a, order); answer.Worker.State != berthv1.Assignment_RUNNING {
		t.Error(answer)
	}
	answer, err := tryStop(t.Context(), a, stopOf(order, time.Second))
	if err != nil || answer.Worker.State != berthv1.Assignment_EVICTED {
		t.Error(answer, err)
	}
	c.awaitState(t, key(0), "EVICTED")
}

// If its stream breaks, an agent waits before it reconnects, because many agents reconnect
// when a replica exits. If the agent has a change to report, it reconnects at once.
func TestChangesAreReportedOverABrokenStream(t *testing.T) {
	c := newControl(time.Hour)
	a, address, stop := simulatedAgent(t, c, Config{})
	order := submit(0, 1, "")
	mustSubmit(t, a, order)
	c.await(t, "the first heartbeat", func() bool { return c.complete["host"] > 0 })
	stop()
	if _, err := tryStop(t.Context(), a, stopOf(order, time.Second)); err != nil {
		t.Fatal(err)
	}
	c.serve(t, address)
	c.awaitState(t, key(0), "EVICTED")
}

// A state that was in the answer to a request is not reported at once as a change. The next
// heartbeat reports the state, because the answer may have been lost.
func TestStateInAnAnswerIsNotReportedAgain(t *testing.T) {
	c := newControl(time.Hour)
	a, _, _ := simulatedAgent(t, c, Config{})
	mustSubmit(t, a, submit(0, 1, ""))
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.ledger.report(changes); r != nil {
		t.Errorf("news: %v", r)
	}
	if r := a.ledger.report(unconfirmed); len(r.GetWorkers()) != 1 ||
		r.GetWorkers()[0].GetState() != berthv1.Assignment_RUNNING {
		t.Errorf("not reported yet: %v", r)
	}
}

// Each start request in a call is accepted or refused separately, by the agent that it
// names.
func TestSeveralStartsInOneCall(t *testing.T) {
	c := newControl(time.Hour)
	a, _, _ := simulatedAgent(t, c, Config{})
	server := NewServer(a)
	answer, err := server.SubmitTasks(t.Context(), &controlv1.SubmitTasksRequest{
		Term: 5, Job: "job", Stage: "stage", Epoch: 100, Uid: "1-1", Task: &berthv1.Task{},
		Orders: []*controlv1.SubmitOrder{
			{Executor: "host", Incarnation: 1, Index: 0, Number: 1, Attempt: 1, Nonce: a.ledger.nonce},
			{Executor: "host", Incarnation: 2, Index: 1, Number: 1, Attempt: 1, Nonce: a.ledger.nonce},
			{Executor: "other", Incarnation: 1, Index: 2, Number: 1, Attempt: 1, Nonce: a.ledger.nonce},
			{Executor: "host", Incarnation: 1, Index: 3, Number: 1, Attempt: 1, Nonce: a.ledger.nonce},
			{Executor: "host", Incarnation: 1, Index: 4, Number: 1, Attempt: 1},
		},
	})
	if err != nil || len(answer.GetOutcomes()) != 5 {
		t.Fatal(answer, err)
	}
	for i, reason := range []fault.Reason{"", fault.ReasonOtherIncarnation, fault.ReasonNotFound, "",
		fault.ReasonPermissionDenied} {
		o := answer.GetOutcomes()[i]
		switch {
		case reason == "" && (o.GetState() != berthv1.Assignment_RUNNING || o.GetSequence() == 0 || len(o.GetFailure()) > 0):
			t.Errorf("order %d: %v", i, o)
		case reason != "" && (rpc.Unpack(o.GetFailure()).Reason != reason || o.GetState() != 0):
			t.Errorf("order %d: %v, want %s", i, rpc.Unpack(o.GetFailure()), reason)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.ledger.live(); n != 2 {
		t.Errorf("%d workers run", n)
	}
}

// If a control plane receives heartbeats but never answers, the agent gives up the stream.
func TestSilentStream(t *testing.T) {
	c := newControl(10 * time.Millisecond)
	runsOne(t, c)
	c.mu.Lock()
	before := c.complete["host"]
	c.mute = true
	c.mu.Unlock()
	c.await(t, "another stream", func() bool { return c.complete["host"] > before })
}

// If the control plane requests a complete report, the agent sends it on the same
// stream.
func TestCompleteReportOnRequest(t *testing.T) {
	c := newControl(time.Hour) // otherwise a late answer would end the stream
	a, _, _ := simulatedAgent(t, c, Config{})
	mustSubmit(t, a, submit(0, 1, ""))
	c.mu.Lock()
	before := c.complete["host"]
	streams := c.streams
	c.asks = true
	c.mu.Unlock()
	ends := submit(1, 1, "")
	ends.Task.Payload = []byte(`{"runFor":"1ms"}`)
	mustSubmit(t, a, ends) // reported as a change and again by the next heartbeat
	c.await(t, "a complete report", func() bool { return c.complete["host"] > before && len(c.history[key(0)]) > 0 })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams != streams {
		t.Error("the agent opened another stream")
	}
}

// An isolated agent stops its workers if its configuration says so.
func TestStopWhenIsolated(t *testing.T) {
	t.Parallel() // most of its time it only waits
	c := newControl(10 * time.Millisecond)
	a, address, stop := simulatedAgent(t, c, Config{StopWhenIsolatedAfter: 3 * time.Second})
	order := submit(0, 1, "")
	mustSubmit(t, a, order)
	c.awaitState(t, key(0), "RUNNING")
	stop()
	if err := a.awaitNone(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.serve(t, address)
	c.awaitState(t, key(0), "EVICTED")
}

// awaitNone waits until no worker runs.
func (a *Agent) awaitNone(ctx context.Context) error {
	for {
		a.mu.Lock()
		live, changed := a.ledger.live(), a.changed
		a.mu.Unlock()
		if live == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			return errors.New("workers still run")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// slow is a driver whose starts wait until the test lets them proceed.
type slow struct {
	Simulated
	begun, proceed chan struct{}
}

func (s slow) Start(spec Spec, ended func(Exit)) (Handle, error) {
	s.begun <- struct{}{}
	<-s.proceed
	return s.Simulated.Start(spec, ended)
}

// While a worker is being started, a repeated request waits and does not start the worker
// again. A stop request waits until the worker runs.
func TestRequestsWhileStarting(t *testing.T) {
	c := newControl(20 * time.Millisecond)
	address, _ := c.serve(t, porttest.Hold(t))
	driver := slow{begun: make(chan struct{}, 2), proceed: make(chan struct{})}
	a, _ := runAgent(t, Config{ID: "host", Driver: driver, Conn: dial(t, address), Log: quiet()})
	c.registered(t, "host", 1)
	var wg sync.WaitGroup
	answers := make([]*controlv1.SubmitTaskAnswer, 2)
	for i := range answers {
		wg.Go(func() {
			var err error
			if answers[i], err = trySubmit(t.Context(), a, submit(0, 1, "")); err != nil {
				t.Error(err)
			}
		})
	}
	<-driver.begun
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tryStop(gone, a, stopOf(submit(0, 1, ""), 0)); !fault.Is(err, fault.ReasonUnavailable) {
		t.Errorf("a stop while starting was answered with %v", err)
	}
	close(driver.proceed)
	wg.Wait()
	if len(driver.begun) > 0 {
		t.Error("started twice")
	}
	if answers[0].Sequence == answers[1].Sequence {
		t.Error("two answers with one sequence")
	}
	if _, err := tryStop(t.Context(), a, stopOf(submit(0, 1, ""), 0)); err != nil {
		t.Error(err)
	}
}

// Thousands of simulated agents run in one process. Their workers start and end.
func TestManySimulated(t *testing.T) {
	const agents = 2000
	// The heartbeats are so rare that they cause little load. A slow machine must have time
	// for the other work.
	c := newControl(30 * time.Second)
	address, _ := c.serve(t, porttest.Hold(t))
	conn := dial(t, address)
	server := NewServer()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range agents {
		a, err := New(Config{ID: fmt.Sprintf("host-%d", i), Driver: Simulated{}, Conn: conn, Log: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		server.Add(a)
		wg.Go(func() {
			if err := a.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	c.await(t, "all agents to report", func() bool { return len(c.complete) == agents })
	for i := range agents {
		order := submit(int32(i), 1, "")
		order.Executor = fmt.Sprintf("host-%d", i)
		order.Task.Payload = []byte(`{"runFor":"10ms"}`)
		c.mu.Lock()
		order.Nonce = c.nonces[order.Executor]
		c.mu.Unlock()
		if _, err := server.SubmitTask(t.Context(), order); err != nil {
			t.Fatal(err)
		}
	}
	c.await(t, "all to end", func() bool {
		done := 0
		for _, w := range c.workers {
			if w.State == berthv1.Assignment_COMPLETED && w.GetExitCode() == 0 {
				done++
			}
		}
		return done == agents
	})
	if _, err := server.SubmitTask(t.Context(), submit(0, 1, "")); !fault.Is(err, fault.ReasonNotFound) {
		t.Error(err)
	}
	cancel()
	wg.Wait()
}

func TestSimulatedScripts(t *testing.T) {
	for _, c := range []struct {
		payload string
		code    int32
		fails   bool
	}{
		{`{"runFor":"1ms"}`, 0, false},
		{`{"exitCode":3}`, 3, false},
		{`{"runFor":"1ms","exitCode":4}`, 4, false},
		{`{"runFor":"soon"}`, 0, true},
	} {
		ends := make(chan Exit, 1)
		_, err := Simulated{}.Start(Spec{Payload: []byte(c.payload)}, func(x Exit) { ends <- x })
		if c.fails {
			if !fault.Is(err, fault.ReasonStartFailed) {
				t.Errorf("%s: %v", c.payload, err)
			}
			continue
		}
		if err != nil {
			t.Error(err)
		} else if x := <-ends; *x.Code != c.code || x.Stopped {
			t.Errorf("%s: %+v", c.payload, x)
		}
	}
	var ends []Exit
	w, err := Simulated{}.Start(Spec{Payload: []byte("not a script")}, func(x Exit) { ends = append(ends, x) })
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Stop(0, false); err != nil {
			t.Error(err)
		}
	}
	if len(ends) != 1 || !ends[0].Stopped {
		t.Error(ends)
	}
}

// A script for one executor has no effect on the others, so that one executor can be faulty.
// There the worker is ready at once and runs until it is stopped.
func TestSimulatedScriptOfOneExecutor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for executor, want := range map[string]string{"bad": "ended", "good": "ready"} {
			got := ""
			w, err := Simulated{}.Start(Spec{Executor: executor, Readiness: model.ReadyReported,
				Payload: []byte(`{"executor":"bad","exitCode":3,"readyAfter":"1h"}`), ready: func() { got += "ready" }},
				func(Exit) { got += "ended" })
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if got != want {
				t.Errorf("after a minute, the worker on %s is %q, want %q", executor, got, want)
			}
			if err := w.Stop(0, false); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestInvalidRequests(t *testing.T) {
	a, err := New(Config{ID: "host", Driver: Simulated{}, Conn: (*grpc.ClientConn)(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := trySubmit(t.Context(), a, submit(0, 0, "")); !fault.Is(err, fault.ReasonOtherIncarnation) {
		t.Error("before its registration: ", err)
	}
	a.ledger.begin(1, 0)
	for field, spoil := range map[string]func(*controlv1.WorkerRef){
		"worker.job":    func(w *controlv1.WorkerRef) { w.Job = "../../etc" },
		"worker.stage":  func(w *controlv1.WorkerRef) { w.Stage = ".." },
		"worker.index":  func(w *controlv1.WorkerRef) { w.Index = -1 },
		"worker.number": func(w *controlv1.WorkerRef) { w.Number = -1 },
		"worker.epoch":  func(w *controlv1.WorkerRef) { w.Epoch = 0 },
	} {
		order := submit(0, 1, "")
		spoil(order.Worker)
		stop := stopOf(order, 0)
		_, err1 := trySubmit(t.Context(), a, order)
		_, err2 := tryStop(t.Context(), a, stop)
		for _, err := range []error{err1, err2} {
			if f := fault.Of(err); f == nil || f.Kind != fault.Invalid ||
				!slices.ContainsFunc(f.Fields, func(v fault.Field) bool { return v.Name == field }) {
				t.Errorf("%s: %v", field, err)
			}
		}
	}
	order := submit(0, 1, "")
	order.Worker = nil
	if _, err := trySubmit(t.Context(), a, order); !fault.Is(err, fault.ReasonRequired) {
		t.Error(err)
	}
}

func TestStartsInARequestAreBounded(t *testing.T) {
	_, err := NewServer().SubmitTasks(t.Context(), &controlv1.SubmitTasksRequest{Orders: make([]*controlv1.SubmitOrder,
		wire.MaxStartRequests+1)})
	if f := rpc.FromStatus(err); f == nil || len(f.Fields) != 1 || f.Fields[0].Name != "orders" {
		t.Errorf("got %v", err)
	}
}
