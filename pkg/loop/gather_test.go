package loop_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/loop/looptest"
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

// A replica that slept while it gathered, until another one led and had written,
// answers nothing of what it knew before.
func TestWhoSleptWhileItGatheredAnswersNothing(t *testing.T) {
	const asleep = 6 * time.Second
	for range 20 { // whichever it sees first when it wakes
		synctest.Test(t, func(t *testing.T) {
			s, fake := newStore()
			sleepy := func() *toy {
				c := newToy()
				c.strike = func(_ *toy, event model.Event) {
					if e, told := event.(model.Changed); told && e.Ref == executor("slow").Ref() {
						time.Sleep(asleep)
					}
				}
				return c
			}
			var grants atomic.Int64
			fake.SetHook(func(ctx context.Context, call store.Call) store.Outcome {
				switch call.Method {
				case store.MethodGrant:
					if grants.Add(1) == 2 { // the first is the election's
						time.Sleep(40 * time.Millisecond)
					}
				case store.MethodKeepAlive:
					<-ctx.Done()
					return store.DropAnswer()
				}
				return store.Outcome{}
			})
			a := runAs(t, s, "a", "v1", sleepy, nil)
			<-a.serving
			time.Sleep(10 * time.Millisecond)
			read := make(chan error, 1)
			go func() { read <- a.Read(context.Background(), false, func(*toy) { t.Error("it was read") }) }()
			time.Sleep(time.Millisecond)
			looptest.Write(t, fake, executor("slow"))
			time.Sleep(asleep / 2) // its etcd lease has run out
			fake.SetHook(nil)
			b := run(t, s, "b", nil)
			b.awaitLead(t, true)
			if _, err := b.Do(t.Context(), put{record: executor("x")}); err != nil {
				t.Fatal(err)
			}
			if err := <-read; !fault.Is(err, fault.ReasonNotLeader) {
				t.Errorf("answered %v", err)
			}
		})
	}
}
