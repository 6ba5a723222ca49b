package loop

import (
	"context"

	"berth.dev/pkg/store"
)

// Tells is a request whose sender knows that the store has reached a revision. A view
// that does not get there is left behind, with the member of etcd that it watches.
type Tells interface{ Known() int64 }

// shown is a log whose commits the view has to show, for the same reason.
type shown struct {
	Log
	view *store.View
}

// Commit implements Log.
func (s shown) Commit(ctx context.Context, writes []store.Write) ([]store.Committed, error) {
	done, err := s.Log.Commit(ctx, writes)
	if len(done) > 0 {
		s.view.Know(done[len(done)-1].Revision)
	}
	return done, err
}
