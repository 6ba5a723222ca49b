package handout

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/model"
)

// batch is what a hand-out of a batch begins with: its reservation and its lease,
// as the view tells of them.
type batch struct {
	reservation model.Changed
	lease       model.Changed
	create      Create
}

// bench is a core that leads over a fleet of a hundred executors, and the
// batches it is to hand out. It has none of the checks of a world, whose cost
// would be measured.
type bench struct {
	core     *Core
	now      time.Time
	revision int64
	batches  []batch
}

func newBench(batches, workers int) *bench {
	m := &bench{core: New(Config{}), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), revision: 1}
	m.write(&model.Ready{Since: m.now, By: "auto"})
	registry := m.write(leaderRecord{model.ServiceRegistry}).Create
	for n := range uint32(100) {
		id := fmt.Sprintf("e%d", n)
		m.write(&model.Executor{ID: id, Address: id + ":7200", Ordinal: n, Incarnation: 1})
		m.write(&model.Live{ID: id, Incarnation: 1})
	}
	m.core.Step(m.now, model.Progress{Revision: m.revision})
	m.revision++
	m.core.Step(m.now, model.Elected{Term: m.revision, Revision: m.revision})
	for i := range batches {
		r := &model.Reservation{
			Key: model.Key{Job: fmt.Sprintf("j%d", i), Stage: "map", Name: model.MainName}, UID: fmt.Sprintf("u%d", i),
			Spec: model.Spec{MaxAttempts: 3, Task: model.Task{Command: "/bin/worker"}}, State: model.Queued,
		}
		l := &model.LeaseChunk{UID: r.UID, Key: r.Key, Chunks: 1, Total: int32(workers), Epoch: 7, GrantedAt: m.now}
		for n := range workers {
			seat := model.Seat{Index: int32(n), Number: 1}
			l.Workers = append(l.Workers, model.Placement{Seat: seat, Ordinal: uint32((i*workers + n) / 150 % 100)})
		}
		b := batch{reservation: m.changed(r), lease: m.changed(l)}
		b.create = Create{Term: registry, Tasks: []CreateTask{{Key: r.Key, UID: r.UID, Mod: b.reservation.Mod, Lease: b.lease.Create}}}
		m.batches = append(m.batches, b)
	}
	return m
}

func (m *bench) changed(record model.Record) model.Changed {
	m.revision++
	return model.Changed{Ref: record.Ref(), Record: record, Create: m.revision, Mod: m.revision}
}

func (m *bench) write(record model.Record) model.Changed {
	change := m.changed(record)
	m.core.Step(m.now, change)
	return change
}

// step gives an event, makes durable what comes of it, and answers the orders
// that go out then.
func (m *bench) step(event model.Event) (orders []Submit) {
	effects := 0
	for actions := m.core.Step(m.now, event); len(actions) > 0; {
		for _, action := range actions {
			switch a := action.(type) {
			case model.Effect:
				effects++
			case Submit:
				orders = append(orders, a)
			}
		}
		actions = nil
		if effects > 0 {
			m.revision++
			actions = m.core.Step(m.now, model.Committed{Effects: effects, Revision: m.revision})
			effects = 0
		}
	}
	return orders
}

// handOut takes a batch from its lease to when all its workers run.
func (m *bench) handOut(tb testing.TB, b batch) {
	m.step(b.reservation)
	m.step(b.lease)
	m.revision++
	m.step(model.Progress{Revision: m.revision})
	orders := m.step(model.Input{Token: 1, Request: b.create})
	for len(orders) > 0 { // an executor is sent some at a time
		done := make(SubmitsDone, len(orders))
		for i, o := range orders {
			done[i] = SubmitDone{
				Executor: o.Executor, UID: o.UID, Seat: o.Worker.Seat, Attempt: o.Attempt,
				Outcome: Accepted{State: model.WorkerRunning, Incarnation: 1, Sequence: m.revision},
			}
		}
		orders = m.step(done)
	}
	for _, chunk := range m.core.tasks[b.create.Tasks[0].UID].chunks {
		for _, w := range chunk.Workers {
			if w.State != model.WorkerRunning {
				tb.Fatalf("%s is %s", w.Seat, w.State)
			}
		}
	}
}

// benchmarkHandOut hands out batch after batch, with at most a thousand in
// memory.
func benchmarkHandOut(b *testing.B, workers int) {
	b.ReportAllocs()
	var m *bench
	i := 1000
	for b.Loop() {
		if i == 1000 {
			b.StopTimer()
			m, i = newBench(1000, workers), 0
			b.StartTimer()
		}
		m.handOut(b, m.batches[i])
		i++
	}
}

func BenchmarkHandOutOf8(b *testing.B)   { benchmarkHandOut(b, 8) }
func BenchmarkHandOutOf256(b *testing.B) { benchmarkHandOut(b, 256) }
