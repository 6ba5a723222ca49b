package inventory

import (
	"iter"
	"slices"
	"time"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
	"berth.dev/services/executor-state/policy"
)

// owner implements [match.Owner] and [policy.Owner].
type owner struct{ *Core }

// Executor implements [match.Owner].
func (o owner) Executor(id string) *match.Executor {
	if h := o.hosts[id]; h != nil {
		return &h.Executor.Executor
	}
	return nil
}

// PoolsOf implements [match.Owner].
func (o owner) PoolsOf(h constraint.Host) []string { return o.pools.Of(h) }

// ClosedBy implements [match.Owner].
func (o owner) ClosedBy(attributes match.Attributes) []string { return o.requests.ClosedBy(attributes) }

// Registered implements [policy.Owner].
func (o owner) Registered(id string) *policy.Executor {
	if h := o.hosts[id]; h != nil {
		return &h.Executor
	}
	return nil
}

// From implements [policy.Owner].
func (o owner) From(id string) iter.Seq[*policy.Executor] {
	return func(yield func(*policy.Executor) bool) {
		for h := range o.byID.From(hostAt(id)) {
			if !yield(&h.Executor) {
				return
			}
		}
	}
}

// Update implements [policy.Owner].
func (o owner) Update(e *policy.Executor, change func()) {
	h := o.hosts[e.ID]
	o.unplace(h)
	change()
	o.place(h)
}

// Closed implements [policy.Owner].
func (o owner) Closed(e *match.Executor) {
	h := o.hosts[e.ID]
	o.forgetUse(h)
	o.countUse(h)
}

// Decide implements [policy.Owner].
func (o owner) Decide(effect model.Effect) { o.decide(effect) }

// WorkersOn implements [policy.Owner]. It visits each lease with workers on the executors
// once.
func (o owner) WorkersOn(executors []*policy.Executor) map[uint32]map[string]*policy.LeaseWorkers {
	found, uids := map[uint32]map[string]*policy.LeaseWorkers{}, map[string]bool{}
	for _, e := range executors {
		found[e.Ordinal] = map[string]*policy.LeaseWorkers{}
		for _, p := range o.hosts[e.ID].allocation.placements {
			uids[p.uid] = true
		}
	}
	for uid := range uids {
		for _, entry := range o.leases[uid].chunks {
			chunk := entry.record.(*model.LeaseChunk)
			for _, p := range chunk.Workers {
				leases := found[p.Ordinal]
				if leases == nil {
					continue
				}
				if leases[uid] == nil {
					leases[uid] = &policy.LeaseWorkers{Key: chunk.Key, Trace: chunk.Trace, Epoch: chunk.Epoch}
				}
				leases[uid].Workers = append(leases[uid].Workers, p.Worker)
			}
		}
	}
	for _, leases := range found {
		for _, l := range leases {
			slices.SortFunc(l.Workers, model.WorkerID.Compare)
		}
	}
	return found
}

func (c *Core) drain(r policy.Drain) (ExecutorView, error) {
	e, err := c.requests.Drain(c.now, r)
	if err != nil {
		return ExecutorView{}, err
	}
	return c.view(c.hosts[e.ID]), nil
}

func (c *Core) claim(r policy.Claim) (policy.Claimed, error) {
	sku, _ := c.usage.SKU(r.SKU)
	claimed, err := c.requests.Claim(c.now, r, sku.Scale, c.usage.Unknown(r.SKU), func(sku string, limit int) []string {
		ids := []string{}
		for _, h := range c.idleFirst(sku, limit, func(a, b *host) int {
			return match.Compare(&b.Executor.Executor,
				&a.Executor.Executor)
		}) {
			ids = append(ids, h.ID)
		}
		return ids
	})
	claimed.SKU = c.usage.Spelled(r.SKU)
	return claimed, err
}

func (c *Core) putPool(r policy.PutPool) (*model.Pool, error) {
	record, changes, err := c.pools.Put(c.now, r.Pool, c.cfg.MaxCatalog)
	if changes {
		c.decide(model.Effect{Puts: []model.Record{record}})
	}
	return record, err
}

func (c *Core) deletePool(r policy.DeletePool) (policy.PoolDeleted, error) {
	var bad model.Violations
	bad.Name("name", r.Name, model.MaxName)
	known, ok := c.pools.Get(r.Name)
	if ok {
		c.decide(model.Effect{Deletes: []model.Ref{known.Ref()}})
	}
	return policy.PoolDeleted{Unknown: !ok}, bad.Err()
}

// Pools returns the recorded pools in order of name.
func (c *Core) Pools() []model.Pool { return c.pools.List() }

// Pool returns the recorded pool with a name, without regard to case.
func (c *Core) Pool(name string) (model.Pool, bool) { return c.pools.Get(name) }

// lostAfter returns how long an executor may be absent.
func (c *Core) lostAfter(h *host) time.Duration { return c.pools.LostAfter(h.Class(), c.cfg.LostAfter) }
