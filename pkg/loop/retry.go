package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// firstTimeout is the timeout of the first attempt at a call of the store. Each further
// attempt has twice the timeout, up to store.DefaultTimeout. The first timeout is short
// because the loop waits for the call: if one of three etcd members is frozen or cut off,
// every third attempt fails by timeout.
const firstTimeout = 300 * time.Millisecond

// attempt makes the nth attempt at a call of the store.
func attempt(ctx context.Context, n int, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, min(firstTimeout<<min(n-1, 16), store.DefaultTimeout))
	defer cancel()
	return call(ctx)
}

// retry makes a call of the store until its outcome is definite or ctx ends.
func (t *tenure[C]) retry(ctx context.Context, call func(ctx context.Context) error) error {
	for n := 1; ; n++ {
		if err := attempt(ctx, n, call); !errors.Is(err, store.ErrAmbiguous) {
			return err
		}
		if err := t.pause(ctx, n); err != nil {
			return err
		}
	}
}

// pause waits after attempt number n. It records progress, because a loop that retries a
// call to etcd does not hang.
func (t *tenure[C]) pause(ctx context.Context, n int) error {
	t.l.progress()
	defer t.l.progress()
	return store.Sleep(ctx, store.Backoff(n))
}

// confirm implements Leading.
func (t *tenure[C]) confirm(ctx context.Context) error {
	return t.retry(ctx, func(ctx context.Context) error {
		kv, ok, err := t.l.cfg.Store.Get(ctx, t.l.cfg.Space.Key(model.LeaderRef(t.l.cfg.Service)))
		if err == nil && !(ok && kv.Create == t.term.Number) {
			return store.ErrFenced
		}
		return err
	})
}

// grant implements Leading. If etcd grants a lease and the answer is lost, that lease
// expires unused.
func (t *tenure[C]) grant(ctx context.Context, ttl time.Duration) (id int64, err error) {
	err = t.retry(ctx, func(ctx context.Context) error {
		lease, err := t.l.cfg.Store.Grant(ctx, ttl)
		if errors.Is(err, store.ErrFull) {
			return fmt.Errorf("%w: no etcd lease for job events", store.ErrFull)
		}
		id = lease.ID
		return err
	})
	return id, err
}
