package leader

import "context"

// Evict deletes the key of a leader as who has a proof does, and does not stand.
func (e *Election) Evict(ctx context.Context, term int64) error {
	if err := e.mayEvict(ctx, term, nil); err != nil {
		return err
	}
	return e.remove(ctx, term)
}

// WaitsFor says whether this replica has tried, failed, and waits for a term to end.
func (e *Election) WaitsFor(term int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiting != nil && e.waiting.holder.Term == term
}
