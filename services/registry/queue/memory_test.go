package queue

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
	"berth.dev/services/registry/scheduler"
)

// traffic sends events to a core as fast as possible. It commits the core's effects shortly
// afterwards, about a hundred in one transaction.
type traffic struct {
	core     *Core
	now      time.Time
	revision int64
	token    uint64
	effects  int      // not committed yet
	uids     []string // of the reservations that the current round upserted
}

func newTraffic() *traffic {
	d := &traffic{core: New(Config{}), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), revision: 100}
	d.step(model.Elected{Term: 10, Revision: d.revision})
	d.commit()
	return d
}

// step applies an event. The effects that result are committed by the next commit.
func (d *traffic) step(event model.Event) {
	for _, action := range d.core.Step(d.now, event) {
		switch a := action.(type) {
		case model.Effect:
			d.effects++
		case model.Reply:
			if done, ok := a.Value.(Upserted); ok {
				d.uids = append(d.uids, done.Reservation.UID)
			}
		}
	}
	if d.effects >= 128 {
		d.commit()
	}
}

func (d *traffic) commit() {
	for d.effects > 0 {
		d.revision++
		done := model.Committed{Effects: d.effects, Revision: d.revision}
		d.effects = 0
		d.step(done)
	}
}

func (d *traffic) ask(request any) {
	d.token++
	d.step(model.Input{Token: d.token, Request: request})
}

func (d *traffic) see(ref model.Ref, record model.Record) {
	d.revision++
	d.step(model.Changed{Ref: ref, Record: record, Create: d.revision, Mod: d.revision})
	d.step(model.Progress{Revision: d.revision})
}

// run starts and ends the workers of a version, and deletes its lease and its task.
func (d *traffic) run(uid string) {
	lease, task := &model.LeaseChunk{UID: uid}, &model.TaskHeader{UID: uid, Complete: true}
	d.see(lease.Ref(), lease)
	d.see(task.Ref(), task)
	d.see(task.Ref(), &model.TaskHeader{UID: uid, Complete: true, Ended: true})
	d.see(lease.Ref(), nil)
	d.see(task.Ref(), nil)
}

// forget advances the clock until the core has no work left that is due.
func (d *traffic) forget() {
	d.now = d.now.Add(model.KeepTerminal + time.Minute)
	for range 1_000_000 {
		d.step(nil)
		d.commit()
		if next := d.core.NextDeadline(); next.IsZero() || next.After(d.now) {
			return
		}
	}
}

// round creates and ends n reservations of many jobs, stages and groups. Some expire, some
// are flushed, some run, and some are cancelled alone or with their job.
func (d *traffic) round(round, n int) {
	d.uids = d.uids[:0]
	key := func(i int) model.Key {
		return model.Key{Job: fmt.Sprintf("job-%d-%d", round, i/8), Stage: stageNames[i%4], Name: stageNames[i%8]}
	}
	for i := range n {
		u := model.Upsert{Key: key(i), Count: 1, RequestID: "r"}
		u.Spec.Constraints.SKU = fmt.Sprintf("sku-%d-%d", round, i%500)
		if i%32 >= 24 {
			u.Spec.QueueTimeout = time.Minute
		}
		d.ask(u)
	}
	d.commit()
	for i, uid := range d.uids {
		switch job := key(i).Job; {
		case i%16 == 2:
			d.run(uid)
		case i%16 == 3:
			d.ask(request.Cancel{Key: key(i), RequestID: "c"})
		case i%16 == 7:
			d.ask(request.Flush{Job: job, RequestID: "f"})
		case i%32 == 15:
			d.ask(request.CancelJob{Job: job, RequestID: "k"})
		}
	}
	d.commit()
	d.now = d.now.Add(time.Minute)
	d.step(scheduler.CycleDone{Cycle: int64(d.core.Stats().Cycles)})
	d.forget()
}

var stageNames = []string{"a", "b", "c", "d", "e", "f", "g", "h"}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // the second collection frees what finalizers referenced
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A million reservations that came and ended leave nothing behind. No index has an entry,
// no queue has a metric, and the heap has its earlier size. Two cores each handle half of
// the reservations in parallel.
func TestMemoryReturnsToItsBase(t *testing.T) {
	rounds, n := 50, 10_000
	if testing.Short() {
		rounds = 3
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	cores := []*traffic{newTraffic(), newTraffic()}
	play := func(from, to int) {
		var all sync.WaitGroup
		for _, d := range cores {
			all.Go(func() {
				for round := from; round < to; round++ {
					d.round(round, n)
				}
			})
		}
		all.Wait()
	}
	play(0, 1)
	before := heapInUse()
	play(1, 1+rounds)
	after := heapInUse()

	for _, d := range cores {
		leavesNothing(t, d.core)
		if asked := d.core.Stats().Upserts[model.Created]; asked != uint64((rounds+1)*n) {
			t.Fatalf("%d were created, want %d", asked, (rounds+1)*n)
		}
	}
	events := cores[0].core.Stats().Events
	t.Logf("heap %d KiB before, %d KiB after; each %d completed, %d cancelled, %d expired", before>>10, after>>10,
		events[model.EventReservationCompleted], events[model.EventReservationCancelled],
		events[model.EventReservationExpired])
	if after > before+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}

func leavesNothing(t *testing.T, c *Core) {
	t.Helper()
	for index, left := range map[string]int{
		"versions": len(c.versions), "keys": c.keys.Len(), "byKey": len(c.byKey), "stages": len(c.stages),
		"stageKeys": c.stageKeys.Len(),
		"groups":    len(c.scheduler.Groups()), "leased": c.leased.Len(), "clocks": c.clocks.Len(),
		"unstable":  len(c.unstable),
		"ended":     c.ended.Len(),
		"unsettled": len(c.unsettled),
		"pending":   len(c.pending), "tentative": len(c.tentative), "accepted": len(c.accepted), "granted": len(c.granted),
		"storedOf": len(c.storedOf), "stored": int(c.stored.bytes) + c.stored.queued, "waiting": len(c.waiting),
		"jobs": len(c.jobs), "aliveJobs": c.aliveJobs.Len(),
		"freed": len(c.freed), "metrics": len(c.Stats().Groups),
	} {
		if left != 0 {
			t.Errorf("%s still has %d", index, left)
		}
	}
	for state, left := range c.Stats().States {
		if left != 0 {
			t.Errorf("%d records count as %s", left, model.State(state))
		}
	}
}
