package queue

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
	"berth.dev/services/registry/scheduler"
)

// waiting returns a world with n pending reservations in one group.
func waiting(b *testing.B, n int) *world {
	b.Helper()
	w := started()
	for i := range n {
		w.input(ask(fmt.Sprint("j", i), 1))
	}
	w.step(scheduler.CycleDone{Cycle: 1})
	return w
}

func BenchmarkUpsertBehind100000(b *testing.B) {
	w := waiting(b, 100_000)
	i := 0
	for b.Loop() {
		i++
		w.input(ask(fmt.Sprint("k", i), 1))
	}
}

func BenchmarkCancelAmong100000(b *testing.B) {
	w := waiting(b, 100_000)
	i := 0
	for b.Loop() {
		i++
		u := ask(fmt.Sprint("j", i%100_000), 1)
		w.input(request.Cancel{Key: u.Key})
		w.input(u)
	}
}

func BenchmarkCycleOver100000(b *testing.B) {
	w := waiting(b, 100_000)
	for b.Loop() {
		w.step(scheduler.CycleDone{Cycle: w.cycle.Number})
		w.now = w.now.Add(w.core.config.Scheduling.RetryEvery)
		if len(actionsOf[model.Cycle](w.step(nil))) == 0 {
			b.Fatal("no cycle")
		}
	}
}

func BenchmarkUpsertOf50000Workers(b *testing.B) {
	w := started()
	i := 0
	for b.Loop() {
		i++
		w.input(ask(fmt.Sprint("j", i), model.MaxWorkers))
	}
}

// waitingInGroups returns a world with n pending reservations, each in its own group.
func waitingInGroups(n int) *world {
	w := started()
	for i := range n {
		u := ask(fmt.Sprint("j", i), 1)
		u.Spec.Constraints.SKU = fmt.Sprint("sku", i)
		w.input(u)
	}
	w.step(scheduler.CycleDone{Cycle: 1})
	return w
}

func BenchmarkExplainAmong100000(b *testing.B) {
	w := waiting(b, 100_000)
	i := 0
	for b.Loop() {
		i++
		if _, ok := w.core.Standing(ask(fmt.Sprint("j", i%100_000), 1).Key); !ok {
			b.Fatal("not there")
		}
	}
}

// BenchmarkPageOfAQueueOf100000 reads a page of 100 reservations at the start and at the end of
// a queue.
func BenchmarkPageOfAQueueOf100000(b *testing.B) {
	w := waiting(b, 100_000)
	group := w.core.scheduler.Groups()[0].ID
	whole, _ := w.core.Queue(group, model.StateUnset, nil, 100_000)
	for _, at := range []int{0, 50_000, 99_800} {
		b.Run(fmt.Sprint("after ", at), func(b *testing.B) {
			for b.Loop() {
				if views, more := w.core.Queue(group, model.StateUnset, whole[at].Reservation, 100); len(views) != 100 || !more {
					b.Fatal(len(views), more)
				}
			}
		})
	}
}

func BenchmarkPageOf10000Queues(b *testing.B) {
	w := waitingInGroups(10_000)
	middle := w.core.scheduler.Groups()[5_000].ID
	for b.Loop() {
		if groups, _, err := w.core.Pending(middle, 100); len(groups) != 100 || err != nil {
			b.Fatal(len(groups), err)
		}
	}
}

func BenchmarkPendingOver100000InOneQueue(b *testing.B) {
	w := waiting(b, 100_000)
	for b.Loop() {
		if groups, err := w.allPending(); len(groups) != 1 || err != nil {
			b.Fatal(groups, err)
		}
	}
}

func BenchmarkPendingOver10000Queues(b *testing.B) {
	w := waitingInGroups(10_000)
	for b.Loop() {
		if groups, err := w.allPending(); len(groups) != 10_000 || err != nil {
			b.Fatal(len(groups), err)
		}
	}
}

func BenchmarkStatsOver10000Queues(b *testing.B) {
	w := waitingInGroups(10_000)
	for b.Loop() {
		if stats := w.core.Stats(); len(stats.Groups) != 10_000 {
			b.Fatal(len(stats.Groups))
		}
	}
}

// BenchmarkView reads a reservation of 50,000 workers while some of them are queued again. The
// cost depends on the number of versions, not of workers.
func BenchmarkView(b *testing.B) {
	const n = 50_000
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, requeues := range []int32{0, 1, 100} {
		c, revision := New(Config{}), int64(0)
		see := func(record model.Record) {
			revision++
			c.Step(now, model.Changed{Ref: record.Ref(), Record: record, Create: revision, Mod: revision})
		}
		requeued := model.WorkerSet{{First: 0, Last: requeues - 1, Number: 1}}[:min(requeues, 1)]
		see(&model.Reservation{Key: livesKey, UID: "a", State: model.Active, Requeued: requeued, RecordsRequeues: true,
			Workers: model.WorkerSet{{First: 0, Last: n - 1, Number: 1}}})
		see(&model.TaskHeader{UID: "a", Complete: true})
		for at := int32(0); at < n; at += 256 {
			chunk := &model.TaskChunk{UID: "a", Chunk: at / 256}
			for index := at; index < min(n, at+256); index++ {
				worker := model.TaskWorker{ID: model.WorkerID{Index: index, Number: 1}, State: model.WorkerRunning}
				if index < requeues {
					worker.State, worker.Since = model.WorkerFailed, model.InstantOf(now)
				}
				chunk.Workers = append(chunk.Workers, worker)
			}
			see(chunk)
		}
		for index := range requeues {
			see(&model.Reservation{Key: livesKey, UID: fmt.Sprint("b-", index), State: model.Queued, Parent: "a", First: "a",
				Origin: model.OriginRequeue, Round: 1, Workers: model.WorkerSet{{First: index, Last: index, Number: 2}}})
		}
		b.Run(fmt.Sprint(requeues), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if view, _ := c.Get(livesKey); view.Counts["RUNNING"] != n-requeues || view.Counts["QUEUED"] != requeues {
					b.Fatal(view.Counts)
				}
			}
		})
	}
}
