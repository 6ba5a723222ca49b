package inventory

import (
	"math"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

var _ model.Holder = (*Core)(nil)

// aside is what the core leaves alone: what a uid holds stays held, whatever is
// known of it, and nothing is granted for it; an executor is not given up.
//
// Records that cannot be read isolate what they are about, and nothing else:
//
//   - Of an executor: it is not known, so it is granted nothing, and its ID cannot be
//     registered anew. What leases hold of it is counted by its ordinal, and new
//     executors have ordinals that it cannot have.
//   - Of a presence: the executor is not READY and is not given up. Its agent's next
//     heartbeat has the presence written anew.
//   - Of a lease: what is left of it stays, and nothing more is granted for its uid.
//     The executors on which its task has workers that no readable part of the lease
//     holds are granted nothing: what they have free is not known. Before a lease is
//     handed over nothing runs by it, and no service starts anything by a lease that
//     it cannot read.
//   - Of a pool: no executor is in it by name, and executors that name it are not
//     given up, for how long they may be absent is not known.
//   - Of the forgotten executors: no executor with a new ID registers, for which
//     ordinals were given before is not known.
//   - Of a request to disable: it has no effect until it is put right. Draining is
//     told by the executor's record too.
type quarantined struct {
	uids, executors, presences map[string]bool
	// leases are the uids with chunks that were left alone.
	leases map[string]bool
	// unread counts executors of which the record may not be known, and lowest is the
	// lowest ordinal that none of them can have.
	unread int
	lowest uint64
	// forgotten: the record of the forgotten executors was left alone.
	forgotten bool
}

func (c *Core) quarantine(ref model.Ref) {
	switch ref.Kind {
	case model.KindReservation, model.KindTaskHeader, model.KindTaskChunk:
		c.quarantined.uids[ref.ID] = true
	case model.KindLeaseChunk:
		c.quarantined.uids[ref.ID], c.quarantined.leases[ref.ID] = true, true
	case model.KindExecutor:
		c.quarantined.executors[ref.ID] = true
		c.quarantined.unread++
		if c.term != 0 {
			c.skipOrdinals()
		}
	case model.KindLive:
		c.quarantined.presences[ref.ID] = true
	case model.KindPool:
		c.pools.Quarantine(c.index, ref.ID)
		c.absentChanged = true
	case model.KindForgotten:
		c.quarantined.forgotten = true
	}
}

// overwritten ends the isolation for a record that could not be read, once this leader
// has durably written it anew or deleted it.
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

// ordinalGap is how many ordinals above those that are known are not given, for each
// executor of which the record may not be: that one's is among the next few.
const ordinalGap = 1 << 10

// skipOrdinals leaves those out that executors may have whose record is not known. It
// is called when this leader begins, and with each such executor after that.
func (c *Core) skipOrdinals() {
	if c.quarantined.unread > 0 {
		c.quarantined.lowest = c.unusedOrdinal() + ordinalGap*uint64(c.quarantined.unread)
	}
}

// unusedOrdinal returns the lowest ordinal above all that may have been given, which
// may be more than there are.
func (c *Core) unusedOrdinal() uint64 {
	return max(uint64(max(c.lastOrdinal, c.forgotten.Ordinal))+1, c.quarantined.lowest)
}

// nextOrdinal returns an ordinal that no executor has had.
func (c *Core) nextOrdinal() (uint32, error) {
	next := c.unusedOrdinal()
	if next > math.MaxUint32 {
		return 0, fault.New(fault.Exhausted, fault.ReasonTooLarge,
			"no ordinal is left for a new executor: the highest that a record names is %d", max(c.lastOrdinal, c.forgotten.Ordinal))
	}
	return uint32(next), nil
}

// unreadable reports whether the record of an executor is there and cannot be read.
func (c *Core) unreadable(id string) bool { return c.quarantined.executors[id] && c.hosts[id] == nil }

// isolate grants nothing more on the executors on which a lease has workers that
// none of its known chunks holds.
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
			if _, _, known := findPlacement(chunks, model.Placement{Worker: w.ID, Ordinal: w.Ordinal}); known || w.State.Terminal() {
				continue
			}
			switch hold := c.holdOf(w.Ordinal); {
			case hold.isolated:
			case hold.host == nil:
				hold.isolated = true
			default:
				c.unplace(hold.host)
				hold.isolated = true
				c.place(hold.host)
			}
		}
	}
}

// Subject implements [model.Holder].
func (c *Core) Subject() model.Ref { return c.subject }

// CanMiss implements [model.Holder]. What is missed is isolated: see aside.
func (c *Core) CanMiss(model.Ref) bool { return true }

// leaseRef names a lease by its first chunk.
func leaseRef(uid string) model.Ref { return model.Ref{Kind: model.KindLeaseChunk, ID: uid} }
