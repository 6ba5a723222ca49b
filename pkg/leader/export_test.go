package leader

import "context"

// Evict tries once to delete the leader's key, as a replica with a proof does.
func (e *Election) Evict(ctx context.Context, term int64) error { return e.tryEvict(ctx, term) }

// WaitsFor reports whether this replica waits for a term to end.
func (e *Election) WaitsFor(term int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiting != nil && e.waiting.holder.Term == term
}
