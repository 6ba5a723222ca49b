package leader

import (
	"context"

	"berth.dev/pkg/store"
)

// Evict tries once to delete the leader's key, as the election does after a successful
// probe.
func (e *Election) Evict(ctx context.Context, term int64) error { return e.tryEvict(ctx, term) }

// WaitsFor reports whether this replica waits for the given term to end.
func (e *Election) WaitsFor(term int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiting != nil && e.waiting.holder.Term == term
}

// Observe reports the holder of a key, at once and after every change, as follow does.
func Observe(ctx context.Context, s store.Store, key string, report func(h Holder, found bool) bool) error {
	return follow(ctx, s, key, func(kv store.KV, found bool) bool {
		if !found {
			return report(Holder{}, false)
		}
		return report(parseHolder(kv), true)
	})
}
