package stream

import (
	"context"

	"berth.dev/pkg/store"
)

// readsAtOnce is how many reads of etcd are under way at most. When a gateway has
// gone, all of its readers come to another at once: they take turns, so that none
// of their reads runs into its deadline.
const readsAtOnce = 32

// paced is a store whose pages take turns.
type paced struct {
	store.Store
	turns chan struct{}
}

// Page implements store.Store.
func (p paced) Page(ctx context.Context, req store.PageRequest) (store.Page, error) {
	select {
	case p.turns <- struct{}{}:
		defer func() { <-p.turns }()
		return p.Store.Page(ctx, req)
	case <-ctx.Done():
		return store.Page{}, ctx.Err()
	}
}
