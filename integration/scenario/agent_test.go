package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// The cases cover workers while their agent runs, while it is dead, and when it rejects
// them.
func TestWorkersOfAnAgent(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{})
	w.startAgents(fleet.Agent{ID: "host", Slots: 8, Allow: []string{"/bin/sh"}})
	w.awaitReady(1)
	for name, play := range map[string]func(*testing.T, *world){
		"the worker outlives its agent": outlivesAgent,
		"the worker ignores SIGTERM":    ignoresSIGTERM,
		"the worker gets signals":       getsSignals,
		"the command is not allowed":    notAllowed,
		"the command fails":             fails,
		"the output is followed":        followsOutput,
	} {
		t.Run(name, func(t *testing.T) {
			sub := *w
			sub.T = t
			play(t, &sub)
		})
	}
	w.quiesce()
	w.nothingLeased()
}

// pidOf waits until a worker has written its process ID to a file.
func pidOf(t *testing.T, file string) int {
	t.Helper()
	var pid int
	until(t, func() string {
		text, err := os.ReadFile(file)
		if err != nil || !strings.HasSuffix(string(text), "\n") {
			return "no worker wrote " + file
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return pid
}

func exited(pid int) bool {
	_, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err != nil
}

// presenceOf returns the etcd lease of an executor's presence.
func (w *world) presenceOf(id string) int64 {
	w.Helper()
	kvs, _, err := store.Range(w.ctx, w.store, space.Key(model.Ref{Kind: model.KindLive, ID: id}))
	if err != nil || len(kvs) != 1 {
		w.Fatalf("presence of %s: %v, %v", id, kvs, err)
	}
	return kvs[0].Lease
}

// If an agent is killed, its worker keeps running. The next agent adopts the worker and
// reports its end.
func outlivesAgent(t *testing.T, w *world) {
	dir := t.TempDir()
	r := shell("adopt", "s", 1, `echo $$ > "$DIR/pid"; echo said; read line < "$DIR/gate"; exit 7`)
	r.Task.Env = map[string]string{"DIR": dir}
	gate := filepath.Join(dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	r = w.upsert(r)
	w.awaitWorkers("adopt", berthv1.Event_WORKER_RUNNING, 1)
	pid := pidOf(t, filepath.Join(dir, "pid"))
	before, err := w.client.Executor(w.ctx, "host")
	if err != nil {
		t.Fatal(err)
	}

	agent := w.fleet.Agent("host")
	lease := w.presenceOf("host")
	agent.Kill()
	if exited(pid) {
		t.Fatal("the worker ended with its agent")
	}
	// The host of the executor refuses connections, so the executor becomes UNREACHABLE long
	// before its etcd lease expires.
	until(t, func() string {
		if e, err := w.client.Executor(w.ctx, "host"); err != nil || e.GetState() != berthv1.Executor_UNREACHABLE {
			return fmt.Sprintf("executor = %v, %v", e.GetState(), err)
		}
		return ""
	})
	if _, err := w.store.KeepAlive(w.ctx, lease); err != nil {
		t.Errorf("the death of the agent was detected only after its etcd lease expired: %v", err)
	}
	w.restart(agent)
	until(t, func() string {
		after, err := w.client.Executor(w.ctx, "host")
		if err != nil {
			return err.Error()
		}
		if after.GetIncarnation() <= before.GetIncarnation() || after.GetState() != berthv1.Executor_READY {
			return fmt.Sprintf("the agent has not returned: %v", after)
		}
		return ""
	})
	if env := environment(pid); env["BERTH_JOB"] != "adopt" || env["BERTH_EXECUTOR"] != "host" ||
		env["BERTH_EPOCH"] != fmt.Sprint(r.GetEpoch()) {
		t.Errorf("worker environment: %v", env)
	}
	for a, err := range w.client.Assignments(w.ctx, &berthv1.ListAssignmentsRequest{Job: "adopt"}) {
		if err != nil || a.GetState() != berthv1.Assignment_RUNNING || a.GetAttempts() != 1 {
			t.Errorf("assignment = %v, %v", a, err)
		}
	}
	output, _ := filepath.Glob(filepath.Join(w.dir, "host", "workers", "adopt", "s.0.*", "stdout"))
	if len(output) != 1 || tail(output[0], 100) != "said\n" {
		t.Errorf("worker output files: %v", output)
	}

	// The worker ends, and its exit code is reported.
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	failed := w.awaitWorkers("adopt", berthv1.Event_WORKER_FAILED, 1)[0]
	if failed.ExitCode == nil || failed.GetExitCode() != 7 {
		t.Errorf("reported end: %v", failed)
	}
	if r := w.await(r, berthv1.Reservation_COMPLETED); r.GetWorkerCounts()["FAILED"] != 1 {
		t.Errorf("workers by state: %v", r.GetWorkerCounts())
	}
}

// If a worker ignores SIGTERM, it is killed after its grace period.
func ignoresSIGTERM(t *testing.T, w *world) {
	dir := t.TempDir()
	const grace = 3 * time.Second // the worker gets SIGTERM long before this ends
	r := shell("stubborn", "s", 1, `trap 'echo asked > "$DIR/asked"' TERM; echo $$ > "$DIR/pid"; while :; do sleep 0.05 || :; done`)
	r.Task.Env, r.Task.StopGrace = map[string]string{"DIR": dir}, durationpb.New(grace)
	r = w.upsert(r)
	w.awaitWorkers("stubborn", berthv1.Event_WORKER_RUNNING, 1)
	pid := pidOf(t, filepath.Join(dir, "pid"))
	asked := time.Now()
	w.cancel(r)
	evicted := w.awaitWorkers("stubborn", berthv1.Event_WORKER_EVICTED, 1)[0]
	if took := time.Since(asked); took < grace || took >= model.DefaultStopGrace {
		t.Errorf("the worker was killed after %v, its stop grace is %v, the default is %v", took, grace,
			model.DefaultStopGrace)
	}
	if _, err := os.Stat(filepath.Join(dir, "asked")); err != nil {
		t.Errorf("the worker was killed without SIGTERM: %v", err)
	}
	if !exited(pid) || evicted.GetExitCode() != 128+9 {
		t.Errorf("ended: %v; reported end: %v", exited(pid), evicted)
	}
	if r := w.await(r, berthv1.Reservation_CANCELLED); r.GetWorkerCounts()["EVICTED"] != 1 {
		t.Errorf("workers by state: %v", r.GetWorkerCounts())
	}
}

// A worker gets the signal of a request ID once, whichever leader and agent repeat it. While its
// executor is away, it gets none, also not later.
func getsSignals(t *testing.T, w *world) {
	dir := t.TempDir()
	r := shell("signalled", "s", 1, `trap 'echo usr1 >> "$DIR/got"' USR1; trap 'echo hup >> "$DIR/got"' HUP
		trap 'echo usr2 >> "$DIR/got"' USR2; trap 'echo stop >> "$DIR/got"; exit 0' QUIT
		echo $$ > "$DIR/pid"; while :; do sleep 0.05; done`)
	r.Task.Env, r.Task.StopSignal = map[string]string{"DIR": dir}, proto.String("QUIT")
	r = w.upsert(r)
	w.awaitWorkers("signalled", berthv1.Event_WORKER_RUNNING, 1)
	pidOf(t, filepath.Join(dir, "pid"))
	send := func(signal, id, want string) {
		t.Helper()
		until(t, func() string {
			answer, err := w.client.SignalWorkers(w.ctx, &berthv1.SignalWorkersRequest{Job: "signalled", Stage: "s",
				Signal: signal, RequestId: id})
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprint(answer.GetSignalled())
			for _, f := range answer.GetFailed() {
				got += " " + f.GetReason()
			}
			if got != want {
				return fmt.Sprintf("%s %s: %s, want %s", signal, id, got, want)
			}
			return ""
		})
	}
	got := func(want string) {
		t.Helper()
		until(t, func() string {
			if text, err := os.ReadFile(filepath.Join(dir, "got")); string(text) != want {
				return fmt.Sprintf("the worker got %q, %v, want %q", text, err, want)
			}
			return ""
		})
	}
	send("USR1", "a", "1")
	got("usr1\n")
	leader, term := w.leader(model.ServiceAssigner)
	leader.Kill()
	w.nextLeader(model.ServiceAssigner, leader, term)
	w.restart(leader)
	send("USR1", "a", "1")

	agent := w.fleet.Agent("host")
	agent.Kill()
	until(t, func() string {
		if e, err := w.client.Executor(w.ctx, "host"); err != nil || e.GetState() != berthv1.Executor_UNREACHABLE {
			return fmt.Sprintf("executor = %v, %v", e.GetState(), err)
		}
		return ""
	})
	send("USR2", "b", "0 EXECUTOR_UNREACHABLE")
	w.restart(agent)
	send("USR1", "a", "1")
	send("HUP", "c", "1")
	got("usr1\nhup\n")
	w.cancel(r)
	w.await(r, berthv1.Reservation_CANCELLED)
	got("usr1\nhup\nstop\n")
}

// If a command is not on the agent's list, the worker gets exactly the configured number of
// attempts.
func notAllowed(t *testing.T, w *world) {
	wanted := fmt.Sprint(100_000 + os.Getpid()) // a text that only this test uses
	r := &berthv1.Reservation{
		Job: "forbidden", Stage: "s", Count: 1, MaxAttempts: proto.Int32(3),
		OnAssignmentFailure: berthv1.OnAssignmentFailure_NOTIFY,
		Task:                &berthv1.Task{Command: "sleep", Args: []string{wanted}},
	}
	r = w.upsert(r)
	failed := w.awaitWorkers("forbidden", berthv1.Event_WORKER_FAILED, 1)[0]
	w.await(r, berthv1.Reservation_FAILED)
	last := w.lastOf(r.GetUid(), 0)
	if last.State != model.WorkerFailed || last.Attempts != 3 || last.Reason != fault.ReasonAttemptsExhausted ||
		!strings.HasPrefix(last.LastError.String(), string(fault.ReasonNotAllowed)) ||
		failed.GetReason() != string(last.Reason) {
		t.Errorf("last record %+v, event %v", last, failed)
	}
	for pid, line := range processes("sleep " + wanted) {
		t.Errorf("the worker was started: %d %s", pid, line)
	}
}

// If a command fails, it is not started again.
func fails(t *testing.T, w *world) {
	r := w.upsert(shell("fails", "s", 2, `echo why >&2; exit $((3 + BERTH_WORKER_INDEX))`))
	failed := w.awaitWorkers("fails", berthv1.Event_WORKER_FAILED, 2)
	w.await(r, berthv1.Reservation_COMPLETED)
	for index, worker := range failed {
		if worker.GetExitCode() != 3+index || worker.GetReason() != string(fault.ReasonExited) {
			t.Errorf("worker %d ended with %v", index, worker)
		}
		if last := w.lastOf(r.GetUid(), index); last.Attempts != 1 {
			t.Errorf("worker %d: %+v", index, last)
		}
	}
}

// A reader that follows the output of a worker gets all of it once and in order, although its
// gateway and the agent are killed and restarted meanwhile. When Berth has forgotten the
// assignment, the output is still found.
func followsOutput(t *testing.T, w *world) {
	path := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	// The test keeps the pipe open, so that its writes never block and the worker never reads
	// an end of file.
	gate, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	r := shell("talk", "s", 1,
		`exec 3< "$GATE"; for n in 1 2 3; do echo $n; read line <&3; done; echo oops >&2; printf end`)
	r.Task.Env = map[string]string{"GATE": path}
	r = w.upsert(r)
	w.awaitWorkers("talk", berthv1.Event_WORKER_RUNNING, 1)
	one, err := client.Dial([]string{w.fleet.Gateway()})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	next := func() {
		if _, err := gate.WriteString("go\n"); err != nil {
			t.Error(err)
		}
	}
	request := &berthv1.ReadOutputRequest{Job: "talk", Stage: "s", Offset: proto.Int64(0), Follow: true}
	var all strings.Builder
	var last *berthv1.ReadOutputAnswer
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	for part, err := range one.Output(ctx, request) {
		if err != nil {
			t.Fatal(err)
		}
		last = part
		all.Write(part.GetData())
		if len(part.GetData()) == 0 {
			continue
		}
		switch all.String() {
		case "1\n":
			w.fleet.GatewayProcess(0).Kill()
			next()
			w.restart(w.fleet.GatewayProcess(0))
		case "1\n2\n":
			w.fleet.Agent("host").Kill()
			next()
			w.restart(w.fleet.Agent("host"))
		case "1\n2\n3\n":
			next()
		}
	}
	if all.String() != "1\n2\n3\nend" || !last.GetComplete() || last.GetExecutor() != "host" ||
		last.GetEpoch() != r.GetEpoch() {
		t.Fatalf("output %q, last part %v, %v", all.String(), last, ctx.Err())
	}
	w.await(r, berthv1.Reservation_COMPLETED)
	until(t, func() string {
		for a, err := range w.client.Assignments(w.ctx, &berthv1.ListAssignmentsRequest{Job: "talk"}) {
			return fmt.Sprintf("assignment %v, %v", a, err)
		}
		return ""
	})
	for stream, want := range map[berthv1.ReadOutputRequest_Stream]string{
		berthv1.ReadOutputRequest_STDOUT: "1\n2\n3\nend", berthv1.ReadOutputRequest_STDERR: "oops\n",
	} {
		request := &berthv1.ReadOutputRequest{Job: "talk", Stage: "s", Stream: stream}
		for part, err := range w.client.Output(w.ctx, request) {
			if err != nil || string(part.GetData()) != want || !part.GetComplete() {
				t.Errorf("%v: %v, %v", stream, part, err)
			}
		}
	}
	missing := &berthv1.ReadOutputRequest{Job: "talk", Stage: "s", Index: 1}
	for part, err := range w.client.Output(w.ctx, missing) {
		if !fault.Is(err, fault.ReasonNotFound) {
			t.Errorf("a worker that never existed: %v, %v", part, err)
		}
	}
}
