package scenario

import (
	"fmt"
	"slices"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// If a record cannot be decoded, it is quarantined. Its workers keep running, and
// everything else continues. Once the record can be decoded again, its reservation
// continues as before.
func TestUnreadableRecordIsQuarantined(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{})
	w.startSim("sim", 4, 4)
	w.awaitReady(4)
	damaged := w.upsert(&berthv1.Reservation{Job: "damaged", Stage: "s", Count: 2})
	w.awaitWorkers("damaged", berthv1.Event_WORKER_RUNNING, 2)
	w.await(damaged, berthv1.Reservation_ACTIVE)
	w.awaitRecorded("damaged")

	key := space.Key(model.Ref{
		Kind: model.KindReservation, ID: damaged.GetUid(),
		Key: model.Key{Job: "damaged", Stage: "s", Name: "main"},
	})
	proper, found, err := w.store.Get(w.ctx, key)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	w.tamper(key, []byte("\xff"))
	w.awaitPoison(key[len(space.Prefix()):], model.ServiceRegistry)

	other := w.upsert(&berthv1.Reservation{Job: "other", Stage: "s", Count: 3})
	w.awaitWorkers("other", berthv1.Event_WORKER_RUNNING, 3)
	w.cancel(other)
	w.await(other, berthv1.Reservation_CANCELLED)

	_, err = w.client.Cancel(w.ctx, client.KeyOf(damaged))
	refusal(t, err, fault.Internal, fault.ReasonPoison, "")
	_, err = w.client.Reserve(w.ctx, &berthv1.Reservation{Job: "damaged", Stage: "s", Count: 3})
	refusal(t, err, fault.Internal, fault.ReasonPoison, "")
	running := 0
	for a, err := range w.client.Assignments(w.ctx, &berthv1.ListAssignmentsRequest{Job: "damaged"}) {
		if err != nil {
			t.Fatal(err)
		}
		if a.GetState() == berthv1.Assignment_RUNNING {
			running++
		}
	}
	if running != 2 {
		t.Errorf("%d of its workers are running, want 2", running)
	}

	w.tamper(key, proper.Value)
	w.awaitPoison(key[len(space.Prefix()):])
	w.cancel(damaged)
	w.await(damaged, berthv1.Reservation_CANCELLED)
	w.quiesce()
	w.nothingLeased()
}

// tamper writes a value that no service would write.
func (w *world) tamper(key string, value []byte) {
	w.Helper()
	res, err := w.store.Txn(w.ctx, store.Txn{Then: []store.Op{store.Put(key, value)}})
	if err != nil {
		w.Fatal(err)
	}
	w.tampered[res.Revision] = true
}

// awaitPoison waits until all services answer, and exactly the given services report the
// object.
func (w *world) awaitPoison(object string, services ...string) {
	w.Helper()
	until(w.T, func() string {
		answer, err := w.client.Findings(w.ctx)
		if err != nil {
			return err.Error()
		}
		var told []string
		for _, f := range answer.GetFindings() {
			switch {
			case f.GetKind() == "POISON" && f.GetObject() == object:
				told = append(told, f.GetService())
			case f.GetKind() == "SERVICE_UNAVAILABLE":
				return f.String()
			}
		}
		if slices.Sort(told); !slices.Equal(told, services) {
			return fmt.Sprintf("findings %v of kind %s, want %v", told, object, services)
		}
		return ""
	})
}
