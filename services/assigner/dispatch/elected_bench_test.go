package dispatch

import (
	"fmt"
	"testing"

	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// BenchmarkElection measures the failover to a standby with 10,000 executors, each with a
// running worker, and 100,000 queued reservations.
func BenchmarkElection(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		s := standby(10_000, 100_000)
		b.StartTimer()
		for _, action := range s.core.Step(s.now, model.Elected{Term: s.revision + 1, Revision: s.revision}) {
			b.Fatalf("%T", action)
		}
	}
}

// standby returns a follower whose executors run one worker each, and which has queued
// reservations.
func standby(executors, waiting int) *benchRig {
	s := newFollower(executors)
	workers := model.WorkerSet{{Last: 0, Number: 1}}
	for i := range executors {
		uid := fmt.Sprint("a-", i)
		key := model.Key{Job: "a", Stage: fmt.Sprint(i), Name: model.MainName}
		at := s.apply(&model.Reservation{Key: key, UID: uid, Workers: workers, State: model.Active, CreatedAt: s.now,
			UpdatedAt: s.now})
		lease := s.apply(&model.LeaseChunk{
			UID: uid, Chunks: 1, Total: 1, Each: resource.Vector{"slots": 1},
			Workers: []model.Placement{{Worker: model.WorkerID{Number: 1}, Ordinal: uint32(i + 1)}},
		})
		s.apply(&model.TaskHeader{UID: uid, Key: key, Epoch: at, Lease: lease, Complete: true, Chunks: 1, Workers: 1})
		s.apply(&model.TaskChunk{UID: uid, Workers: []model.TaskWorker{{ID: model.WorkerID{Number: 1}, Ordinal: uint32(i + 1),
			State: model.WorkerRunning}}})
	}
	for i := range waiting {
		s.apply(&model.Reservation{
			Key: model.Key{Job: fmt.Sprint("j", i), Stage: "s", Name: model.MainName}, UID: fmt.Sprint("1-", i),
			Workers: workers,
			State:   model.Queued, Place: int64(i + 1), CreatedAt: s.now, UpdatedAt: s.now,
		})
	}
	s.core.Step(s.now, model.Progress{Revision: s.revision})
	return s
}
