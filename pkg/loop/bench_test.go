package loop_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// benchCore writes whatever a request contains. It serves to measure the loop around a
// core.
type benchCore struct{ owed []uint64 }

func (c *benchCore) NextDeadline() time.Time { return time.Time{} }

func (c *benchCore) Step(_ time.Time, event model.Event) (out []model.Action) {
	switch e := event.(type) {
	case model.Input:
		c.owed = append(c.owed, e.Token)
		return []model.Action{e.Request.(model.Effect)}
	case model.Committed:
		for _, token := range c.owed[:e.Effects] {
			out = append(out, model.Reply{Token: token})
		}
		c.owed = append(c.owed[:0], c.owed[e.Effects:]...)
	}
	return out
}

// benchStore is a store in which every transaction succeeds at once.
type benchStore struct {
	store.Store
	revision int64
}

func (s *benchStore) Txn(context.Context, store.Txn) (store.TxnResult, error) {
	s.revision++
	return store.TxnResult{Succeeded: true, Revision: s.revision}, nil
}

// granted returns a lease of 8 workers, as executor-state would grant it.
func granted(i int) *model.LeaseChunk {
	l := &model.LeaseChunk{
		UID: fmt.Sprintf("u-%d", i), Key: model.Key{Job: fmt.Sprintf("job-%d", i), Stage: "map", Name: model.MainName},
		Chunks: 1, Total: 8, Epoch: 7, GrantedAt: time.Unix(1, 0),
	}
	for n := range 8 {
		l.Workers = append(l.Workers, model.Placement{Worker: model.WorkerID{Index: int32(n), Number: 1}, Ordinal: uint32(n)})
	}
	return l
}

func newScribe(b *testing.B) *loop.Driver[*benchCore] {
	b.Helper()
	b.ReportAllocs()
	driver := loop.NewDriver(&benchCore{}, service, space, loop.DefaultEventLimits(), time.Now)
	if err := driver.Follow(store.Batch{Reset: true, Revision: 1}); err != nil {
		b.Fatal(err)
	}
	return driver
}

// BenchmarkRoundOf64 runs a round of 64 requests. Each request has a record, an event and
// an answer. The round takes two transactions.
func BenchmarkRoundOf64(b *testing.B) {
	driver := newScribe(b)
	benchStore := &benchStore{revision: 1}
	log := store.NewCommitter(benchStore, store.CommitterConfig{
		LeaderKey: space.Key(model.LeaderRef(service)), Term: 1,
		ChainKey: space.Key(model.Ref{Kind: model.KindChain, ID: service}),
	})
	if _, err := driver.Lead(b.Context(), loop.Leading{
		Term: 1, Log: log, Grant: func(context.Context, time.Duration) (int64, error) { return 1, nil },
	}); err != nil {
		b.Fatal(err)
	}
	requests := make([]model.Event, 64)
	for i := range requests {
		l := granted(i)
		requests[i] = model.Input{Token: uint64(i + 1), Request: model.Effect{
			Puts:   []model.Record{l},
			Events: []model.JobEvent{{Kind: model.EventReservationLeased, Time: l.GrantedAt, Key: l.Key, UID: l.UID, Count: 8}},
		}}
	}
	for b.Loop() {
		actions, err := driver.Round(b.Context(), requests)
		if err != nil || len(actions) != len(requests) {
			b.Fatalf("%d answers, %v", len(actions), err)
		}
		if err := driver.Follow(store.Batch{Revision: benchStore.revision}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEventsOf64 receives a commit of another service with 64 leases and 64 events.
func BenchmarkEventsOf64(b *testing.B) {
	driver := newScribe(b)
	batch := store.Batch{Revision: 2}
	for i := range 64 {
		l := granted(i)
		value, err := wire.Encode(l)
		if err != nil {
			b.Fatal(err)
		}
		batch.Changes = append(batch.Changes, store.Change{KV: store.KV{Key: space.Key(l.Ref()), Value: value, Create: 2,
			Mod: 2}})
		batch.Skipped = append(batch.Skipped, store.Change{KV: store.KV{
			Key: fmt.Sprintf("%sjob-%d/%s/00000001-%012x-80", space.Events(), i, model.ServiceRegistry, i), Create: 2, Mod: 2,
		}})
	}
	for b.Loop() {
		if events, err := driver.Events(batch); err != nil || len(events) != 65 {
			b.Fatalf("%d events, %v", len(events), err)
		}
	}
}
