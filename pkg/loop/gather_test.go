package loop_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// Whoever waited for a leader is answered with the first round of the term, whatever
// that has to write for itself; and not before the view shows what the term before
// has written.
func TestWhoWaitedIsAnsweredWithTheFirstRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		elected := func() *toy {
			c := newToy()
			c.strike = func(c *toy, event model.Event) {
				if _, wins := event.(model.Elected); wins {
					c.decide(put{record: executor("own"), events: 1}, 0)
				}
			}
			return c
		}
		var a *replica
		var writes atomic.Int64
		fake.SetHook(func(_ context.Context, call store.Call) store.Outcome {
			puts := func(op store.Op) bool { return op.Key == space.Key(executor("x0").Ref()) }
			own := func(op store.Op) bool { return op.Key == space.Key(executor("own").Ref()) }
			if call.Method == store.MethodTxn && (slices.ContainsFunc(call.Txn.Then, puts) || slices.ContainsFunc(call.Txn.Then, own)) {
				writes.Add(1)
			}
			if call.Method == store.MethodGrant {
				time.Sleep(12 * time.Millisecond) // a round through etcd's log
			}
			return store.Outcome{}
		})
		a = runAs(t, s, "a", "v1", elected, nil)
		<-a.serving
		if status := a.Status(); status.Term == 0 || status.Serving {
			t.Errorf("before its first round it is %+v", status)
		}
		answers := make(chan error, 3)
		for i := range 3 {
			go func() {
				time.Sleep(time.Duration(i) * 3 * time.Millisecond)
				_, err := a.Do(context.Background(), put{record: executor(fmt.Sprint("x", i))})
				answers <- err
			}()
		}
		for range 3 {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
		if n := writes.Load(); n != 1 {
			t.Errorf("what it had to write and what it was asked took %d transactions", n)
		}
	})
}
