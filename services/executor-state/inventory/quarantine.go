package inventory

import (
	"math"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

var _ model.QuarantineCore = (*Core)(nil)

// quarantined holds what unreadable records are about. A quarantined UID keeps its lease
// and gets no other. A quarantined executor is not declared LOST. An unreadable record
// isolates what it is about, and nothing else:
//
//   - Executor: the executor is unknown, so nothing is granted on it and its ID cannot
//     register. The allocation of its ordinal still counts what leases use of it. New executors
//     get ordinals that the unreadable executor cannot have.
//   - Presence: the executor is not READY and not declared LOST. The next heartbeat of
//     its agent rewrites the presence.
//   - Lease: the readable rest of the lease stays, and nothing more is granted for its
//     UID. If the task of the lease has workers that are in no readable part of the
//     lease, nothing is granted on their executors, because the free capacity there is
//     unknown. Before dispatch nothing runs under a lease, and no service starts a worker
//     under a lease that it cannot read.
//   - Volumes: nothing is granted for the worker indexes of the unreadable chunk. Nothing is
//     granted on the executors where workers of these indexes are leased, because no
//     readable record counts what they use. Nobody knows the executors of the volumes
//     without a worker, so what these hold may be granted: nothing runs there, and the
//     volumes themselves stay.
//   - Offer: nothing is granted to its reservation, and its cells learn that the offer has ended.
//   - Pool: no executor is in the pool by name. Executors that name the pool are not
//     declared LOST, because it is unknown how long they may be absent.
//   - Deleted executors: no executor with a new ID registers, because it is unknown which
//     ordinals were used before.
//   - Request to disable: the request has no effect until its record is repaired. A drain
//     is also marked on the executor's record, so the mark still applies.
type quarantined struct {
	uids, executors, presences map[string]bool
	// leases holds the UIDs with unreadable chunks.
	leases map[string]bool
	// volumes holds the unreadable chunks of volumes.
	volumes map[model.Ref]bool
	// stages holds the stages in which the registry tries no version, because one of their
	// records is unreadable.
	stages map[model.Key]bool
	// unread counts the executors whose records cannot be read. lowest is the lowest ordinal
	// that none of these executors can have.
	unread int
	lowest uint64
	// forgotten reports whether the record of deleted executors cannot be read.
	forgotten bool
}

func (c *Core) quarantine(ref model.Ref) {
	switch ref.Kind {
	case model.KindStage:
		c.quarantined.stages[stageOf(ref.Key)] = true
	case model.KindReservation:
		c.quarantined.uids[ref.ID], c.quarantined.stages[stageOf(ref.Key)] = true, true
	case model.KindTaskHeader, model.KindTaskChunk, model.KindOffer:
		c.quarantined.uids[ref.ID] = true
	case model.KindLeaseChunk:
		c.quarantined.uids[ref.ID], c.quarantined.leases[ref.ID] = true, true
	case model.KindExecutor:
		c.quarantined.executors[ref.ID] = true
		c.quarantined.unread++
		if c.term != 0 {
			c.skipOrdinals()
		}
	case model.KindVolumeChunk:
		c.quarantined.volumes[ref] = true
	case model.KindLive:
		c.quarantined.presences[ref.ID] = true
	case model.KindPool:
		c.pools.Quarantine(c.index, ref.ID)
		c.absentChanged = true
	case model.KindForgotten:
		c.quarantined.forgotten = true
	}
}

// withholdDemand ends the demand of quarantined stages. It is called when this leader starts.
func (c *Core) withholdDemand() {
	for uid := range c.quarantined.uids {
		if r := recordOf[*model.Reservation](c.reservations[uid]); r != nil {
			c.quarantined.stages[stageOf(r.Key)] = true
		}
	}
	if len(c.quarantined.stages) == 0 {
		return // do not visit all reservations: a failover must stay fast
	}
	for uid := range c.reservations {
		c.await(uid)
	}
}

// overwritten ends the quarantine of a record that this leader has durably rewritten or
// deleted.
func (c *Core) overwritten(ref model.Ref) {
	switch ref.Kind {
	case model.KindExecutor:
		delete(c.quarantined.executors, ref.ID)
	case model.KindLive:
		delete(c.quarantined.presences, ref.ID)
	case model.KindPool:
		c.pools.Restore(ref.ID)
	}
}

// ordinalGap is how many ordinals above the known ones stay unused for each executor with
// an unreadable record. The ordinal of such an executor is among them.
const ordinalGap = 1 << 10

// skipOrdinals reserves the ordinals that executors with unreadable records may have. It
// is called when this leader starts, and after that for each further executor with an
// unreadable record.
func (c *Core) skipOrdinals() {
	if c.quarantined.unread > 0 {
		c.quarantined.lowest = c.unusedOrdinal() + ordinalGap*uint64(c.quarantined.unread)
	}
}

// unusedOrdinal returns the lowest ordinal above all ordinals that may be in use. It may
// exceed math.MaxUint32.
func (c *Core) unusedOrdinal() uint64 {
	return max(uint64(max(c.lastOrdinal, c.forgotten.Ordinal))+1, c.quarantined.lowest)
}

// nextOrdinal returns an ordinal that no executor ever had.
func (c *Core) nextOrdinal() (uint32, error) {
	next := c.unusedOrdinal()
	if next > math.MaxUint32 {
		return 0, fault.New(fault.Exhausted, fault.ReasonTooLarge,
			"no ordinal is left for a new executor: the highest that a record names is %d",
			max(c.lastOrdinal, c.forgotten.Ordinal))
	}
	return uint32(next), nil
}

// unreadable reports whether the record of an executor exists and cannot be read.
func (c *Core) unreadable(id string) bool { return c.quarantined.executors[id] && c.hosts[id] == nil }

// isolate stops grants on the executors where a lease has workers that are in none of its
// readable chunks.
func (c *Core) isolate(uid string) {
	t := c.tasks[uid]
	if t == nil || !c.quarantined.leases[uid] {
		return
	}
	var chunks []*model.LeaseChunk
	if l := c.leases[uid]; l != nil {
		chunks = l.inOrder()
	}
	for _, chunk := range t.chunks {
		for _, w := range chunk.record.(*model.TaskChunk).Workers {
			if _, _, known := findPlacement(chunks, model.Placement{Worker: w.ID, Ordinal: w.Ordinal}); known ||
				!w.Occupies() {
				continue
			}
			c.isolateOrdinal(w.Ordinal)
		}
	}
}

// isolateVolumes stops grants on the executors where leases have workers on volumes that
// cannot be read.
func (c *Core) isolateVolumes() {
	for ref := range c.quarantined.volumes {
		s := c.stages[ref.Key]
		if s == nil {
			continue
		}
		for index, holders := range s.holders {
			if index/model.VolumeChunkSize != ref.Chunk {
				continue
			}
			for _, h := range holders {
				c.isolateOrdinal(h.ordinal)
			}
		}
	}
}

func (c *Core) isolateOrdinal(ordinal uint32) {
	switch allocation := c.allocationOf(ordinal); {
	case allocation.isolated:
	case allocation.host == nil:
		allocation.isolated = true
	default:
		c.unplace(allocation.host)
		allocation.isolated = true
		c.place(allocation.host)
	}
}

// Subject implements [model.QuarantineCore].
func (c *Core) Subject() model.Ref { return c.subject }

// CanMiss implements [model.QuarantineCore]. The core can do without any record, because
// it quarantines what the missing record is about: see [quarantined].
func (c *Core) CanMiss(model.Ref) bool { return true }

// leaseRef returns the reference of a lease's first chunk, which names the lease.
func leaseRef(uid string) model.Ref { return model.Ref{Kind: model.KindLeaseChunk, ID: uid} }
