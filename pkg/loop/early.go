package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth.dev/pkg/store"
)

// earlyFor is how long the etcd lease that a term begins with may lie unused.
const earlyFor = time.Second

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
		asked := time.Now()
		lease, _ := t.l.cfg.Store.Grant(ctx, t.l.cfg.Events.segmentTTL()+earlyFor)
		granted <- early{lease.ID, asked}
	})
	return granted
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
		lease, err := t.l.cfg.Store.Grant(ctx, ttl)
		if err == nil {
			return lease.ID, nil
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
