// Package looptest runs the core of a service in its loop until the test ends, for tests
// of the code around the core. The test supplies the store, usually one in memory.
package looptest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/leader"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// Space is the key space of the loops of this package.
var Space = keyspace.New("test")

// Start runs a loop until the test ends, and returns when the loop leads.
func Start[C model.Core](t testing.TB, s store.Store, service string, core func() C,
	perform func(*loop.Term, C, model.Action)) *loop.Loop[C] {
	t.Helper()
	leads := make(chan struct{}, 1)
	l := Run(t, s, service, core, perform, func(serving bool) {
		if serving {
			select {
			case leads <- struct{}{}:
			default:
			}
		}
	})
	select {
	case <-leads:
	case <-time.After(20 * time.Second):
		t.Fatal("the loop did not become the leader")
	}
	return l
}

// Run is like Start, but does not wait until the loop leads. It calls told when the loop
// starts or stops accepting requests.
func Run[C model.Core](t testing.TB, s store.Store, service string, core func() C,
	perform func(*loop.Term, C, model.Action), told func(bool)) *loop.Loop[C] {
	t.Helper()
	election, err := leader.New(leader.Config{
		Store: s, Key: Space.Key(model.LeaderRef(service)), Candidate: leader.Candidate{ID: service, Address: service + ":1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := loop.New(loop.Config[C]{
		Service: service, Space: Space, Store: s, Election: election, New: core, Perform: perform,
		Log:    slog.New(slog.DiscardHandler),
		OnLead: told,
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return l
}

// Write writes records in one transaction, as another service would, and returns the
// revision of the transaction.
func Write(t testing.TB, s store.Store, records ...model.Record) int64 {
	t.Helper()
	var txn store.Txn
	for _, record := range records {
		value, err := wire.Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		txn.Then = append(txn.Then, store.Put(Space.Key(record.Ref()), value))
	}
	res, err := s.Txn(context.Background(), txn)
	if err != nil {
		t.Fatal(err)
	}
	return res.Revision
}
