package replica

import (
	"context"
	"time"

	"berth.dev/pkg/leader"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
)

// etcdTimeout is the timeout of the read of etcd for /leaderz. It is short, because an
// operator may use /leaderz when etcd does not answer.
const etcdTimeout = time.Second

// leadership returns the leader, and how many revisions this replica's view is behind. It
// reads etcd. If etcd does not answer, the fields that depend on etcd are empty.
func leadership(ctx context.Context, s store.Store, key string, status func() loop.Status) process.Leadership {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	page, err := s.Page(ctx, store.PageRequest{From: key, To: key + "\x00"})
	own := status()
	info := process.Leadership{Revision: own.Revision}
	if err != nil {
		return info
	}
	if behind := page.Revision - own.Revision; own.Revision > 0 && behind < store.MinRestoreBump {
		info.Behind = new(max(0, behind))
	}
	if len(page.KVs) == 0 {
		return info
	}
	// A key whose record cannot be decoded still has a term.
	holder, _ := leader.ParseHolder(page.KVs[0])
	info.Leader, info.Address, info.Term = holder.ID, holder.Address, page.KVs[0].Create
	if !holder.Since.IsZero() {
		info.Since = &holder.Since
	}
	if own.Serving && own.Term == info.Term {
		info.Renewed = &own.Renewed
	}
	return info
}
