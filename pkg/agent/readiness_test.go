package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
)

// loading returns a start request of a worker with readiness REPORTED. With limit 0 the
// start timeout is the default.
func loading(index int32, incarnation int64, limit time.Duration, command string,
	args ...string) *controlv1.SubmitTaskRequest {
	req := submit(index, incarnation, command, args...)
	req.Task.Readiness = berthv1.Readiness_REPORTED.Enum()
	if limit > 0 {
		req.Task.StartTimeout = durationpb.New(limit)
	}
	return req
}

// mustBe checks the state in the answer to a start request.
func mustBe(t *testing.T, a *Agent, req *controlv1.SubmitTaskRequest, want berthv1.Assignment_State) {
	t.Helper()
	if got := mustSubmit(t, a, req); got.Worker.State != want {
		t.Errorf("worker %d is %s, want %s", req.Worker.Index, got.Worker.State, want)
	}
}

// A process is RUNNING only once it or a child of it has written a line to its pipe. It may
// close the pipe, and write as much as it likes: its keeper reads and forgets that.
func TestProcessReportsReadiness(t *testing.T) {
	dir := agentDir(t)
	a, c, _ := processAgent(t, dir)
	f := newFIFO(t)
	for i, before := range []string{
		"",
		`exec 3>$BERTH_READY_PIPE; exec 3>&-`,
		`head -c 5000000 /dev/zero >$BERTH_READY_PIPE`,
	} {
		gate := newFIFO(t)
		req := loading(int32(i), 1, 0, "sh", "-c", before+`
			echo waits >`+f.path+`; read go <`+gate.path+`
			(echo 'any text' >$BERTH_READY_PIPE) & wait
			head -c 5000000 /dev/urandom >$BERTH_READY_PIPE
			echo serves >`+f.path+`; read go <`+gate.path)
		mustBe(t, a, req, berthv1.Assignment_STARTING)
		if got := f.line(t); got != "waits" {
			t.Fatal(got)
		}
		mustBe(t, a, req, berthv1.Assignment_STARTING)
		gate.write(t, "go\n")
		c.awaitState(t, key(i), "RUNNING")
		if got := f.line(t); got != "serves" {
			t.Fatal(got)
		}
		mustBe(t, a, req, berthv1.Assignment_RUNNING)
		gate.write(t, "go\n")
		c.awaitState(t, key(i), "COMPLETED")
		if c.mu.Lock(); slices.Contains(c.history[key(i)], "EVICTING") {
			t.Errorf("worker %d: %v", i, c.history[key(i)])
		}
		c.mu.Unlock()
	}
	// A worker that does not report has no such pipe.
	mustSubmit(t, a, submit(9, 1, "sh", "-c", `[ -z "$BERTH_READY_PIPE" ]`))
	c.awaitState(t, key(9), "COMPLETED")
}

// hangs is a script that never reports, and ends some time after its signal to stop. It starts sleep
// before it has the trap: a child that was just forked could have the trap too, survive the signal, and
// keep the group of the worker alive for its whole grace.
const hangs = `sleep 1000 & trap 'echo heard >$OUT; read go <$GATE; exit 0' TERM; echo loads >$OUT; while :; do wait; done`

// expireNow makes the start limit of a worker pass.
func expireNow(a *Agent, index int32) {
	a.mu.Lock()
	var s *start
	for id, w := range a.workers {
		if id.ID.Index == index {
			s = w.start
		}
	}
	a.mu.Unlock()
	a.expire(s)
}

// If a worker is not ready in time, the agent stops it. The worker is FAILED only after its
// end, whatever its exit code is. If it ends by itself before it is ready, its exit code
// counts. If it is stopped while it loads, it is EVICTED.
func TestProcessIsNotReadyInTime(t *testing.T) {
	a, c, _ := processAgent(t, agentDir(t))
	f, gate := newFIFO(t), newFIFO(t)
	late := loading(0, 1, time.Hour, "sh", "-c", "OUT="+f.path+"; GATE="+gate.path+"; "+hangs)
	late.Task.StopGrace = durationpb.New(time.Hour)
	mustSubmit(t, a, late)
	if got := f.line(t); got != "loads" {
		t.Fatal(got)
	}
	expireNow(a, 0)
	if got := f.line(t); got != "heard" {
		t.Fatal(got)
	}
	mustBe(t, a, late, berthv1.Assignment_STARTING)
	gate.write(t, "go\n")
	if w := c.awaitState(t, key(0), "FAILED"); w.GetReason() != "START_TIMEOUT" || w.ExitCode == nil ||
		*w.ExitCode != 0 || w.Error != "not RUNNING within 1h0m0s" {
		t.Error(w)
	}

	mustSubmit(t, a, loading(1, 1, 0, "sh", "-c", "exit 3"))
	if w := c.awaitState(t, key(1), "FAILED"); w.GetReason() != "" || w.GetExitCode() != 3 {
		t.Error(w)
	}

	stopped := loading(2, 1, 0, "sleep", "1000")
	mustSubmit(t, a, stopped)
	if _, err := tryStop(t.Context(), a, stopOf(stopped, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if w := c.awaitState(t, key(2), "EVICTED"); w.GetReason() != "" {
		t.Error(w)
	}
}

// A worker loads while no agent runs. The next agent adopts it as RUNNING if it has
// reported meanwhile, otherwise as STARTING. Its limit counts from its start. A stop of the
// earlier agent because of the limit stays one.
func TestLoadsSurviveTheirAgent(t *testing.T) {
	dir := agentDir(t)
	a, _, end := processAgent(t, dir)
	f := newFIFO(t)
	var gates []*fifo
	start := func(index int32, limit time.Duration, script string) {
		t.Helper()
		gate := newFIFO(t)
		gates = append(gates, gate)
		req := loading(index, 1, limit, "sh", "-c", "GATE="+gate.path+"; OUT="+f.path+"; "+script)
		req.Task.StopGrace = durationpb.New(time.Hour)
		mustSubmit(t, a, req)
		if got := f.line(t); got != "loads" {
			t.Fatal(got)
		}
	}
	const load = `echo loads >$OUT; read go <$GATE; echo ready >$BERTH_READY_PIPE; read go <$GATE`
	start(0, 0, load)
	start(1, 0, load)
	start(2, time.Hour, hangs) // its limit passes while no agent runs
	start(3, time.Hour, hangs)
	expireNow(a, 3)
	if got := f.line(t); got != "heard" {
		t.Fatal(got)
	}
	end()
	worker := func(index int) string {
		return filepath.Join(dir, "workers", "job", fmt.Sprintf("stage.%d.1.100", index))
	}
	gates[0].write(t, "go\n")
	awaitFile(t, filepath.Join(worker(0), fileReady))
	var p plan
	if err := readJSON(filepath.Join(worker(2), fileWorker), &p); err != nil {
		t.Fatal(err)
	}
	if p.Spec.StartLimit != time.Hour || time.Since(p.Spec.Begun) > time.Minute {
		t.Errorf("the limit of worker 2 is %v from %v", p.Spec.StartLimit, p.Spec.Begun)
	}
	p.Spec.Begun = p.Spec.Begun.Add(-time.Hour)
	if err := writeJSON(filepath.Join(worker(2), fileWorker), p); err != nil {
		t.Fatal(err)
	}

	_, c, _ := processAgent(t, dir)
	c.awaitState(t, key(0), "RUNNING")
	c.awaitState(t, key(1), "STARTING")
	if got := f.line(t); got != "heard" { // worker 2; worker 3 has heard it before
		t.Fatal(got)
	}
	c.awaitState(t, key(2), "STARTING")
	c.awaitState(t, key(3), "STARTING")
	for _, i := range []int{1, 2, 3} {
		gates[i].write(t, "go\n")
	}
	c.awaitState(t, key(1), "RUNNING")
	for _, i := range []int{2, 3} {
		if w := c.awaitState(t, key(i), "FAILED"); w.GetReason() != "START_TIMEOUT" {
			t.Error(w)
		}
	}
	for _, i := range []int{0, 1} {
		gates[i].write(t, "go\n")
		c.awaitState(t, key(i), "COMPLETED")
	}
}

// With Config.Starts 2, two processes load at a time. The next one begins once one of them is
// ready, has failed, is stopped or is late, and its limit counts from then. A queued start
// that is stopped never begins. Processes that load while their agent restarts hold their
// permits at the next agent.
func TestTwoProcessesLoadAtATime(t *testing.T) {
	dir := agentDir(t)
	const most = 2
	a, c, end := runProcesses(t, ProcessConfig{Dir: dir, Allow: []string{AllowAll}}, most)
	f := newFIFO(t)
	gates := map[int32]*fifo{}
	request := func(index int32, then string) *controlv1.SubmitTaskRequest {
		gates[index] = newFIFO(t)
		req := loading(index, 1, time.Hour, "sh", "-c", fmt.Sprintf("echo %d >%s; read go <%s; %s", index, f.path,
			gates[index].path, then))
		req.Nonce = a.ledger.nonce
		return req
	}
	// queue sends a start request that does not wait for its result.
	queue := func(req *controlv1.SubmitTaskRequest) {
		t.Helper()
		accepted, err := a.accept(req)
		if err != nil {
			t.Fatal(err)
		}
		late := make(chan struct{})
		close(late)
		if _, err := accepted.answer(t.Context(), late); err != nil {
			t.Fatal(err)
		}
	}
	// next waits until a process begins, and checks which starts are queued then.
	next := func(index int32, queued ...int32) {
		t.Helper()
		if got := f.line(t); got != fmt.Sprint(index) {
			t.Fatalf("%s begins, want %d", got, index)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		var got []int32
		for _, s := range a.startQueue {
			got = append(got, s.spec.Worker.ID.Index)
		}
		if !slices.Equal(got, queued) || a.freeStarts != 0 {
			t.Errorf("when %d begins, %v are queued and %d may begin, want %v and 0", index, got, a.freeStarts, queued)
		}
	}
	const serve = "echo >$BERTH_READY_PIPE; sleep 1000"
	stopped, queued := request(2, serve), request(5, serve)
	queue(request(0, serve))
	if got := f.line(t); got != "0" {
		t.Fatal(got)
	}
	queue(request(1, "exit 3"))
	next(1)
	for _, req := range []*controlv1.SubmitTaskRequest{stopped, request(3, serve), request(4, serve), queued,
		request(6, serve)} {
		queue(req)
	}

	begun := func(index int) *timestamppb.Timestamp {
		return c.awaitState(t, key(index), "STARTING").Since
	}
	if since := begun(2); since != nil {
		t.Errorf("while its start is queued, 2 is reported as begun at %v", since.AsTime())
	}
	before := time.Now().Round(0)
	gates[0].write(t, "go\n")
	next(2, 3, 4, 5, 6)
	c.awaitState(t, key(0), "RUNNING")
	var p plan
	if err := readJSON(filepath.Join(dir, "workers", "job", "stage.2.1.100", fileWorker), &p); err != nil {
		t.Fatal(err)
	}
	if p.Spec.Begun.Before(before) {
		t.Errorf("the limit of 2 counts from %v, but it began after %v", p.Spec.Begun, before)
	}
	c.await(t, "a report that 2 has begun", func() bool { return c.workers[key(2)].Since.AsTime().Equal(p.Spec.Begun) })
	gates[1].write(t, "go\n")
	next(3, 4, 5, 6)
	if w := c.awaitState(t, key(1), "FAILED"); w.GetExitCode() != 3 {
		t.Error(w)
	}
	if _, err := tryStop(t.Context(), a, stopOf(stopped, 0)); err != nil {
		t.Fatal(err)
	}
	next(4, 5, 6)
	c.awaitState(t, key(2), "EVICTED")
	if answer, err := tryStop(t.Context(), a, stopOf(queued, 0)); err != nil ||
		answer.Worker.State != berthv1.Assignment_EVICTED {
		t.Error(answer, err)
	}
	expireNow(a, 3)
	next(6)
	if w := c.awaitState(t, key(3), "FAILED"); w.GetReason() != "START_TIMEOUT" {
		t.Error(w)
	}

	end()
	a, c, _ = runProcesses(t, ProcessConfig{Dir: dir, Allow: []string{AllowAll}}, most)
	c.awaitState(t, key(4), "STARTING")
	c.awaitState(t, key(6), "STARTING")
	queue(request(7, serve))
	gates[4].write(t, "go\n")
	next(7)
	c.awaitState(t, key(4), "RUNNING")
	gates[7].write(t, "go\n")
	c.awaitState(t, key(7), "RUNNING") // so that the end of the test stops its process
}

// begins is a driver of simulated workers that records which starts have begun.
type begins struct {
	Simulated
	mu    sync.Mutex
	begun []int32
}

func (b *begins) Start(spec Spec, ended func(Exit)) (Handle, error) {
	b.mu.Lock()
	b.begun = append(b.begun, spec.Worker.ID.Index)
	b.mu.Unlock()
	return b.Simulated.Start(spec, ended)
}

func (b *begins) want(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.begun) != n {
		t.Errorf("%d starts have begun, want %d", len(b.begun), n)
	}
}

// simulatedLoad returns a start request of a simulated worker that is ready after a time.
func simulatedLoad(t *testing.T, index int32, limit, readyAfter time.Duration) *controlv1.SubmitTaskRequest {
	t.Helper()
	req := loading(index, 1, limit, "load")
	var err error
	if req.Task.Payload, err = json.Marshal(script{ReadyAfter: readyAfter.String()}); err != nil {
		t.Fatal(err)
	}
	return req
}

// A worker that loads holds a start permit until it is ready, has ended, is stopped or is
// late. Config.StartTimeout does not free the permit, and a start that waits for a permit is
// not late.
func TestLoadsHoldPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &begins{}
		a := unregistered(t, Config{Driver: driver, Starts: 2, StartTimeout: time.Second})
		stopped := simulatedLoad(t, 0, 0, time.Hour)
		mustSubmit(t, a, stopped)
		mustSubmit(t, a, simulatedLoad(t, 1, 3*time.Minute, 2*time.Minute)) // ready
		mustSubmit(t, a, simulatedLoad(t, 2, 3*time.Minute, time.Hour))     // late
		ends := simulatedLoad(t, 3, 0, time.Hour)
		ends.Task.Payload = []byte(`{"readyAfter": "1h", "runFor": "4m"}`)
		mustSubmit(t, a, ends)
		mustSubmit(t, a, simulatedLoad(t, 4, 0, 0))
		mustSubmit(t, a, submit(5, 1, "starts at once"))
		time.Sleep(time.Minute)
		driver.want(t, 2)
		if _, err := tryStop(t.Context(), a, stopOf(stopped, time.Minute)); err != nil {
			t.Fatal(err)
		}
		driver.want(t, 3) // 2 begins
		time.Sleep(time.Minute)
		driver.want(t, 4) // 1 is ready, and 3 begins
		time.Sleep(time.Minute)
		driver.want(t, 4)
		time.Sleep(time.Minute + 10*time.Second)
		driver.want(t, 6) // 2 is late: 4 and 5 begin at once
		a.mu.Lock()
		if a.freeStarts != 1 {
			t.Errorf("%d starts may begin, want 1", a.freeStarts)
		}
		var reasons []string
		for _, w := range a.ledger.report(complete).Workers {
			reasons = append(reasons, fmt.Sprint(w.Index, " ", w.State, " ", w.Reason))
		}
		a.mu.Unlock()
		if want := []string{"0 EVICTED ", "1 RUNNING ", "2 FAILED START_TIMEOUT", "3 STARTING ", "4 RUNNING ",
			"5 RUNNING "}; !slices.Equal(reasons, want) {
			t.Errorf("the workers are %q, want %q", reasons, want)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		a.mu.Lock()
		if a.freeStarts != 2 {
			t.Errorf("%d starts may begin, want 2", a.freeStarts)
		}
		a.mu.Unlock()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A start that hangs in the driver is late too. If the driver starts the worker after all,
// the agent stops it. If it fails, the failure is START_TIMEOUT.
func TestStartThatHangsIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := newGated()
		a := unregistered(t, Config{Driver: driver, Starts: 2, StartTimeout: time.Hour})
		for i := range int32(2) {
			req := submit(i, 1, "")
			req.Task.StartTimeout = durationpb.New(time.Minute)
			mustBe(t, a, req, berthv1.Assignment_STARTING)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		driver.word(0) <- nil
		driver.word(1) <- startFailed("no luck")
		synctest.Wait()
		a.mu.Lock()
		for _, w := range a.ledger.report(complete).Workers {
			if w.State != berthv1.Assignment_FAILED || w.Reason != "START_TIMEOUT" {
				t.Error(w)
			}
		}
		if a.freeStarts != 2 {
			t.Errorf("%d starts may begin, want 2", a.freeStarts)
		}
		a.mu.Unlock()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A function is RUNNING once it calls Ready, which may be before its start has returned.
func TestFunctionReportsReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := make(chan struct{})
		driver := NewFunctions(map[string]Function{
			"at once": func(ctx context.Context, spec Spec) error { spec.Ready(); <-ctx.Done(); return nil },
			"later": func(ctx context.Context, spec Spec) error {
				<-load
				spec.Ready()
				spec.Ready()
				<-ctx.Done()
				return nil
			},
			"never": func(ctx context.Context, _ Spec) error { <-ctx.Done(); return nil },
		})
		a := unregistered(t, Config{Driver: driver, Starts: 4})
		mustSubmit(t, a, loading(0, 1, 0, "at once"))
		mustSubmit(t, a, loading(1, 1, 0, "later"))
		mustSubmit(t, a, loading(2, 1, 0, "never"))
		mustBe(t, a, submit(3, 1, "at once"), berthv1.Assignment_RUNNING)
		synctest.Wait()
		if s := states(a); s[0] != berthv1.Assignment_RUNNING || s[1] != berthv1.Assignment_STARTING {
			t.Error(s)
		}
		close(load)
		synctest.Wait()
		if s := states(a); s[1] != berthv1.Assignment_RUNNING || s[2] != berthv1.Assignment_STARTING {
			t.Error(s)
		}
		time.Sleep(model.DefaultReadyTimeout)
		synctest.Wait()
		if s := states(a); s[2] != berthv1.Assignment_FAILED || s[3] != berthv1.Assignment_RUNNING {
			t.Error(s)
		}
		if err := a.StopWorkers(t.Context()); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}
