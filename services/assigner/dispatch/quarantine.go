package dispatch

import "berth.dev/pkg/model"

var _ model.QuarantineCore = (*Core)(nil)

// quarantined is what the core does not act on. It starts, stops, moves and gives up no
// worker of a quarantined uid, and does not treat one as an orphan.
type quarantined struct {
	uids map[string]bool
	// hosts: some executors are unknown to the core. An executor without a record may
	// be one of them, so it is not lost.
	hosts bool
}

func (c *Core) quarantine(ref model.Ref) {
	switch ref.Kind {
	case model.KindReservation, model.KindLeaseChunk, model.KindTaskHeader, model.KindTaskChunk:
		c.quarantined.uids[ref.ID] = true
	case model.KindExecutor:
		c.quarantined.hosts = true
	}
}

// Subject implements model.QuarantineCore.
func (c *Core) Subject() model.Ref { return c.subject }

// CanMiss implements model.QuarantineCore. Without a record the assigner changes nothing, and it
// sends nothing to an executor that seems absent.
func (c *Core) CanMiss(model.Ref) bool { return true }

// setSubject sets the task that the core decides about.
func (c *Core) setSubject(uid string) { c.subject = model.Ref{Kind: model.KindTaskHeader, ID: uid} }

// clearSubject ends the decisions about a task.
func (c *Core) clearSubject() { c.subject = model.Ref{} }
