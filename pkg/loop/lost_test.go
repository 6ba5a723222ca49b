package loop_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/pkg/leader"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// If etcd is so slow that a term is lost before it begins, the replica keeps its view. It
// continues to follow the store and campaigns again.
func TestATermThatNeverBeganCostsNoView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		if _, err := a.Do(t.Context(), put{record: executor("x")}); err != nil {
			t.Fatal(err)
		}
		b := run(t, s, "b", nil)
		synctest.Wait()
		var read, wins atomic.Int64
		won := make(chan struct{}, 10)
		fake.SetHook(func(ctx context.Context, call store.Call) store.Outcome {
			leads := func(op store.Op) bool { return op.Key == space.Key(model.LeaderRef(service)) && !op.Delete }
			switch {
			case call.Method == store.MethodPage && call.Key == space.Prefix():
				read.Add(1)
			case call.Method == store.MethodTxn && slices.ContainsFunc(call.Txn.Then, leads):
				wins.Add(1)
				won <- struct{}{}
			case call.Method == store.MethodKeepAlive && wins.Load() == 1:
				<-ctx.Done()
				return store.DropAnswer()
			}
			return store.Outcome{}
		})
		s.stalled.Store(true)
		time.Sleep(2 * time.Second) // until the pending waits for the watch have ended
		a.end()
		<-won
		time.Sleep(leader.MinTTL) // the replica does not renew its etcd lease
		s.stalled.Store(false)
		b.awaitLead(t, true)
		for wins.Load() < 2 {
			b.awaitLead(t, true)
		}
		if value, err := b.Do(t.Context(), get{executor("x").Ref()}); err != nil || value == nil {
			t.Errorf("read %v: %v", value, err)
		}
		if n := read.Load(); n != 0 {
			t.Errorf("everything was read %d times", n)
		}
		fake.SetHook(nil)
	})
}
