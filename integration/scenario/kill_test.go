package scenario

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
	"berth.dev/testkit/fixedseed"
)

var (
	seed    = flag.Uint64("seed", 0, "seed of the kills and of the load; 0 for 1, or with RANDOM_SEEDS=1 for a random one")
	killFor = flag.Duration("kill-for", 15*time.Second, "duration of the kills")
)

const (
	hosts     = 4
	hostSlots = 4
	sims      = 200
)

// While processes are killed at random times, no acknowledged change is lost and no worker
// is started twice. In the end, the processes match the records.
func TestKillsAtRandomTimes(t *testing.T) {
	t.Parallel()
	seed := fixedseed.Or(*seed)
	t.Logf("to repeat this run: -seed=%d", seed)
	w := start(t, fleet.Config{Gateways: 2, TTL: 2 * time.Second})
	for i := range hosts {
		w.startAgents(fleet.Agent{ID: fmt.Sprintf("host-%d", i), Slots: hostSlots, SKU: "host"})
	}
	w.startSim("sim", sims, 2)
	w.awaitReady(hosts + sims)
	l := &load{world: w, acked: map[string]client.Key{}, marks: filepath.Join(w.dir, "starts")}

	ctx, stop := context.WithCancel(w.ctx)
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() { l.run(ctx, i, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	w.killAround(rand.New(rand.NewPCG(seed, 100)))
	stop()
	callers.Wait()

	// From here on, there are no more requests and no more kills.
	w.awaitReady(hosts + sims)
	w.quiesce()
	l.stateOfAll()
	l.matching()
	l.startedOnce()
	for i := range 4 {
		if _, err := w.client.CancelJob(w.ctx, job(i)); err != nil {
			t.Error(err)
		}
	}
	w.quiesce()
	w.nothingLeased()
	l.matching()
}

// killAround kills and restarts processes, mostly one at a time and sometimes two together.
func (w *world) killAround(r *rand.Rand) {
	kills := map[string]int{}
	pick := func() *child.Process {
		switch n := r.IntN(10); {
		case n < 6:
			service := fleet.Services[r.IntN(len(fleet.Services))]
			kills[service]++
			return w.fleet.Replica(service, r.IntN(2))
		case n < 7:
			kills["gateway"]++
			return w.fleet.GatewayProcess(r.IntN(2))
		default:
			kills["agent"]++
			return w.fleet.Agent(fmt.Sprintf("host-%d", r.IntN(hosts)))
		}
	}
	for over := time.Now().Add(*killFor); time.Now().Before(over); {
		victims := []*child.Process{pick()}
		if other := pick(); r.IntN(4) == 0 && other != victims[0] {
			victims = append(victims, other)
		}
		for _, p := range victims {
			p.Kill()
		}
		<-time.After(upTo(r, 300*time.Millisecond)) // the time for which the processes are down
		for _, p := range victims {
			w.restart(p)
		}
		<-time.After(upTo(r, 500*time.Millisecond)) // the time without kills
	}
	w.Logf("killed: %v", kills)
}

// load has the calls that clients make while processes are killed, and the outcomes.
type load struct {
	*world
	marks string

	mu    sync.Mutex
	acked map[string]client.Key // by UID
}

func job(caller int) string { return fmt.Sprintf("job-%d", caller) }

// run makes calls until ctx ends. Half of the callers request real hosts.
func (l *load) run(ctx context.Context, caller int, r *rand.Rand) {
	var keys []client.Key
	for round := 0; ctx.Err() == nil; round++ {
		calls, cancel := context.WithTimeout(l.ctx, patience)
		var err error
		switch n := r.IntN(10); {
		case len(keys) == 0 || n < 5:
			key := client.Key{Job: job(caller), Stage: fmt.Sprintf("s%d", round), Name: "main"}
			if len(keys) > 0 && n == 0 {
				key = keys[r.IntN(len(keys))] // an existing reservation
			} else {
				keys = append(keys, key)
			}
			err = l.ask(calls, key, l.batch(caller, key, r))
		case n < 8 || len(keys) > 8:
			_, err = l.client.Cancel(calls, keys[0])
			keys = keys[1:]
		default:
			wait, stop := context.WithTimeout(calls, upTo(r, 500*time.Millisecond))
			_, err = l.client.WaitFor(wait, keys[r.IntN(len(keys))], berthv1.Reservation_ACTIVE)
			stop()
			if f := fault.Of(err); err != nil && (f.Kind == fault.Precondition || errors.Is(err, context.DeadlineExceeded)) {
				err = nil // the batch has ended, or the wait has timed out
			}
		}
		cancel()
		if err != nil {
			l.Errorf("caller %d, round %d: %v", caller, round, err)
		}
		<-time.After(upTo(r, 50*time.Millisecond)) // callers pause between calls
	}
}

func (l *load) batch(caller int, key client.Key, r *rand.Rand) *berthv1.Reservation {
	if caller%2 == 0 {
		payload := []string{"", `{"runFor": "100ms"}`, `{"runFor": "1s"}`}[r.IntN(3)]
		return &berthv1.Reservation{
			Job: key.Job, Stage: key.Stage, Count: 1 + r.Int32N(150),
			Constraints: &berthv1.Constraints{Sku: "sim"}, Task: &berthv1.Task{Payload: []byte(payload)},
		}
	}
	const mark = `echo "$BERTH_JOB/$BERTH_STAGE/$BERTH_WORKER_INDEX.$BERTH_WORKER_NUMBER@$BERTH_EPOCH" >> "$MARKS"; `
	batch := shell(key.Job, key.Stage, 1+r.IntN(6), mark+[]string{"exit 0", "sleep 0.3", "exit 1",
		"sleep 1000"}[r.IntN(4)])
	batch.Constraints, batch.Task.Env = &berthv1.Constraints{Sku: "host"}, map[string]string{"MARKS": l.marks}
	return batch
}

func (l *load) ask(ctx context.Context, key client.Key, r *berthv1.Reservation) error {
	answer, err := l.client.Reserve(ctx, r)
	if err != nil {
		return fmt.Errorf("upsert of %s: %w", key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[answer.GetUid()] = key
	return nil
}

// task describes a task and its executors in one line.
func (w *world) task(uid string) string {
	executors := map[uint32]*model.Executor{}
	for _, e := range records[*model.Executor](w, model.KindExecutor) {
		executors[e.Ordinal] = e
	}
	var b strings.Builder
	for _, h := range records[*model.TaskHeader](w, model.KindTaskHeader) {
		if h.UID == uid {
			fmt.Fprintf(&b, "%+v", *h)
		}
	}
	for _, c := range records[*model.TaskChunk](w, model.KindTaskChunk) {
		for _, tw := range c.Workers {
			if c.UID == uid {
				e := executors[tw.Ordinal]
				fmt.Fprintf(&b, "; %s %s since %s on %s (%d, is %d, lost %v) %q", tw.ID, tw.State, tw.Since.Time(), e.ID, tw.Incarnation,
					e.Incarnation, e.Lost, tw.LastError)
			}
		}
	}
	for _, c := range records[*model.LeaseChunk](w, model.KindLeaseChunk) {
		if c.UID == uid {
			fmt.Fprintf(&b, "; leased %v", c.Workers)
		}
	}
	return b.String()
}

// stateOfAll checks that every acknowledged version is queued or has ended properly.
func (l *load) stateOfAll() {
	l.Helper()
	var counts map[model.State]int
	until(l.T, func() string {
		counts = map[model.State]int{}
		states := map[string]model.State{}
		for _, r := range records[*model.Reservation](l.world, model.KindReservation) {
			states[r.UID] = r.State
			if n := r.WorkerCounts["LOST"]; n > 0 {
				l.Errorf("%s lost %d workers, although no host was absent for long", r.Key, n)
			}
		}
		for _, uid := range slices.Sorted(maps.Keys(l.acked)) {
			switch state := states[uid]; state {
			case model.Queued, model.Active, model.Completed, model.Cancelled, model.Replaced:
				counts[state]++
			case model.Cancelling:
				return fmt.Sprintf("%s (%s) is still being cancelled: %s", l.acked[uid], uid, l.task(uid))
			default:
				l.Fatalf("%s (%s) was acknowledged but its state is %q", l.acked[uid], uid, state)
			}
		}
		return ""
	})
	l.Logf("acknowledged: %d, of which %v", len(l.acked), counts)
}

// matching waits until the worker processes on the hosts match the records.
func (l *load) matching() {
	l.Helper()
	until(l.T, func() string {
		recorded, running := map[string]bool{}, map[string]bool{}
		for a, err := range l.client.Assignments(l.ctx, &berthv1.ListAssignmentsRequest{PageSize: 1000}) {
			if err != nil {
				return err.Error()
			}
			if strings.HasPrefix(a.GetExecutor(), "host-") {
				if a.GetState() != berthv1.Assignment_RUNNING {
					return fmt.Sprintf("a worker is still being started or stopped: %v", a)
				}
				recorded[fmt.Sprintf("%s/%s/%d.%d@%d on %s", a.GetJob(), a.GetStage(), a.GetIndex(), a.GetNumber(), a.GetEpoch(),
					a.GetExecutor())] = true
			}
		}
		for pid := range processes(l.marks) {
			if e := environment(pid); e["BERTH_JOB"] != "" {
				running[fmt.Sprintf("%s/%s/%s.%s@%s on %s", e["BERTH_JOB"], e["BERTH_STAGE"], e["BERTH_WORKER_INDEX"],
					e["BERTH_WORKER_NUMBER"], e["BERTH_EPOCH"], e["BERTH_EXECUTOR"])] = true
			}
		}
		if !maps.Equal(recorded, running) {
			return fmt.Sprintf("recorded: %v\nrunning: %v", slices.Sorted(maps.Keys(recorded)),
				slices.Sorted(maps.Keys(running)))
		}
		return ""
	})
}

// startedOnce checks the marks that the workers wrote: no worker may have started twice.
func (l *load) startedOnce() {
	l.Helper()
	text, err := os.ReadFile(l.marks)
	if err != nil {
		l.Fatal(err)
	}
	marks := strings.Fields(string(text))
	seen := map[string]bool{}
	for _, mark := range marks {
		if seen[mark] {
			l.Errorf("%s was started twice", mark)
		}
		seen[mark] = true
	}
	l.Logf("%d real workers wrote a marker", len(marks))
}

// upTo returns a random time below the given maximum.
func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)))
}
