package loop_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/testkit/looptest"
)

// hangs returns a core that hangs in the step that receives an executor, until the test
// releases it.
func hangs(id string, released <-chan struct{}) func() *toy {
	return func() *toy {
		c := newToy()
		c.strike = func(_ *toy, event model.Event) {
			if e, received := event.(model.Changed); received && e.Ref == executor(id).Ref() {
				<-released
			}
		}
		return c
	}
}

// Alive reports a core that hangs, on a leader and on a standby. If the core was only slow
// and returns, it is alive again.
func TestHungCoreIsNotAlive(t *testing.T) {
	for name, leads := range map[string]bool{"leader": true, "standby": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, fake := newStore()
				if !leads {
					other := run(t, s, "other", nil)
					other.awaitLead(t, true)
				}
				released := make(chan struct{})
				a := runAs(t, s, "a", "v1", hangs("x", released), nil)
				if leads {
					a.awaitLead(t, true)
				}
				synctest.Wait()
				looptest.Write(t, fake, executor("x"))
				time.Sleep(25 * time.Second) // a leader has already lost its leadership
				if err := a.Alive(); err != nil {
					t.Errorf("too early: %v", err)
				}
				time.Sleep(10 * time.Second)
				if err := a.Alive(); err == nil || !strings.Contains(err.Error(), service) {
					t.Errorf("after 35 s: %v", err)
				}
				close(released)
				synctest.Wait()
				time.Sleep(time.Minute)
				if err := a.Alive(); err != nil {
					t.Errorf("after the core returned: %v", err)
				}
			})
		})
	}
}

// A loop is alive while it is idle, busy or waits for an etcd that does not answer.
func TestIdleOrBusyLoopIsAlive(t *testing.T) {
	alive := func(t *testing.T, replicas ...*replica) {
		t.Helper()
		for range 600 {
			time.Sleep(time.Second)
			for _, r := range replicas {
				if err := r.Alive(); err != nil {
					t.Fatalf("%s: %v", r.id, err)
				}
			}
		}
	}
	t.Run("idle", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, _ := newStore()
			a := run(t, s, "a", nil)
			a.awaitLead(t, true)
			alive(t, a, run(t, s, "b", nil))
		})
	})
	t.Run("reads much at first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, fake := newStore()
			for _, id := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
				looptest.Write(t, fake, executor(id))
			}
			var steps atomic.Int64
			a := runAs(t, s, "a", "v1", func() *toy {
				c := newToy()
				c.strike = func(*toy, model.Event) { steps.Add(1); time.Sleep(5 * time.Second) }
				return c
			}, func(*loop.Term, *toy, model.Action) {})
			alive(t, a)
			if n := steps.Load(); n < 26 {
				t.Errorf("the core saw %d executors", n)
			}
		})
	})
	t.Run("etcd answers nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, fake := newStore()
			a := run(t, s, "a", nil)
			a.awaitLead(t, true)
			b := run(t, s, "b", nil)
			synctest.Wait()
			fake.SetHook(func(ctx context.Context, _ store.Call) store.Outcome { <-ctx.Done(); return store.Drop() })
			go a.Do(t.Context(), put{record: executor("x"), events: 1}) //nolint:errcheck // waits for etcd
			alive(t, a, b)
			fake.SetHook(nil)
		})
	})
}
