package dispatch

import "berth.dev/pkg/model"

var _ model.QuarantineCore = (*Core)(nil)

// quarantined has the quarantined records: records that cannot be read or that made the
// core panic. For the workers of a quarantined uid, the core does nothing: it does not
// start, stop, move or give up such a worker, and does not treat it as an orphan. Workers
// whose stop is overdue are quarantined workers, and are not in here
// (FindingQuarantined).
type quarantined struct {
	uids map[string]bool
	// volumes has the chunks of volumes. The core starts no worker on their volumes, and
	// destroys none of them.
	volumes map[model.Ref]bool
	// hosts is true if the record of some executor is quarantined. The core does not know
	// the executor's ordinal, so no ordinal without a record counts as lost.
	hosts bool
}

func (c *Core) quarantine(ref model.Ref) {
	switch ref.Kind {
	case model.KindReservation, model.KindLeaseChunk, model.KindTaskHeader, model.KindTaskChunk:
		c.quarantined.uids[ref.ID] = true
		if t := c.tasks[ref.ID]; t != nil {
			c.follow(t)
		}
	case model.KindVolumeChunk:
		c.quarantined.volumes[ref] = true
		c.setVolumeChunk(ref, nil)
		c.updateAllDrops() // no removal counts any longer
	case model.KindExecutor:
		c.quarantined.hosts = true
	}
}

// Subject implements model.QuarantineCore.
func (c *Core) Subject() model.Ref { return c.subject }

// CanMiss implements model.QuarantineCore. The core can work without any record: it
// changes nothing that the record is about, and sends nothing to an executor that seems
// absent.
func (c *Core) CanMiss(model.Ref) bool { return true }

// setSubject sets the task about which the core decides.
func (c *Core) setSubject(uid string) { c.subject = model.Ref{Kind: model.KindTaskHeader, ID: uid} }

// clearSubject states that the core no longer decides about a task.
func (c *Core) clearSubject() { c.subject = model.Ref{} }
