package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth.dev/pkg/store"
)

// grantFor is how long the first attempt to grant an etcd lease may take, and each
// after it twice as long as the one before, up to the store's own deadline: the member
// of etcd that the attempt is sent to may be frozen, and the next attempt goes to
// another one.
const grantFor = 300 * time.Millisecond

// grant implements Leading. A lease that etcd granted without an answer in time expires
// by itself.
func (t *tenure[C]) grant(ctx context.Context, ttl time.Duration) (int64, error) {
	for attempt, patience := 1, grantFor; ; attempt, patience = attempt+1, min(2*patience, store.DefaultTimeout) {
		granting, cancel := context.WithTimeout(ctx, patience)
		lease, err := t.l.cfg.Store.Grant(granting, ttl)
		cancel()
		switch {
		case err == nil:
			return lease.ID, nil
		case errors.Is(err, store.ErrFull):
			return 0, fmt.Errorf("%w: no etcd lease for job events", store.ErrFull)
		case !errors.Is(err, store.ErrAmbiguous):
			return 0, err
		}
		if err := t.pause(ctx, attempt); err != nil {
			return 0, err
		}
	}
}
