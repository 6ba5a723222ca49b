package audit

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	recordv1 "berth.dev/api/berth/record/v1"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

var space = keyspace.New("test")

// world writes a history one revision at a time, in the same way as the services.
type world struct {
	t        testing.TB
	revision int64
	create   map[string]int64
	terms    map[string]int64
	history  []store.Change
}

// newWorld returns a world with a leader of each service and two executors of 4 slots.
func newWorld(t testing.TB) *world {
	w := &world{t: t, revision: 1, create: map[string]int64{}, terms: map[string]int64{}}
	for _, service := range []string{model.ServiceRegistry, model.ServiceExecutorState, model.ServiceAssigner} {
		w.lead(service)
	}
	w.put(host(1, 4))
	w.put(host(2, 4))
	return w
}

// lead makes another replica the leader.
func (w *world) lead(service string) {
	if w.terms[service] != 0 {
		w.txn("", deletion{model.LeaderRef(service)})
	}
	w.terms[service] = w.txn("", &model.Leader{Service: service, Replica: fmt.Sprint("r", w.revision)})
}

// deletion is the deletion of a record.
type deletion struct{ ref model.Ref }

func (d deletion) Ref() model.Ref { return d.ref }

// put writes records in a transaction of the service that owns them.
func (w *world) put(records ...model.Record) int64 {
	return w.txn(keyspace.Writer(records[0].Ref().Kind), records...)
}

// txn writes one revision. It includes the chain of the service unless the name of the
// service is empty.
func (w *world) txn(service string, records ...model.Record) int64 {
	w.t.Helper()
	w.revision++
	for _, record := range records {
		key := space.Key(record.Ref())
		if _, deleted := record.(deletion); deleted {
			delete(w.create, key)
			w.history = append(w.history, store.Change{KV: store.KV{Key: key, Mod: w.revision}, Deleted: true})
			continue
		}
		value, err := wire.Encode(record)
		if err != nil {
			w.t.Fatal(err)
		}
		w.raw(key, value)
	}
	if service != "" {
		value, err := proto.Marshal(&recordv1.Chain{Batch: fmt.Sprintf("%d-%d", w.terms[service], w.revision)})
		if err != nil {
			w.t.Fatal(err)
		}
		w.raw(space.Key(model.Ref{Kind: model.KindChain, ID: service}), value)
	}
	return w.revision
}

func (w *world) raw(key string, value []byte) {
	if w.create[key] == 0 {
		w.create[key] = w.revision
	}
	w.history = append(w.history, store.Change{KV: store.KV{Key: key, Value: value, Create: w.create[key],
		Mod: w.revision}})
}

// audit audits the whole history as one batch.
func (w *world) audit() *Auditor {
	a := New(space)
	a.Apply(store.Batch{Revision: w.revision, Changes: w.history})
	return a
}

// snapshot returns the final state of the store.
func (w *world) snapshot() store.Batch {
	last := map[string]store.Change{}
	for _, c := range w.history {
		last[c.Key] = c
	}
	b := store.Batch{Reset: true, Revision: w.revision}
	for _, c := range last {
		if !c.Deleted {
			b.Changes = append(b.Changes, c)
		}
	}
	return b
}

func host(ordinal uint32, slots int64) *model.Executor {
	return &model.Executor{
		ID: fmt.Sprint("host", ordinal), Ordinal: ordinal,
		Resources: resource.Vector{"cpu": 1000 * slots, "slots": slots},
	}
}

// reservation returns a reservation of n workers with 1000 cpu and a slot each.
func reservation(uid string, place int64, n int32) *model.Reservation {
	return &model.Reservation{
		Key: model.Key{Job: "job", Stage: "stage", Name: uid}, UID: uid, Place: place, State: model.Queued,
		Spec: model.Spec{Constraints: constraint.Constraints{Resources: resource.Vector{"cpu": 1000, "slots": 1}},
			MaxAttempts: model.DefaultAttempts},
		Workers: model.WorkerSet{{First: int32(place) * 10, Last: int32(place)*10 + n - 1, Number: 1}},
	}
}

func in(r *model.Reservation, state model.State) *model.Reservation {
	next := *r
	next.State = state
	return &next
}

func ordered(r *model.Reservation, order int64) *model.Reservation {
	next := *r
	next.Spec.Priority.Order = &order
	return &next
}

// lease returns a lease that places the workers of a reservation on the executors in
// turn. epoch is the epoch of the reservation.
func lease(r *model.Reservation, epoch, cut int64, on ...uint32) *model.LeaseChunk {
	workers := r.Workers.List()
	l := &model.LeaseChunk{
		UID: r.UID, Chunks: 1, Total: int32(len(workers)), Key: r.Key, Epoch: epoch,
		Each: r.Spec.Constraints.Resources, Role: r.Spec.Constraints.Role, Cut: cut,
	}
	for i, workerID := range workers {
		l.Workers = append(l.Workers, model.Placement{Worker: workerID, Ordinal: on[i%len(on)]})
	}
	return l
}

// without returns a lease without its first n workers.
func without(l *model.LeaseChunk, n int) *model.LeaseChunk {
	next := *l
	next.Workers = slices.Clone(l.Workers[n:])
	return &next
}

func header(l *model.LeaseChunk) *model.TaskHeader {
	return &model.TaskHeader{
		UID: l.UID, Key: l.Key, Epoch: l.Epoch, Chunks: 1, Workers: l.Total, Complete: true, Lease: 1,
	}
}

// task returns a task with every worker of a lease in one state.
func task(l *model.LeaseChunk, state model.WorkerState) *model.TaskChunk {
	c := &model.TaskChunk{UID: l.UID}
	for _, p := range l.Workers {
		c.Workers = append(c.Workers, model.TaskWorker{ID: p.Worker, Ordinal: p.Ordinal, State: state})
	}
	return c
}

// run writes the history of a reservation from the upsert until its workers run.
func (w *world) run(r *model.Reservation, on ...uint32) *model.LeaseChunk {
	return w.start(r, w.put(r), on...)
}

// start writes the history of a reservation that was upserted at an epoch until its workers
// run.
func (w *world) start(r *model.Reservation, epoch int64, on ...uint32) *model.LeaseChunk {
	l := lease(r, epoch, w.revision, on...)
	w.put(l)
	w.put(header(l), task(l, model.WorkerAssigned))
	w.put(in(r, model.Active))
	w.put(task(l, model.WorkerStarting))
	w.put(task(l, model.WorkerRunning))
	return l
}

// stop writes the end of the workers of a reservation and deletes its records.
func (w *world) stop(r *model.Reservation, l *model.LeaseChunk) {
	w.put(in(r, model.Cancelling))
	w.put(task(l, model.WorkerEvict))
	w.put(task(l, model.WorkerEvicted))
	w.put(without(l, 1))
	w.put(deletion{l.Ref()})
	w.put(in(r, model.Cancelled))
	w.put(deletion{task(l, 0).Ref()}, deletion{header(l).Ref()})
	w.put(deletion{r.Ref()})
}
