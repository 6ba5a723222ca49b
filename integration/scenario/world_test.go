package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/audit"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// patience is the time limit of every wait. Only a failure takes this long.
const patience = 90 * time.Second

// pollEvery is the interval at which tests poll conditions that give no signal.
const pollEvery = 5 * time.Millisecond

var space = keyspace.New("default")

// world is a fleet of processes, with the clients that a test uses.
type world struct {
	*testing.T
	ctx    context.Context
	fleet  *fleet.Fleet
	client *client.Client
	store  *store.Etcd
	dir    string
	binary string
	// restored is the revision of the last restore or compaction of etcd, at which the audit
	// starts, or zero.
	restored int64
	// tampered has the revisions that the test itself wrote.
	tampered map[int64]bool
}

// start starts a fleet. At the end of the test, it audits the history of etcd and stops the
// fleet.
func start(t *testing.T, config fleet.Config) *world {
	t.Helper()
	w := &world{T: t, dir: t.TempDir(), tampered: map[int64]bool{}}
	w.binary = ownBinary(t, w.dir)
	var stop context.CancelFunc
	w.ctx, stop = context.WithTimeout(context.Background(), 3*patience+*chaosFor+4**growthFor)
	t.Cleanup(stop)
	config.Binary, config.Dir = w.binary, w.dir
	f, err := fleet.Start(w.ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	w.fleet, w.client = f, f.Client()
	etcd, err := f.EtcdConfig(f.Etcd()[0])
	if err != nil {
		t.Fatal(err)
	}
	w.store = connect(t, etcd)
	t.Cleanup(func() {
		checkHistory(t, w.store, w.restored, w.tampered)
		w.store.Close() // a stopping etcd waits for watches to close
		if err := f.Close(); err != nil {
			t.Errorf("stop of the fleet: %v", err)
		}
		noneLeft(t, w.dir)
		w.showLogs()
	})
	return w
}

// ownBinary returns a link to the program that only this test uses. The test finds its
// processes by the path of the link.
func ownBinary(t *testing.T, dir string) string {
	t.Helper()
	own := filepath.Join(dir, "berth")
	if err := os.Link(binary, own); err == nil {
		return own
	}
	text, err := os.ReadFile(binary) // a link is not possible across file systems
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return own
}

func connect(t *testing.T, etcd store.DialConfig) *store.Etcd {
	t.Helper()
	s, err := store.Dial(etcd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// until polls check, for conditions that give no signal. check returns what is missing, or
// an empty string.
func until(t *testing.T, check func() string) {
	t.Helper()
	tick, timeout := time.NewTicker(pollEvery), time.NewTimer(patience)
	defer tick.Stop()
	defer timeout.Stop()
	for {
		missing := check()
		if missing == "" {
			return
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			t.Fatalf("after %v: %s", patience, missing)
		}
	}
}

// checkHistory audits the whole history of etcd. If from is set, it audits the state at
// that revision and the history since then. It ignores the revisions that the test itself
// wrote.
func checkHistory(t *testing.T, s store.Store, from int64, tampered map[int64]bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a, err := audit.Check(ctx, s, space, from)
	if err != nil {
		t.Errorf("audit: %v", err)
		return
	}
	for _, v := range a.Violations() {
		if !tampered[v.Revision] {
			t.Errorf("%v", v)
		}
	}
	stats := a.Stats()
	if (stats.Snapshots != 0) != (from != 0) || stats.OverCommitted != 0 || stats.StartedTwice != 0 {
		t.Errorf("the history has gaps, executors are over-committed, or workers were started twice: %+v", stats)
	}
	t.Logf("history: up to revision %d, %d reservations, %d leases, %d workers leased, %d ran", stats.Revision,
		stats.Reservations, stats.LeasesGranted, stats.WorkersLeased, stats.WorkersRunning)
}

// quiesce waits until nothing is in flight.
func (w *world) quiesce() {
	w.Helper()
	ctx, stop := context.WithCancel(w.ctx)
	follower := audit.Follow(w.store, space)
	done := make(chan struct{})
	go func() { defer close(done); follower.Run(ctx) }()
	defer func() { stop(); <-done }()
	until(w.T, func() string {
		if err := follower.CatchUp(ctx); err != nil {
			return err.Error()
		}
		var left []audit.Violation
		follower.Look(func(a *audit.Auditor) { left = a.Quiesced() })
		if len(left) > 0 {
			return fmt.Sprintf("%d violations, the first: %v", len(left), left[0])
		}
		return ""
	})
}

// noneLeft waits until no process of the test is left.
func noneLeft(t *testing.T, dir string) {
	t.Helper()
	until(t, func() string {
		if left := processes(dir); len(left) > 0 {
			return fmt.Sprintf("processes are left: %v", left)
		}
		return ""
	})
}

func (w *world) showLogs() {
	if !w.Failed() {
		return
	}
	logs, _ := filepath.Glob(filepath.Join(w.dir, "*.log"))
	for _, log := range logs {
		w.Logf("%s:\n%s", filepath.Base(log), tail(log, 4000))
	}
}

func tail(file string, n int) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	if len(text) > n {
		text = text[len(text)-n:]
	}
	return string(text)
}

// awaitReady waits until n executors are READY.
func (w *world) awaitReady(n int) {
	w.Helper()
	until(w.T, func() string {
		ready := 0
		for _, err := range w.client.Executors(w.ctx, &berthv1.ListExecutorsRequest{State: berthv1.Executor_READY,
			PageSize: 1000}) {
			if err != nil {
				return err.Error()
			}
			ready++
		}
		if ready < n {
			return fmt.Sprintf("%d of %d executors are ready", ready, n)
		}
		return ""
	})
}

func (w *world) startAgents(agents ...fleet.Agent) {
	w.Helper()
	for _, a := range agents {
		if err := w.fleet.StartAgent(w.ctx, a); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) startSim(prefix string, n, slots int) {
	w.Helper()
	if err := w.fleet.StartSim(w.ctx, prefix, n, slots); err != nil {
		w.Fatal(err)
	}
}

// leader waits until a service has a leader and returns its process and term.
func (w *world) leader(service string) (leader *child.Process, term int64) {
	w.Helper()
	return w.nextLeader(service, nil, 0)
}

// nextLeader waits until a service has another leader than before, with a higher term. It
// returns the leader's process and term.
func (w *world) nextLeader(service string, before *child.Process, term int64) (leader *child.Process, now int64) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	until(w.T, func() (missing string) {
		var err error
		if leader, now, err = w.fleet.Leader(ctx, service); err != nil || leader == before || now <= term {
			return fmt.Sprintf("the leader of %s is %v in term %d, %v", service, leader, now, err)
		}
		return ""
	})
	return leader, now
}

func (w *world) restart(p *child.Process) {
	w.Helper()
	if err := w.fleet.Restart(w.ctx, p); err != nil {
		w.Fatal(err)
	}
}

func (w *world) upsert(r *berthv1.Reservation) *berthv1.Reservation {
	w.Helper()
	answer, err := w.client.Reserve(w.ctx, r)
	if err != nil {
		w.Fatalf("upsert of %s: %v", client.KeyOf(r), err)
	}
	return answer
}

func (w *world) cancel(r *berthv1.Reservation) {
	w.Helper()
	if _, err := w.client.Cancel(w.ctx, client.KeyOf(r)); err != nil {
		w.Fatalf("cancel of %s: %v", client.KeyOf(r), err)
	}
}

func (w *world) await(r *berthv1.Reservation, states ...berthv1.Reservation_State) *berthv1.Reservation {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	answer, err := w.client.WaitFor(ctx, client.KeyOf(r), states...)
	if err != nil {
		w.Fatalf("wait until %s is %v: %v", client.KeyOf(r), states, err)
	}
	return answer
}

// awaitRunning waits until a reservation is ACTIVE and n of its workers count as running.
// The count follows the events of the workers with a delay.
func (w *world) awaitRunning(r *berthv1.Reservation, n int32) {
	w.Helper()
	until(w.T, func() string {
		now, err := w.client.Get(w.ctx, client.KeyOf(r))
		if err != nil || now.GetState() != berthv1.Reservation_ACTIVE || now.GetWorkerCounts()["RUNNING"] != n {
			return fmt.Sprintf("%s is %v with workers %v of %d, %v", client.KeyOf(r), now.GetState(), now.GetWorkerCounts(),
				n, err)
		}
		return ""
	})
}

// awaitEvents reads the events of a job until enough returns true.
func (w *world) awaitEvents(job string, enough func(*berthv1.Event) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	for event, err := range w.client.Events(ctx, job, "") {
		if err != nil {
			w.Fatal(err)
		}
		if enough(event) {
			return
		}
	}
	w.Fatalf("the events of %s did not arrive", job)
}

// awaitWorkers waits until n workers of a job have an event of the given kind. It returns
// the workers by index.
func (w *world) awaitWorkers(job string, kind berthv1.Event_Kind, n int) map[int32]*berthv1.EventWorker {
	w.Helper()
	seen := map[int32]*berthv1.EventWorker{}
	w.awaitEvents(job, func(e *berthv1.Event) bool {
		if e.GetKind() == kind {
			for _, worker := range e.GetWorkers() {
				seen[worker.GetIndex()] = worker
			}
		}
		return len(seen) >= n
	})
	return seen
}

// awaitRecorded waits until the record of a job's only reservation is ACTIVE. The record
// follows the task with a delay.
func (w *world) awaitRecorded(job string) {
	w.Helper()
	w.awaitEvents(job, func(e *berthv1.Event) bool { return e.GetKind() == berthv1.Event_RESERVATION_ASSIGNED })
}

// keys returns the current keys with a prefix, with the revision of each key.
func (w *world) keys(prefix string) map[string]int64 {
	w.Helper()
	kvs, _, err := store.Range(w.ctx, w.store, prefix)
	if err != nil {
		w.Fatal(err)
	}
	keys := map[string]int64{}
	for _, kv := range kvs {
		keys[kv.Key] = kv.Mod
	}
	return keys
}

// records returns all current records of a kind.
func records[R model.Record](w *world, kind model.Kind) []R {
	w.Helper()
	kvs, _, err := store.Range(w.ctx, w.store, space.Prefix())
	if err != nil {
		w.Fatal(err)
	}
	var list []R
	for _, kv := range kvs {
		if r, ok := decode(w, store.Change{KV: kv}, kind).(R); ok {
			list = append(list, r)
		}
	}
	return list
}

// decode returns the record of a change if it is of the given kind, and nil otherwise.
func decode(w *world, c store.Change, kind model.Kind) model.Record {
	w.Helper()
	ref, ok := space.Parse(c.Key)
	if !ok || ref.Kind != kind || c.Deleted {
		return nil
	}
	record, err := wire.Decode(ref, c.Value, c.Create, c.Mod, c.Lease)
	if err != nil {
		w.Fatal(err)
	}
	return record
}

// history returns all changes since the first revision of etcd.
func (w *world) history() []store.Change {
	w.Helper()
	page, err := w.store.Page(w.ctx, store.PageRequest{From: "/", To: "0", Limit: 1})
	if err != nil {
		w.Fatal(err)
	}
	watch := w.store.Watch(space.Prefix(), 1)
	defer watch.Close()
	var changes []store.Change
	for reached := int64(0); reached < page.Revision; {
		watch.RequestProgress()
		ctx, cancel := context.WithTimeout(w.ctx, 100*time.Millisecond)
		batch, err := watch.Next(ctx)
		cancel()
		switch {
		case err == nil:
			changes, reached = append(changes, batch.Changes...), batch.Revision
		case w.ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			w.Fatal(err)
		}
	}
	return changes
}

// lastOf returns a worker as its newest record shows it, even if the worker has ended.
func (w *world) lastOf(uid string, index int32) model.TaskWorker {
	w.Helper()
	var last model.TaskWorker
	for _, c := range w.history() {
		if chunk, ok := decode(w, c, model.KindTaskChunk).(*model.TaskChunk); ok && chunk.UID == uid {
			for _, worker := range chunk.Workers {
				if worker.ID.Index == index {
					last = worker
				}
			}
		}
	}
	return last
}

// shell returns a batch of n workers that run a shell script.
func shell(job, stage string, n int, script string) *berthv1.Reservation {
	return &berthv1.Reservation{Job: job, Stage: stage, Count: int32(n),
		Task: &berthv1.Task{Command: "sh", Args: []string{"-ec", script}}}
}

// refusal checks that an error has the given kind, reason and field.
func refusal(t *testing.T, err error, kind fault.Kind, reason fault.Reason, field string) {
	t.Helper()
	f := fault.Of(err)
	if f == nil || f.Kind != kind || f.Reason != reason {
		t.Errorf("got %v, want %v %s", err, kind, reason)
		return
	}
	if field != "" && (len(f.Fields) != 1 || f.Fields[0].Name != field) {
		t.Errorf("fields %v, want %s", f.Fields, field)
	}
}

// processes returns the running processes that have the text in their program, command line
// or environment. It maps each process ID to the command line.
func processes(text string) map[int]string {
	found := map[int]string{}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		var pid int
		fmt.Sscanf(filepath.Base(entry), "%d", &pid) //nolint:errcheck // only numbers match
		program, err := os.Readlink(filepath.Join(entry, "exe"))
		if err != nil {
			continue // the process has exited or is a zombie
		}
		line, _ := os.ReadFile(filepath.Join(entry, "cmdline"))
		command := strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		env, _ := os.ReadFile(filepath.Join(entry, "environ"))
		if pid != os.Getpid() && (strings.Contains(program, text) || strings.Contains(command, text) ||
			strings.Contains(string(env), text)) {
			found[pid] = command
		}
	}
	return found
}

// environment returns the environment of a process, or nothing if it has exited.
func environment(pid int) map[string]string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	env := map[string]string{}
	for _, pair := range strings.Split(string(text), "\x00") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env[name] = value
		}
	}
	return env
}
