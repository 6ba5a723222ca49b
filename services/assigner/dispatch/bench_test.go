package dispatch

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/model"
)

// benchRig drives a core without the checks of world, which would dominate the measurement.
type benchRig struct {
	core     *Core
	now      time.Time
	revision int64
	registry int64
	batches  int
}

// newStand returns a leader with the given number of executors.
func newStand(executors int) *benchRig {
	s := newFollower(executors)
	s.revision++
	s.core.Step(s.now, model.Elected{Term: s.revision, Revision: s.revision})
	s.step(model.Progress{Revision: s.revision})
	return s
}

// newFollower returns a standby with the given number of executors.
func newFollower(executors int) *benchRig {
	s := &benchRig{core: New(Config{}), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	s.apply(&model.Ready{Since: s.now})
	for i := range executors {
		id := fmt.Sprintf("e%d", i+1)
		s.apply(&model.Executor{ID: id, Address: id + ":7200", Ordinal: uint32(i + 1), Incarnation: 1})
		s.apply(&model.Live{ID: id, Incarnation: 1})
	}
	s.registry = s.apply(leaderRecord{model.ServiceRegistry})
	return s
}

// apply sends a record to the core and returns the record's revision.
func (s *benchRig) apply(record model.Record) int64 {
	s.revision++
	s.core.Step(s.now, model.Changed{Ref: record.Ref(), Record: record, Create: s.revision, Mod: s.revision})
	return s.revision
}

// step sends an event to the core, commits the effects, and returns the submits.
func (s *benchRig) step(event model.Event) (submits []Submit) {
	effects := 0
	for _, action := range s.core.Step(s.now, event) {
		switch a := action.(type) {
		case model.Effect:
			effects++
		case Submit:
			submits = append(submits, a)
		}
	}
	if effects > 0 {
		s.revision++
		s.core.Step(s.now, model.Committed{Effects: effects, Revision: s.revision})
	}
	return submits
}

// dispatch simulates a batch from its lease to the deletion of its task.
func (s *benchRig) dispatch(b *testing.B, workers, executors int) {
	s.batches++
	uid := fmt.Sprint("u", s.batches)
	r := &model.Reservation{Key: key(uid), UID: uid, State: model.Queued, Spec: model.Spec{MaxAttempts: 3}}
	l := &model.LeaseChunk{UID: uid, Key: key(uid), Chunks: 1, Total: int32(workers), Epoch: s.revision, GrantedAt: s.now}
	for i := range workers {
		l.Workers = append(l.Workers, model.Placement{Worker: model.WorkerID{Index: int32(i), Number: 1},
			Ordinal: uint32(i%executors + 1)})
	}
	task := model.DispatchTask{Key: r.Key, UID: uid, Mod: s.apply(r), Lease: s.apply(l)}
	s.step(model.Progress{Revision: s.revision})
	submits := s.step(model.Input{Token: uint64(s.batches),
		Request: model.Dispatch{Term: s.registry, Tasks: []model.DispatchTask{task}}})
	submits = append(submits, s.step(model.Progress{Revision: s.revision})...)
	if len(submits) != workers {
		b.Fatalf("%d of %d workers are submitted", len(submits), workers)
	}
	done := make(SubmitsDone, len(submits))
	for i, o := range submits {
		done[i] = SubmitDone{
			Executor: o.Executor, UID: uid, WorkerID: o.Worker.ID, Attempt: o.Attempt, Call: o.Call,
			Outcome: Accepted{Status: Status{State: model.WorkerCompleted}, Incarnation: 1, Sequence: int64(s.batches)},
		}
	}
	s.step(done)
	for _, ref := range []model.Ref{l.Ref(), r.Ref()} {
		s.revision++
		s.core.Step(s.now, model.Changed{Ref: ref, Mod: s.revision})
	}
	s.step(model.Progress{Revision: s.revision})
	if len(s.core.tasks) != 0 {
		b.Fatal("the task was not deleted")
	}
}

// BenchmarkStep measures a batch from its lease to its end. `make bench` compares its
// allocations with a baseline.
func BenchmarkStep(b *testing.B) {
	const executors = 1000
	for _, workers := range []int{1, 8, 100} {
		b.Run(fmt.Sprint("Dispatch", workers), func(b *testing.B) {
			s := newStand(executors)
			b.ReportAllocs()
			for b.Loop() {
				s.dispatch(b, workers, executors)
			}
		})
	}
}
