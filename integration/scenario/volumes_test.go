package scenario

import (
	"fmt"
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
