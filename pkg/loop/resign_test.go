package loop_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// On request, a leader resigns once, and only in the term that the request names.
func TestResignOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		term := a.Status().Term
		b := run(t, s, "b", nil)
		synctest.Wait() // b follows and waits for the end of the term
		for name, err := range map[string]error{
			"another term": a.Resign(t.Context(), term+1), "a standby": b.Resign(t.Context(), term),
			"no term": a.Resign(t.Context(), 0),
		} {
			if !fault.Is(err, fault.ReasonNotLeader) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := a.Resign(t.Context(), term); err != nil {
			t.Fatal(err)
		}
		if s := a.Status(); s.Serving {
			t.Errorf("answered while the status is %+v", s)
		}
		b.awaitLead(t, true)
		if now := b.Status().Term; now <= term {
			t.Errorf("term %d after %d", now, term)
		}
		synctest.Wait() // a follows again
		if err := a.Resign(t.Context(), term); !fault.Is(err, fault.ReasonNotLeader) {
			t.Errorf("repeated: %v", err)
		}
	})
}

// A replica that resigns or stops completes its writes and answers them. If its store does
// not answer, the replica stops anyway.
func TestResignFinishesTheTransaction(t *testing.T) {
	leave := map[string]func(*replica){
		"resign": func(r *replica) { _ = r.Resign(context.Background(), r.Status().Term) },
		"stop":   (*replica).end,
	}
	for name, leave := range leave {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, fake := newStore()
				a := run(t, s, "a", nil)
				a.awaitLead(t, true)
				written, answered := make(chan struct{}), make(chan struct{})
				fake.SetHook(func(ctx context.Context, call store.Call) store.Outcome {
					ours := func(op store.Op) bool { return op.Key == space.Key(executor("x").Ref()) }
					if call.Method != store.MethodTxn || !slices.ContainsFunc(call.Txn.Then, ours) {
						return store.Outcome{}
					}
					close(written)
					select {
					case <-answered:
						return store.Outcome{}
					case <-ctx.Done():
						return store.DropAnswer()
					}
				})
				result := make(chan error, 1)
				go func() {
					_, err := a.Do(context.Background(), put{record: executor("x")})
					result <- err
				}()
				<-written
				left := make(chan struct{})
				go func() { defer close(left); leave(a) }()
				synctest.Wait()
				if _, found, _ := fake.Get(t.Context(), space.Key(model.LeaderRef(service))); !found {
					t.Error("the leader resigned while a transaction was in flight")
				}
				close(answered)
				if err := <-result; err != nil {
					t.Errorf("what was written is answered %v", err)
				}
				<-left
			})
		})
	}
}

// If the store does not answer, it delays a stop only for a limited time.
func TestStopWithAnUnresponsiveStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		fake.SetHook(func(ctx context.Context, _ store.Call) store.Outcome {
			<-ctx.Done()
			return store.DropAnswer()
		})
		result := make(chan error, 1)
		go func() {
			_, err := a.Do(context.Background(), put{record: executor("x")})
			result <- err
		}()
		synctest.Wait()
		began := time.Now()
		a.end()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		if f := fault.Of(<-result); f == nil || f.Kind != fault.Unavailable {
			t.Errorf("what may have been written is answered %v", f)
		}
	})
}

// While a term ends, requests are refused at once, even if the end takes long. Another
// replica may already lead, and the caller has a deadline.
func TestRequestsDuringAResignAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		fake.SetHook(func(ctx context.Context, _ store.Call) store.Outcome {
			<-ctx.Done()
			return store.DropAnswer()
		})
		a.awaitLead(t, false)
		began := time.Now()
		_, err := a.Do(context.Background(), put{record: executor("x")})
		if f := fault.Of(err); f == nil || f.Reason != fault.ReasonNotLeader {
			t.Errorf("answered %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("took %v", took)
		}
	})
}
