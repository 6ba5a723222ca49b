package inventory

import "berth.dev/pkg/model"

var _ model.Holder = (*Core)(nil)

// aside is what the core leaves alone: what a uid holds stays held, whatever is
// known of it, and nothing is granted for it; an executor is not given up.
type aside struct {
	uids, executors map[string]bool
}

func (c *Core) leave(ref model.Ref) {
	switch ref.Kind {
	case model.KindReservation, model.KindLeaseChunk, model.KindTaskHeader, model.KindTaskChunk:
		c.aside.uids[ref.ID] = true
	case model.KindExecutor:
		c.aside.executors[ref.ID] = true
	}
}

// Subject implements [model.Holder].
func (c *Core) Subject() model.Ref { return c.subject }

// CanMiss implements [model.Holder]. What other services decide of a uid can be
// missed, for then the uid is left alone. Of its own records the inventory needs
// those that say what there is, what of it is in use, and who may have it: without
// one it would give out what it must not.
func (c *Core) CanMiss(ref model.Ref) bool {
	switch ref.Kind {
	case model.KindLeaseChunk, model.KindExecutor, model.KindLive,
		model.KindDisable, model.KindPool, model.KindForgotten:
		return false
	}
	return true
}

// leaseRef names a lease by its first chunk.
func leaseRef(uid string) model.Ref { return model.Ref{Kind: model.KindLeaseChunk, ID: uid} }
