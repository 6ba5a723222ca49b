package replica

import (
	"context"
	"time"

	"berth.dev/pkg/leader"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
)

// askTimeout bounds what /leaderz asks of etcd: whoever asks it may do so because
// etcd does not answer.
const askTimeout = time.Second

// leadership is what a replica tells of who leads, and how far it is behind itself.
// It asks etcd; what etcd does not answer is left out.
func leadership(ctx context.Context, s store.Store, key string, status func() loop.Status) process.Leadership {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	page, err := s.Page(ctx, store.PageRequest{From: key, To: key + "\x00"})
	own := status()
	told := process.Leadership{Revision: own.Revision}
	if err != nil {
		return told
	}
	told.Behind = new(max(0, page.Revision-own.Revision))
	if len(page.KVs) == 0 {
		return told
	}
	// A record that cannot be read still has a term.
	holder, _ := leader.ParseHolder(page.KVs[0])
	told.Leader, told.Address, told.Term = holder.ID, holder.Address, page.KVs[0].Create
	if !holder.Since.IsZero() {
		told.Since = &holder.Since
	}
	if own.Serving && own.Term == told.Term {
		told.Renewed = &own.Renewed
	}
	return told
}
