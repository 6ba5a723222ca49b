package store

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// steered is a steer with members that answer or do not, as the test says.
type steered struct {
	*steer
	silent []string
	asked  int
	uses   []string // every time another set of them is used
}

func newSteered(t *testing.T, members ...string) *steered {
	d := &steered{steer: &steer{all: members, every: steerEvery, left: make(chan struct{})}}
	d.ctx, d.stop = context.WithCancel(t.Context())
	d.use = func(endpoints ...string) { d.uses = append(d.uses, fmt.Sprint(endpoints)) }
	d.probe = func(ctx context.Context, endpoint string) error {
		d.mu.Lock()
		d.asked++
		silent := slices.Contains(d.silent, endpoint)
		d.mu.Unlock()
		if !silent {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	t.Cleanup(d.close)
	return d
}

func (d *steered) now(t *testing.T, uses ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(d.uses, uses) {
		t.Errorf("used are %v and not %v", d.uses, uses)
	}
	d.uses = nil
}

func (d *steered) fallSilent(members ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = members
}

// Who does not answer is left out from when a call is suspicious until it answers.
func TestSilentMemberIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSteered(t, "a", "b", "c")
		d.fallSilent("b")
		d.now(t)
		d.suspect()
		d.suspect() // one look is enough for all who suspect
		time.Sleep(steerWithin + steerSettles)
		d.now(t, "[a c]")
		time.Sleep(10 * steerEvery)
		d.now(t)
		d.fallSilent("c")
		time.Sleep(2*steerEvery + steerWithin)
		d.now(t, "[a b]")
		d.fallSilent()
		time.Sleep(2 * steerEvery)
		d.now(t, "[a b c]")

		time.Sleep(steerEvery)
		asked := d.asked
		time.Sleep(time.Hour)
		if synctest.Wait(); d.asked != asked {
			t.Errorf("asked %d times although all answer", d.asked-asked)
		}
	})
}

// A read that is not answered in time is suspicion enough, and any other error none.
func TestPatrolSuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSteered(t, "a", "b")
		d.fallSilent("b")
		var hangs atomic.Bool
		d.read = func(ctx context.Context) error {
			if hangs.Load() {
				<-ctx.Done()
			}
			return context.Canceled
		}
		d.owned.Go(d.patrol)
		time.Sleep(10*steerEvery + steerEvery/2)
		d.now(t)
		hangs.Store(true)
		time.Sleep(steerEvery + 2*steerWithin + steerSettles)
		d.now(t, "[a]")
		hangs.Store(false)
		d.fallSilent()
		time.Sleep(3 * steerEvery)
		d.now(t, "[a b]")
	})
}

// Where none answers it is not the members' fault, or all of theirs.
func TestNobodyIsLeftOutWhereNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSteered(t, "a", "b")
		d.fallSilent("a", "b")
		d.suspect()
		time.Sleep(steerWithin + steerSettles + steerEvery)
		d.now(t)
		// It is suspected again by the next call, and then one of them answers.
		d.fallSilent("a")
		d.suspect()
		time.Sleep(steerWithin + steerSettles)
		d.now(t, "[b]")
		d.fallSilent("a", "b")
		time.Sleep(2*steerEvery + steerWithin)
		d.now(t, "[a b]")
	})
}

// A single member is asked whatever it does.
func TestOnlyMemberIsNotSuspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSteered(t, "a")
		d.suspect()
		time.Sleep(time.Minute)
		if synctest.Wait(); d.asked != 0 {
			t.Errorf("asked %d times", d.asked)
		}
	})
}

// It ends while a member keeps it waiting.
func TestSteerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSteered(t, "a", "b")
		d.fallSilent("b")
		d.suspect()
		synctest.Wait()
		began := time.Now()
		d.close()
		if time.Since(began) > 0 {
			t.Errorf("after %v", time.Since(began))
		}
		d.suspect() // of a call that ends with it
	})
}
