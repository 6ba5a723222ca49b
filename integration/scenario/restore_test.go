package scenario

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
)

// etcd is lost and restored from an older backup. Some workers started after the backup,
// some workers that the backup has as running have ended, and an executor has registered
// again. Agents still accept requests. Workers are stopped only after all job services have
// repeated their requests, and no worker runs twice.
func TestFaultRestoreOfOlderBackup(t *testing.T) {
	if !*faults {
		t.Skip("make faults")
	}
	w := start(t, fleet.Config{Etcd: 3, TTL: 2 * time.Second,
		Flags: map[string][]string{"registry": {"--readiness", "signal"}}})
	w.startAgents(fleet.Agent{ID: "host-0", Slots: 4}, fleet.Agent{ID: "host-1", Slots: 4})
	w.awaitReady(2)
	w.markReady()

	kept, ends, cancelled, later := w.single("kept", 2), w.single("ends", 1), w.single("cancelled", 1),
		w.single("later", 2)
	for _, r := range []*berthv1.Reservation{kept, ends, cancelled} {
		w.upsert(r)
		w.awaitWorkers(r.GetJob(), berthv1.Event_WORKER_RUNNING, int(r.GetCount()))
	}
	before := w.keys(space.Prefix() + "leaders/")
	backup := filepath.Join(w.dir, "backup.db")
	w.berth("backup", backup, "--etcd-endpoints", w.fleet.Etcd()[1])

	// The backup does not have the following changes.
	w.upsert(later)
	w.awaitWorkers("later", berthv1.Event_WORKER_RUNNING, 2)
	if err := os.WriteFile(w.ending("ends"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.await(ends, berthv1.Reservation_COMPLETED)
	w.cancel(cancelled)
	w.await(cancelled, berthv1.Reservation_CANCELLED)
	w.fleet.Agent("host-1").Kill()
	w.restart(w.fleet.Agent("host-1"))
	w.awaitReady(2)
	ran := w.running()

	written := w.revision()
	w.loseEtcd()
	w.restore(backup, "--at", time.Now().UTC().Format(time.RFC3339))
	if w.restored <= written {
		t.Errorf("restored at revision %d, although revision %d was written", w.restored, written)
	}
	w.checkMembersAgree()
	if left := w.keys(space.Prefix() + "leaders/"); len(left) > 0 {
		t.Errorf("leaders after the restore: %v", left)
	}
	w.startServices()

	// After the restore, an executor is present only once its agent has reported its workers.
	// host-0 is READY. host-1 has two workers without a record.
	w.awaitReady(1)
	assigner, _ := w.leader(model.ServiceAssigner)
	until(t, func() string {
		if n := w.gauge(assigner, "berth_assigner_orphaned_workers"); n != 2 {
			return fmt.Sprintf("%d unknown workers are reported, want 2", n)
		}
		return ""
	})
	w.await(kept, berthv1.Reservation_ACTIVE)
	w.await(ends, berthv1.Reservation_COMPLETED)
	w.await(cancelled, berthv1.Reservation_COMPLETED)
	for key := range before {
		if now := w.keys(key); len(now) != 1 || now[key] <= w.restored {
			t.Errorf("%s: %v, want revisions after %d", key, now, w.restored)
		}
	}
	if _, err := w.client.Pending(w.ctx); !fault.Is(err, fault.ReasonRegistryNotReady) {
		t.Errorf("pending reservations: %v", err)
	}
	if now := w.running(); !equal(now, ran) {
		t.Errorf("running workers %v, want %v", now, ran)
	}

	// The job services now repeat their requests.
	if answer := w.upsert(kept); answer.GetChange() != berthv1.UpsertReservationRequest_UNCHANGED {
		t.Errorf("kept reservation: %v", answer.GetChange())
	}
	again := w.upsert(later)
	if again.GetState() != berthv1.Reservation_QUEUED || again.GetEpoch() <= w.restored {
		t.Errorf("later reservation: %v of epoch %d", again.GetState(), again.GetEpoch())
	}
	w.markReady()
	w.await(later, berthv1.Reservation_ACTIVE)
	want := map[string]int64{}
	for worker, epoch := range ran {
		if strings.HasPrefix(worker, "later/") {
			epoch = again.GetEpoch()
		}
		want[worker] = epoch
	}
	until(t, func() string {
		if now := w.running(); !equal(now, want) {
			return fmt.Sprintf("running workers %v, want %v", now, want)
		}
		return ""
	})
	if twice, err := os.ReadFile(filepath.Join(w.dir, "twice")); err == nil {
		t.Errorf("workers that ran twice at the same time:\n%s", twice)
	}
	for _, r := range []*berthv1.Reservation{kept, later} {
		w.cancel(r)
		w.await(r, berthv1.Reservation_CANCELLED)
	}
	w.quiesce()
	if now := w.running(); len(now) > 0 {
		t.Errorf("%v run", now)
	}
}

// etcd is lost again soon after it was restored. The second history starts from the same
// backup, and the agent has seen both histories. The second history does not use terms,
// epochs and incarnations of the first one again. A worker that was stopped in the first
// history therefore starts in the second history under the same name.
func TestFaultTwoRestoresOfOneBackup(t *testing.T) {
	if !*faults {
		t.Skip("make faults")
	}
	w := start(t, fleet.Config{Etcd: 1, TTL: 2 * time.Second})
	w.startAgents(fleet.Agent{ID: "host-0", Slots: 1})
	w.awaitReady(1)
	backup := filepath.Join(w.dir, "backup.db")
	w.berth("backup", backup, "--etcd-endpoints", w.fleet.Etcd()[0])

	for range 2 {
		written := w.revision()
		w.loseEtcd()
		w.restore(backup)
		if w.restored <= written {
			t.Errorf("restored at revision %d, although revision %d was written", w.restored, written)
		}
		w.startServices()
		w.awaitReady(1)
		again := w.single("again", 1)
		if answer := w.upsert(again); answer.GetEpoch() <= w.restored {
			t.Errorf("epoch %d, but the history began at %d", answer.GetEpoch(), w.restored)
		}
		w.awaitWorkers("again", berthv1.Event_WORKER_RUNNING, 1)
		w.cancel(again)
		w.await(again, berthv1.Reservation_CANCELLED)
	}
	w.quiesce()
}

// ending returns the path of the file that makes the workers of a job end.
func (w *world) ending(job string) string { return filepath.Join(w.dir, "end-"+job) }

// single returns a batch whose workers run until the file of ending exists. If two workers
// with the same name run at the same time, they record that.
func (w *world) single(job string, n int) *berthv1.Reservation {
	name := filepath.Join(w.dir, "alone-$BERTH_JOB-$BERTH_WORKER_INDEX.$BERTH_WORKER_NUMBER")
	return shell(job, "s", n, fmt.Sprintf(`
		mkdir %[1]s || echo $BERTH_JOB/$BERTH_WORKER_INDEX.$BERTH_WORKER_NUMBER >> %[2]s
		trap 'sleep 1; rmdir %[1]s; exit 0' TERM
		until test -e %[3]s; do sleep 0.05; done
		rmdir %[1]s`, name, filepath.Join(w.dir, "twice"), w.ending(job)))
}

// running returns the running workers as job/index.number, with the epoch of each worker.
func (w *world) running() map[string]int64 {
	w.Helper()
	found := map[string]int64{}
	for pid, command := range processes("alone-") {
		env := environment(pid)
		if env["BERTH_JOB"] == "" || !strings.HasPrefix(command, "sh ") || !strings.Contains(command, w.dir) {
			continue
		}
		var epoch int64
		if _, err := fmt.Sscan(env["BERTH_EPOCH"], &epoch); err != nil {
			w.Fatal(err)
		}
		found[fmt.Sprintf("%s/%s.%s", env["BERTH_JOB"], env["BERTH_WORKER_INDEX"], env["BERTH_WORKER_NUMBER"])] = epoch
	}
	return found
}

func equal(a, b map[string]int64) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// berth runs a berth command, which must succeed, and returns its output.
func (w *world) berth(args ...string) string {
	w.Helper()
	out, ok := w.try(args...)
	if !ok {
		w.Fatalf("berth %v:\n%s", args, out)
	}
	return out
}

// try runs a berth command. It returns the output and reports whether the command
// succeeded.
func (w *world) try(args ...string) (string, bool) {
	out, err := exec.CommandContext(w.ctx, w.binary, args...).CombinedOutput()
	return string(out), err == nil
}

func (w *world) markReady() {
	w.Helper()
	if _, err := w.client.MarkReady(w.ctx); err != nil {
		w.Fatal(err)
	}
}

// loseEtcd stops the gateways and services and kills etcd. Agents and workers keep running.
func (w *world) loseEtcd() {
	w.Helper()
	all := w.fleet.Processes()
	for _, kind := range slices.Concat([]string{"gateway"}, fleet.Services) {
		for _, p := range all[kind] {
			if err := p.Stop(w.ctx); err != nil {
				w.Fatal(err)
			}
		}
	}
	for _, p := range all["etcd"] {
		p.Kill()
	}
}

// restore creates the data of every etcd member from a backup and starts the members.
func (w *world) restore(backup string, flags ...string) {
	w.Helper()
	for i := range w.fleet.Etcd() {
		data := w.fleet.MemberData(i)
		if err := os.RemoveAll(data); err != nil {
			w.Fatal(err)
		}
		w.berth(append([]string{"restore", "--snapshot", backup, "--data-dir", data,
			"--name", fmt.Sprintf("etcd-%d", i), "--initial-cluster", w.fleet.InitialCluster()}, flags...)...)
	}
	if err := w.fleet.StartMembers(w.ctx); err != nil {
		w.Fatal(err)
	}
	w.restored = w.revision()
}

// startServices starts all services and gateways.
func (w *world) startServices() {
	w.Helper()
	all := w.fleet.Processes()
	for _, kind := range slices.Concat(fleet.Services, []string{"gateway"}) {
		for _, p := range all[kind] {
			w.restart(p)
		}
	}
}

// checkMembersAgree checks that all etcd members have the same data.
func (w *world) checkMembersAgree() {
	w.Helper()
	var first string
	for i, endpoint := range w.fleet.Etcd() {
		answer, err := w.store.Client().HashKV(w.ctx, endpoint, w.restored)
		if err != nil {
			w.Fatal(err)
		}
		held := fmt.Sprintf("hash %d, compacted at %d", answer.Hash, answer.CompactRevision)
		if first == "" {
			first = held
		}
		if held != first {
			w.Errorf("etcd-%d has %s, etcd-0 has %s", i, held, first)
		}
	}
}
