package scenario

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

// presenceTTL is the time for which an executor stays present without a heartbeat.
const presenceTTL = 15 * time.Second

// A replica with streams of agents is killed, whether it leads or not. The agents continue
// at another replica before their presence expires. No executor is UNREACHABLE at any time.
func TestAgentsMoveToAnotherReplica(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{TTL: 2 * time.Second})
	const simulated, hosts, most = 40, 2, 20
	agents := simulated
	w.startSim("sim", simulated, 1)
	w.awaitReady(agents)
	leader, other := w.executorStates()
	// Of the replicas that answer, an agent chooses the one with the fewest streams and stays
	// there. The test starts new agents until both replicas have streams.
	for l, o := 0, 0; agents < simulated+hosts || l == 0 || o == 0; {
		if agents == simulated+most {
			t.Fatalf("the leader has %d streams, the standby %d", l, o)
		}
		w.startAgents(fleet.Agent{ID: fmt.Sprintf("host-%d", agents-simulated), Slots: 1})
		agents++
		until(t, func() string {
			if l, o = w.streams(leader), w.streams(other); l+o != agents {
				return fmt.Sprintf("of %d streams, the leader has %d and the standby %d", agents, l, o)
			}
			return ""
		})
	}
	w.awaitReady(agents)
	moved := func(from, to *child.Process) {
		t.Helper()
		from.Kill()
		until(t, func() string {
			if n := w.streams(to); n != agents {
				return fmt.Sprintf("%d of %d agents have continued at %s", n, agents, to.Name)
			}
			return ""
		})
	}
	moved(other, leader)
	w.restart(other)
	moved(leader, other)

	// When this etcd lease has expired, all leases that were not renewed since then have
	// expired too.
	w.awaitExpired("/witness", presenceTTL)
	w.neverAbsent()
	w.awaitReady(agents)
}

// All gateways are down for 30 s of real time, with the default TTL and lostAfter, so every
// executor becomes UNREACHABLE. When the gateways return, the executors become READY again.
// The workers have kept running, and none was declared LOST.
func TestAllGatewaysDown(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{Gateways: 2})
	for i := range 3 {
		w.startAgents(fleet.Agent{ID: fmt.Sprintf("host-%d", i), Slots: 1})
	}
	w.awaitReady(3)
	ran := w.startRunning("outage", 3)

	for i := range 2 {
		w.fleet.GatewayProcess(i).Kill()
	}
	w.awaitExpired("/outage", 30*time.Second)
	w.awaitUnreachable("host-")
	for i := range 2 {
		w.restart(w.fleet.GatewayProcess(i))
	}
	w.awaitReady(3)
	w.checkStillRunning(ran)
	w.neverLost()
	w.cancel(ran.reservation)
	w.await(ran.reservation, berthv1.Reservation_CANCELLED)
	w.quiesce()
}

// executorStates returns the leader of executor-state and the other replica.
func (w *world) executorStates() (leader, other *child.Process) {
	w.Helper()
	leader, _ = w.leader(model.ServiceExecutorState)
	for i := range 2 {
		if p := w.fleet.Replica(model.ServiceExecutorState, i); p != leader {
			other = p
		}
	}
	return leader, other
}

// streams returns the number of heartbeat streams of a replica, from its metrics.
func (w *world) streams(p *child.Process) int {
	w.Helper()
	return w.gauge(p, "berth_executor_state_heartbeat_streams")
}

// gauge returns the value of a gauge that has only the label of all metrics from the metrics of a process.
func (w *world) gauge(p *child.Process, name string) int {
	w.Helper()
	_, text := newWeb(w.T, p.Addresses().HTTP).call("GET", "/metrics", "")
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+`{cluster="default"} `); found {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				w.Fatal(err)
			}
			return n
		}
	}
	w.Fatalf("%s does not export %s:\n%s", p.Name, name, text)
	return 0
}

// awaitExpired attaches a key to an etcd lease that is not renewed. It waits until the key
// is deleted.
func (w *world) awaitExpired(key string, ttl time.Duration) {
	w.Helper()
	lease, err := w.store.Grant(w.ctx, ttl)
	if err == nil {
		_, err = w.store.Txn(w.ctx, store.Txn{Then: []store.Op{{Key: key, Lease: lease.ID}}})
	}
	if err != nil {
		w.Fatal(err)
	}
	until(w.T, func() string {
		if _, found, err := w.store.Get(w.ctx, key); found || err != nil {
			return fmt.Sprintf("%s has not expired, %v", key, err)
		}
		return ""
	})
}

// awaitUnreachable waits until etcd has no presence of any executor whose ID starts with
// prefix.
func (w *world) awaitUnreachable(prefix string) {
	w.Helper()
	until(w.T, func() string {
		if left := w.keys(space.Key(model.Ref{Kind: model.KindLive, ID: prefix})); len(left) > 0 {
			return fmt.Sprintf("still present: %v", slices.Sorted(maps.Keys(left)))
		}
		return ""
	})
}

// running has a batch and the process IDs of its workers.
type running struct {
	reservation *berthv1.Reservation
	pids        []int
}

// startRunning starts a batch of n workers that run until they are stopped.
func (w *world) startRunning(job string, n int) running {
	w.Helper()
	dir := w.TempDir()
	r := shell(job, "s", n, `echo $$ > "$DIR/$BERTH_WORKER_INDEX"; exec sleep 1000`)
	r.Task.Env = map[string]string{"DIR": dir}
	ran := running{reservation: w.upsert(r)}
	w.awaitWorkers(job, berthv1.Event_WORKER_RUNNING, n)
	for i := range n {
		ran.pids = append(ran.pids, pidOf(w.T, filepath.Join(dir, strconv.Itoa(i))))
	}
	return ran
}

// checkStillRunning checks that the workers are still the same processes, and that no
// record ever stated that a worker was LOST.
func (w *world) checkStillRunning(ran running) {
	w.Helper()
	for i, pid := range ran.pids {
		if env := environment(pid); env["BERTH_EPOCH"] != fmt.Sprint(ran.reservation.GetEpoch()) ||
			env["BERTH_WORKER_INDEX"] != strconv.Itoa(i) {
			w.Errorf("worker %d was process %d, which has exited or was replaced: %v", i, pid, env)
		}
	}
	n := 0
	for a, err := range w.client.Assignments(w.ctx, &berthv1.ListAssignmentsRequest{Job: ran.reservation.GetJob()}) {
		if n++; err != nil || a.GetState() != berthv1.Assignment_RUNNING || a.GetAttempts() != 1 {
			w.Errorf("assignment = %v, %v", a, err)
		}
	}
	if n != len(ran.pids) {
		w.Errorf("%d of %d workers are assigned", n, len(ran.pids))
	}
	for _, c := range w.history() {
		if chunk, ok := decode(w, c, model.KindTaskChunk).(*model.TaskChunk); ok && chunk.UID == ran.reservation.GetUid() {
			for _, worker := range chunk.Workers {
				if worker.State == model.WorkerLost {
					w.Errorf("worker %s became LOST at revision %d", worker.ID, c.Mod)
				}
			}
		}
	}
}
