package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
)

// Acceptance check 8 of volumes, on simulated executors: a reservation with many volumes is
// granted in one transaction. While a tenth of the workers crash again and again, each leader
// is killed. No volume moves or is lost.
func TestVolumes(t *testing.T) {
	t.Parallel()
	hosts, slots := 10, 10
	if *acceptance {
		hosts = 100
	}
	w := start(t, fleet.Config{LogLevel: "warn"})
	w.startSim("host", hosts, slots)
	w.awaitReady(hosts)
	crashes := int32(hosts * slots / 10)
	steady := &berthv1.Reservation{Job: "db", Stage: "steady", Count: int32(hosts*slots) - crashes,
		Volume: &berthv1.VolumeRequest{Resource: "slots"}}
	began := time.Now()
	granted := w.upsert(steady)
	w.awaitEvents("db", func(e *berthv1.Event) bool { return e.GetKind() == berthv1.Event_RESERVATION_LEASED })
	if took := time.Since(began); *acceptance && took > time.Second {
		t.Errorf("the grant took %v", took)
	}
	w.awaitRunning(steady, steady.GetCount())
	chunks := (int(steady.GetCount()) + model.VolumeChunkSize - 1) / model.VolumeChunkSize
	// The lease, the volumes, the chain and the event.
	w.leasedAtOnce(granted.GetUid(), int(steady.GetCount()), 1+chunks+2)

	w.upsert(&berthv1.Reservation{Job: "db", Stage: "crashing", Count: crashes, MaxRestarts: new(int32(100)),
		Volume: &berthv1.VolumeRequest{Resource: "slots"}, Restart: new("ON_FAILURE"),
		Task: &berthv1.Task{Payload: []byte(`{"runFor": "200ms", "exitCode": 1}`)}})
	requeued := map[int32]int{}
	requeue := func(times int) {
		w.awaitEvents("db", func(e *berthv1.Event) bool {
			for _, worker := range e.GetWorkers() {
				if e.GetKind() == berthv1.Event_WORKER_REQUEUED {
					requeued[worker.GetIndex()] = max(requeued[worker.GetIndex()], int(worker.GetNumber()))
				}
			}
			for index := range crashes {
				if requeued[index] < times {
					return false
				}
			}
			return true
		})
	}
	requeue(1)
	homes := w.homes("db", hosts*slots)
	for _, service := range model.Services {
		leader, term := w.leader(service)
		leader.Kill()
		w.nextLeader(service, leader, term)
		w.restart(leader)
	}
	requeue(3)
	for index, home := range w.homes("db", hosts*slots) {
		if homes[index] != home {
			t.Errorf("the volume of %s was %s, and is %s", index, homes[index], home)
		}
	}
	if _, err := w.client.CancelJob(w.ctx, "db"); err != nil {
		t.Fatal(err)
	}
	w.deleteVolumes("db")
	w.nothingLeased()
	w.quiesce()
}

// deleteVolumes deletes the volumes of a job, and waits until none is left.
func (w *world) deleteVolumes(job string) {
	w.Helper()
	until(w.T, func() string {
		request := &berthv1.DeleteVolumesRequest{Job: job}
		for v, err := range w.client.Volumes(w.ctx, &berthv1.ListVolumesRequest{Job: job, PageSize: 1000}) {
			if err != nil {
				return err.Error()
			}
			request.Ids = append(request.Ids, v.GetId())
		}
		if len(request.Ids) == 0 {
			return ""
		}
		if _, err := w.client.DeleteVolumes(w.ctx, request); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%d volumes are left", len(request.GetIds()))
	})
}

// homes returns the ID and the executor of the volume of each worker index of a job, once all
// n volumes are READY.
func (w *world) homes(job string, n int) (homes map[string]string) {
	w.Helper()
	until(w.T, func() string {
		homes = map[string]string{}
		for v, err := range w.client.Volumes(w.ctx, &berthv1.ListVolumesRequest{Job: job, PageSize: 1000}) {
			if err != nil {
				return err.Error()
			}
			if v.GetState() == berthv1.Volume_READY {
				homes[fmt.Sprintf("%s/%d", v.GetStage(), v.GetIndex())] = v.GetId() + " on " + v.GetExecutor()
			}
		}
		if len(homes) != n {
			return fmt.Sprintf("%d of %d volumes are READY", len(homes), n)
		}
		return ""
	})
	return homes
}

// etcd is lost and restored from an older backup. A volume that was made since is unknown,
// one that was destroyed since is LOST, and no directory is removed.
func TestFaultRestoreWithVolumes(t *testing.T) {
	if !*faults {
		t.Skip("make faults")
	}
	w := start(t, fleet.Config{Etcd: 1, TTL: 2 * time.Second})
	w.startAgents(fleet.Agent{ID: "host-0", Slots: 4})
	w.awaitReady(1)
	request := func(job string) string {
		w.upsert(&berthv1.Reservation{Job: job, Stage: "s", Count: 1, Volume: &berthv1.VolumeRequest{Resource: "slots"},
			Task: &berthv1.Task{Command: "sleep", Args: []string{"1000"}}})
		id, _, _ := strings.Cut(w.homes(job, 1)["s/0"], " ")
		return id
	}
	kept, destroyed := request("kept"), request("destroyed")
	backup := filepath.Join(w.dir, "backup.db")
	w.berth("backup", backup, "--etcd-endpoints", w.fleet.Etcd()[0])
	later := request("later")
	if _, err := w.client.CancelJob(w.ctx, "destroyed"); err != nil {
		t.Fatal(err)
	}
	w.deleteVolumes("destroyed")

	w.loseEtcd()
	w.restore(backup)
	w.startServices()
	findings := map[string]string{"VOLUME_LOST": destroyed, "VOLUME_UNKNOWN": later}
	until(t, func() string {
		found, err := w.client.Findings(w.ctx)
		if err != nil {
			return err.Error()
		}
		for kind, id := range findings {
			if !slices.ContainsFunc(found.GetFindings(), func(f *berthv1.Finding) bool {
				return f.GetKind() == kind && strings.Contains(f.GetMessage(), id)
			}) {
				return fmt.Sprintf("%s is not the finding %s: %v", id, kind, found)
			}
		}
		return ""
	})
	if home := w.homes("kept", 1)["s/0"]; home != kept+" on host-0" {
		t.Errorf("the volume that was kept is %s", home)
	}
	for _, id := range []string{kept, later} {
		if _, err := os.Stat(filepath.Join(w.dir, "host-0", "volumes", id)); err != nil {
			t.Error(err)
		}
	}
}
