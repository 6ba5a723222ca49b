package scenario

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/store"
)

// followed is the number of jobs whose events a reader follows.
const followed = 3

// While processes are killed, a reader that resumes sees each event of its job exactly once
// and in order. The history of etcd has the same events.
func TestEventsExactlyOnce(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{Gateways: 2, TTL: 2 * time.Second})
	history := w.store.Watch(space.Events(), 1)
	defer history.Close()
	w.startSim("sim", 20, 4)
	w.awaitReady(20)

	ctx, stop := context.WithCancel(w.ctx)
	defer stop()
	var mu sync.Mutex
	seen := map[string][]string{}
	var readers, callers sync.WaitGroup
	for i := range followed {
		readers.Go(func() {
			for event, err := range w.client.Events(ctx, job(i), "") {
				if err != nil {
					t.Errorf("events of %s: %v", job(i), err)
					return
				}
				mu.Lock()
				seen[job(i)] = append(seen[job(i)], event.GetCursor()+" "+event.GetKind().String()+" "+event.GetUid())
				mu.Unlock()
			}
		})
	}
	calls, enough := context.WithCancel(ctx)
	for i := range followed {
		callers.Go(func() {
			for n := 0; calls.Err() == nil; n++ {
				w.upsert(&berthv1.Reservation{Job: job(i), Stage: fmt.Sprintf("s%d", n), Count: 5,
					Task: &berthv1.Task{Payload: []byte(`{"runFor": "200ms"}`)}})
				select {
				case <-calls.Done():
				case <-time.After(100 * time.Millisecond): // the interval between batches
				}
			}
		})
	}
	// awaitEvents waits until every reader has received more events, so that the next kill hits the
	// process that serves the reader.
	awaitEvents := func() {
		before := map[string]int{}
		mu.Lock()
		for i := range followed {
			before[job(i)] = len(seen[job(i)])
		}
		mu.Unlock()
		until(t, func() string {
			mu.Lock()
			defer mu.Unlock()
			for i := range followed {
				if len(seen[job(i)]) < before[job(i)]+10 {
					return fmt.Sprintf("%s got %d events since the last kill", job(i), len(seen[job(i)])-before[job(i)])
				}
			}
			return ""
		})
	}
	awaitEvents()
	for _, service := range fleet.Services {
		leader, _ := w.leader(service)
		leader.Kill()
		w.restart(leader)
		awaitEvents()
	}
	for i := range 2 {
		w.fleet.GatewayProcess(i).Kill()
		w.restart(w.fleet.GatewayProcess(i))
		awaitEvents()
	}
	enough()
	callers.Wait()
	w.quiesce()

	told := map[string][]string{}
	until(t, func() string {
		page, err := w.store.Page(w.ctx, store.PageRequest{From: "a", To: "b", Limit: 1})
		if err != nil {
			return err.Error()
		}
		more := w.eventsUpTo(history, page.Revision)
		for of, events := range more {
			told[of] = append(told[of], events...)
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range followed {
			if len(seen[job(i)]) != len(told[job(i)]) {
				return fmt.Sprintf("%[3]s: received %[1]d events, want %[2]d", len(seen[job(i)]), len(told[job(i)]), job(i))
			}
		}
		return ""
	})
	stop()
	readers.Wait()
	for i := range followed {
		if len(told[job(i)]) < 60 || !slices.Equal(seen[job(i)], told[job(i)]) {
			t.Errorf("%s received\n%q, etcd's history has\n%q", job(i), seen[job(i)], told[job(i)])
		}
		t.Logf("%s: %d events", job(i), len(told[job(i)]))
	}
}

// eventsUpTo reads the events of a watch up to a revision. It returns the events of each
// job in order.
func (w *world) eventsUpTo(watch store.Watch, revision int64) map[string][]string {
	w.Helper()
	type placed struct {
		revision, number int64
		text             string
	}
	all := map[string][]placed{}
	for reached := int64(0); reached < revision; {
		watch.RequestProgress()
		ctx, cancel := context.WithTimeout(w.ctx, 100*time.Millisecond)
		batch, err := watch.Next(ctx)
		cancel()
		if err != nil {
			if w.ctx.Err() != nil {
				w.Fatal(err)
			}
			continue
		}
		reached = batch.Revision
		for _, c := range batch.Changes {
			key, ok := space.ParseEvent(c.Key)
			if c.Deleted || !ok || key.Segment == 0 {
				continue
			}
			e := &berthv1.Event{}
			if err := proto.Unmarshal(c.Value, e); err != nil {
				w.Fatal(err)
			}
			text := fmt.Sprintf("%d-%d %v %s", c.Mod, key.Number, e.GetKind(), e.GetUid())
			all[key.Job] = append(all[key.Job], placed{c.Mod, key.Number, text})
		}
	}
	told := map[string][]string{}
	for of, events := range all {
		slices.SortFunc(events, func(a, b placed) int {
			if a.revision != b.revision {
				return int(a.revision - b.revision)
			}
			return int(a.number - b.number)
		})
		for _, e := range events {
			told[of] = append(told[of], e.text)
		}
	}
	return told
}
