package loop_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth.dev/pkg/leader"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// watched is a store that counts its open watches. It can compact changes that the watches
// have not delivered. It can also let a campaign win after its caller has stopped.
type watched struct {
	store.Store
	open      atomic.Int64
	compacted atomic.Bool
	// If stalled is set, watches of the whole prefix deliver nothing.
	stalled atomic.Bool
	// If afterTxn is set, it is called after each transaction that succeeded.
	afterTxn atomic.Pointer[func(store.Txn)]
}

func (s *watched) Txn(ctx context.Context, txn store.Txn) (store.TxnResult, error) {
	res, err := s.Store.Txn(ctx, txn)
	if after := s.afterTxn.Load(); after != nil && err == nil && res.Succeeded {
		(*after)(txn)
	}
	return res, err
}

func (s *watched) Watch(prefix string, from int64) store.Watch {
	s.open.Add(1)
	return &watch{s.Store.Watch(prefix, from), s, prefix, sync.Once{}}
}

type watch struct {
	store.Watch
	s      *watched
	prefix string
	once   sync.Once
}

func (w *watch) Next(ctx context.Context) (store.Batch, error) {
	if w.prefix == space.Prefix() && w.s.stalled.Load() {
		<-ctx.Done()
		return store.Batch{}, ctx.Err()
	}
	b, err := w.Watch.Next(ctx)
	if err == nil && w.prefix == space.Prefix() && w.s.compacted.CompareAndSwap(true, false) {
		return store.Batch{}, store.ErrCompacted
	}
	return b, err
}

func (w *watch) Close() {
	w.once.Do(func() { w.s.open.Add(-1) })
	w.Watch.Close()
}

// replica is a running loop with the channels that report its state.
type replica struct {
	*loop.Loop[*toy]
	id      string
	serving chan bool
	stop    context.CancelFunc
	ended   chan struct{}
}

// etcdTTL is the TTL of leaderships in real time. It is long, so that a busy machine does
// not end a leadership.
const etcdTTL = 30 * time.Second

// run starts a replica, which stops when the test ends. perform may be nil.
func run(t *testing.T, s store.Store, id string, perform func(*loop.Term, *toy, model.Action)) *replica {
	t.Helper()
	return runAs(t, s, id, "v1", newToy, perform)
}

// runAs is like run, but with the given version of the program and its core.
func runAs(t *testing.T, s store.Store, id, version string, core func() *toy,
	perform func(*loop.Term, *toy, model.Action)) *replica {
	t.Helper()
	ttl := leader.MinTTL
	if _, fake := s.(*watched); !fake {
		ttl = etcdTTL
	}
	election, err := leader.New(leader.Config{
		Store: s, Key: space.Key(model.LeaderRef(service)), TTL: ttl,
		Candidate: leader.Candidate{ID: id, Address: id + ":1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{id: id, serving: make(chan bool, 100), ended: make(chan struct{})}
	if perform == nil {
		perform = func(_ *loop.Term, _ *toy, action model.Action) { t.Errorf("%T is not to be performed", action) }
	}
	r.Loop = loop.New(loop.Config[*toy]{
		Service: service, Space: space, Store: s, Election: election, Perform: perform, Events: loop.DefaultEventLimits(),
		New: core, Replica: id, Version: version,
		OnLead: func(serving bool) { r.serving <- serving },
		Log:    slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		defer close(r.ended)
		r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
	})
	return r
}

// awaitLead waits until the replica serves and its first round is done, or until it no
// longer serves.
func (r *replica) awaitLead(t *testing.T, serving bool) {
	t.Helper()
	for {
		select {
		case is := <-r.serving:
			if is == serving {
				for serving && !r.Status().Serving && len(r.serving) == 0 {
					time.Sleep(time.Millisecond) // the first round is in progress
				}
				return
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s did not reach serving=%v", r.id, serving)
		}
	}
}

// end stops the replica and waits until it has stopped.
func (r *replica) end() {
	r.stop()
	<-r.ended
}

func newStore() (*watched, *store.Fake) {
	fake := store.NewFake(store.FakeConfig{})
	return &watched{Store: fake}, fake
}
