package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth.dev/pkg/store"
)

const (
	// earlyFor is how long the etcd lease that a term begins with may lie unused.
	earlyFor = time.Second
	// grantFor is how long an etcd lease is waited for until it is asked for again, and
	// then twice as long each time. The member of etcd that was asked may be frozen, and
	// a call beside it is at another one: a write is sent again after as long.
	grantFor = 300 * time.Millisecond
	// mostGrants is how often it is asked for, the first time included: an etcd that is
	// slow as a whole must not be slowed down by that.
	mostGrants = 3
)

// early is the etcd lease for job events that is asked for as soon as a term is
// won, or about to be, so that the first write of the term need not wait for it.
type early struct {
	lease int64 // 0 when there is none
	asked time.Time
}

// fresh says that it is there, and has not lain for too long.
func (e early) fresh() bool { return e.lease != 0 && time.Since(e.asked) < earlyFor }

// keep has it be found again by who asks next.
func (e early) keep() <-chan early {
	kept := make(chan early, 1)
	kept <- e
	return kept
}

// grantEarly asks once: whoever finds nothing asks again.
func (t *tenure[C]) grantEarly(ctx context.Context) <-chan early {
	granted := make(chan early, 1)
	t.owned.Go(func() {
		e, _ := t.ask(ctx, t.l.cfg.Events.segmentTTL()+earlyFor)
		granted <- e
	})
	return granted
}

// ask has an etcd lease granted by the first of some calls that answers, each of them
// sent once those before were not answered for a while. What the others are granted is
// given back; where that is not known it runs out by itself. The error is a definite
// one, or that of the last call under way.
func (t *tenure[C]) ask(ctx context.Context, ttl time.Duration) (early, error) {
	type answer struct {
		early
		err error
	}
	answers := make(chan answer, mostGrants)
	sent, underWay := 0, 0
	send := func() {
		sent, underWay = sent+1, underWay+1
		t.owned.Go(func() {
			asked := time.Now()
			lease, err := t.l.cfg.Store.Grant(ctx, ttl)
			answers <- answer{early{lease.ID, asked}, err}
		})
	}
	send()
	again := time.NewTimer(grantFor)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			if sent < mostGrants {
				again.Reset(grantFor << sent)
				send()
			}
		case a := <-answers:
			underWay--
			open := errors.Is(a.err, store.ErrAmbiguous) && !errors.Is(a.err, store.ErrFull)
			if open && underWay > 0 {
				continue
			}
			if late := underWay; late > 0 {
				t.owned.Go(func() {
					for range late {
						t.revoke((<-answers).early)
					}
				})
			}
			return a.early, a.err
		}
	}
}

// prepare has the etcd lease granted before the term is won, while its leader is
// being proven dead. One that nobody takes is given back.
func (t *tenure[C]) prepare(ctx context.Context) {
	if time.Since(t.preparedAt) < 2*earlyFor {
		return
	}
	granted := make(chan early, 1)
	t.early, t.preparedAt = granted, time.Now()
	t.owned.Go(func() {
		e := <-t.grantEarly(ctx)
		granted <- e
		if e.lease == 0 {
			return
		}
		_ = store.Sleep(ctx, earlyFor) // or until the tenure ends
		select {
		case <-granted:
			granted <- early{}
			t.revoke(e)
		default:
		}
	})
}

// revoke ends an etcd lease that nothing stands on, which would run out by itself.
func (t *tenure[C]) revoke(e early) {
	if e.lease == 0 {
		return
	}
	t.owned.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), earlyFor)
		defer cancel()
		_ = t.l.cfg.Store.Revoke(ctx, e.lease)
	})
}

// giveBack ends the early etcd lease of a term that wrote no job event.
func (t *tenure[C]) giveBack() {
	granted := t.early
	t.early, t.preparedAt = nil, time.Time{}
	if granted == nil {
		return
	}
	select {
	case e := <-granted:
		t.revoke(e)
	default: // it never came
	}
}

// prepared says whether an etcd lease was asked for already, and is still to come or
// of use. It takes it from who prepared it.
func (t *tenure[C]) prepared() bool {
	if t.early == nil {
		return false
	}
	select {
	case e := <-t.early:
		t.early = e.keep()
		return e.fresh()
	default:
		return true
	}
}

// grant implements Leading.
func (t *tenure[C]) grant(ctx context.Context, ttl time.Duration) (int64, error) {
	if granted := t.early; granted != nil {
		t.early = nil
		select {
		case e := <-granted:
			if e.fresh() {
				return e.lease, nil
			}
			t.revoke(e)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	for attempt := 1; ; attempt++ {
		e, err := t.ask(ctx, ttl)
		if err == nil {
			return e.lease, nil
		}
		if errors.Is(err, store.ErrFull) {
			// One that was granted all the same runs out by itself.
			return 0, fmt.Errorf("%w: no etcd lease for job events", store.ErrFull)
		}
		if !errors.Is(err, store.ErrAmbiguous) {
			return 0, err
		}
		if err := t.pause(ctx, attempt); err != nil {
			return 0, err
		}
	}
}
