package dispatch

import "berth.dev/pkg/model"

var _ model.Holder = (*Core)(nil)

// aside is what the core leaves alone. Of a uid no worker is ordered to start or
// to stop, moved, given up, or taken for one that nobody wants.
type aside struct {
	uids map[string]bool
	// hosts says that there are executors that the core does not know: one that
	// a task names and that has no record may be one of them, and is not lost.
	hosts bool
}

func (c *Core) hold(ref model.Ref) {
	switch ref.Kind {
	case model.KindReservation, model.KindLeaseChunk, model.KindTaskHeader, model.KindTaskChunk:
		c.aside.uids[ref.ID] = true
	case model.KindExecutor:
		c.aside.hosts = true
	}
}

// Subject implements model.Holder.
func (c *Core) Subject() model.Ref { return c.subject }

// CanMiss implements model.Holder. Whatever the assigner does not know of, it
// leaves as it is; an executor that seems away is sent nothing.
func (c *Core) CanMiss(model.Ref) bool { return true }

// about notes which task the core decides about.
func (c *Core) about(uid string) { c.subject = model.Ref{Kind: model.KindTaskHeader, ID: uid} }

// aboutNone notes that what follows is of no task.
func (c *Core) aboutNone() { c.subject = model.Ref{} }
