package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth.dev/pkg/store"
)

// grant implements Leading. A lease that etcd granted without an answer in time expires
// by itself.
func (t *tenure[C]) grant(ctx context.Context, ttl time.Duration) (id int64, err error) {
	err = t.retry(ctx, func(ctx context.Context) (definite bool, err error) {
		lease, err := t.l.cfg.Store.Grant(ctx, ttl)
		if errors.Is(err, store.ErrFull) {
			return true, fmt.Errorf("%w: no etcd lease for job events", store.ErrFull)
		}
		id = lease.ID
		return !errors.Is(err, store.ErrAmbiguous), err
	})
	return id, err
}
