package store

import (
	"context"
	"maps"
	"slices"
	"time"
)

// now returns the time of the Fake's clock.
func (f *Fake) now() time.Time {
	if f.cfg.Clock != nil {
		return f.cfg.Clock()
	}
	return time.Now()
}

// Grant implements Store.
func (f *Fake) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	out := f.enter(ctx, Call{Method: MethodGrant})
	if out.Apply != ApplyNow {
		return Lease{}, out.Err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// etcd rounds a TTL up to whole seconds.
	ttl = max((ttl + time.Second - 1).Truncate(time.Second), f.cfg.MinTTL)
	f.lastLease++
	f.leases[f.lastLease] = &fakeLease{ttl: ttl, deadline: f.now().Add(ttl), keys: map[string]struct{}{}}
	f.wake()
	return Lease{ID: f.lastLease, TTL: ttl}, out.Err
}

// KeepAlive implements Store.
func (f *Fake) KeepAlive(ctx context.Context, lease int64) (time.Duration, error) {
	out := f.enter(ctx, Call{Method: MethodKeepAlive, Lease: lease})
	if out.Apply != ApplyNow {
		return 0, out.Err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	l := f.leases[lease]
	if l == nil {
		return 0, ErrLeaseNotFound
	}
	l.deadline = f.now().Add(l.ttl)
	return l.ttl, out.Err
}

// Revoke implements Store.
func (f *Fake) Revoke(ctx context.Context, lease int64) error {
	out := f.enter(ctx, Call{Method: MethodRevoke, Lease: lease})
	if out.Apply != ApplyNow {
		return out.Err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	if f.leases[lease] == nil {
		return ErrLeaseNotFound
	}
	f.end(lease)
	return out.Err
}

// Alarms implements Store.
func (f *Fake) Alarms(ctx context.Context) ([]string, error) {
	out := f.enter(ctx, Call{Method: MethodAlarms})
	if out.Err != nil {
		return nil, out.Err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.alarms), nil
}

// Tick ends the etcd leases that have expired. Every call of the Store does the same
// first. A simulator calls Tick when time passes without calls.
func (f *Fake) Tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
}

// Expire ends an etcd lease now, as if it had expired.
func (f *Fake) Expire(lease int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leases[lease] != nil {
		f.end(lease)
	}
}

// RefreshLeases extends every etcd lease to its full TTL, like a change of etcd's leader.
func (f *Fake) RefreshLeases() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	for _, l := range f.leases {
		l.deadline = f.now().Add(l.ttl)
	}
}

// expire ends expired etcd leases in order of deadline and then of ID, so that a run from a seed
// is repeatable.
func (f *Fake) expire() {
	for now := f.now(); ; {
		id, deadline := f.nextExpiry()
		if id == 0 || now.Before(deadline) {
			return
		}
		f.end(id)
	}
}

// nextExpiry returns the etcd lease that expires first and its deadline. It returns 0 and
// the zero time if there are no leases.
func (f *Fake) nextExpiry() (id int64, deadline time.Time) {
	for i, l := range f.leases {
		if id == 0 || l.deadline.Before(deadline) || l.deadline.Equal(deadline) && i < id {
			id, deadline = i, l.deadline
		}
	}
	return id, deadline
}

// end removes an etcd lease, and deletes its keys in one revision.
func (f *Fake) end(id int64) {
	var ops []Op
	for _, key := range slices.Sorted(maps.Keys(f.leases[id].keys)) {
		ops = append(ops, Delete(key))
	}
	f.apply(ops)
	delete(f.leases, id)
}
