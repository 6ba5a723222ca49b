package queue

import (
	"cmp"
	"slices"
	"strings"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// TenantUse is what the reservations of a tenant use.
type TenantUse struct {
	// Queued is the number of queued reservations, and Workers the number of workers that
	// have not ended.
	Queued, Workers int
	// Bytes is the size of the records.
	Bytes int64
}

// UseOf returns what each tenant uses, in the order of Tenants.All.
func (c *Core) UseOf(tenants *model.Tenants) []TenantUse {
	c.setTenants(tenants)
	uses := make([]TenantUse, len(tenants.All()))
	for i := range uses {
		u := c.storedBy[&tenants.All()[i]]
		uses[i] = TenantUse{u.queued, u.workers, u.bytes}
	}
	return uses
}

// setTenants makes tenants the tenants whose usage the core counts. If they are others
// than before, it counts the usage of all jobs again.
func (c *Core) setTenants(tenants *model.Tenants) {
	if tenants == c.tenants {
		return
	}
	c.tenants, c.storedBy = tenants, map[*model.Tenant]usage{}
	for job, u := range c.storedOf {
		if t := tenants.Of(job); t != nil {
			c.storedBy[t] = c.storedBy[t].plus(u)
		}
	}
}

// admitToTenant rejects an upsert that would queue a reservation beyond the limits of its
// tenant. more is what the upsert adds in all, after what it replaces. The limits of
// names and of priorities reject no upsert that queues a part of what it replaces.
func (c *Core) admitToTenant(u model.Upsert, l living, more usage) error {
	t := c.tenants.Of(u.Key.Job)
	if t == nil {
		return nil
	}
	limits, used := t.Limits, c.storedBy[t]
	requested := max(int(u.Count), len(u.Workers))
	switch {
	case isOver(used.queued, more.queued, limits.QueuedReservations):
		return t.Exceeded(model.LimitQueuedReservations, used.queued, limits.QueuedReservations)
	case isOver(used.workers, more.workers, limits.Workers):
		return t.Exceeded(model.LimitWorkers, used.workers, limits.Workers)
	case isOver(0, requested, limits.Batch) && requested > union(l.all(), workersOf).Len():
		return t.Exceeded(model.LimitBatch, requested, limits.Batch)
	}
	var replaced []*version
	if more.workers <= 0 {
		replaced = l.queued
	}
	bytes := more.bytes
	for _, v := range replaced {
		bytes -= v.stored.bytes
	}
	return cmp.Or(
		c.checkTenantBytes(t, more.bytes, len(replaced) > 0 && bytes <= 0),
		c.checkPriority(u, replaced),
		checkNames(t, u, replaced),
	)
}

func workersOf(v *version) model.WorkerSet { return v.r.Workers }

// isOver reports whether an increase exceeds a limit. A limit of 0 does not apply.
func isOver[T int | int64](used, more, limit T) bool {
	return limit > 0 && more > 0 && used+more > limit
}

// checkTenantBytes rejects an increase of a tenant's stored bytes beyond the limit. Calls
// that only remove workers may use the reserve too.
func (c *Core) checkTenantBytes(t *model.Tenant, more int64, removes bool) error {
	if t == nil {
		return nil
	}
	used, limit := c.storedBy[t].bytes, t.Limits.StoredBytes
	most := limit
	if removes {
		most += limit / cancelReserve
	}
	if isOver(used, more, most) {
		return t.Exceeded(model.LimitStoredBytes, used, limit)
	}
	return nil
}

// checkPriority rejects an upsert whose priority is above the limit of its tenant, unless
// it keeps or lowers the priorities of the versions that it replaces or changes.
func (c *Core) checkPriority(u model.Upsert, replaced []*version) error {
	t := c.tenants.Of(u.Key.Job)
	if t == nil || t.Limits.HighestPriority == model.ClassUnset {
		return nil
	}
	order, p := c.config.Scheduling.Order, u.Spec.Priority
	class := order.ClassOf(p)
	raises := func(v *version) bool {
		before := v.r.Spec.Priority
		return !p.Equal(before) && !order.ClassOf(before).Above(class)
	}
	if !class.Above(t.Limits.HighestPriority) || len(replaced) > 0 && !slices.ContainsFunc(replaced, raises) {
		return nil
	}
	err := t.Disallows(model.LimitHighestPriority, "priority.class", class.String(), "at most",
		t.Limits.HighestPriority.String())
	if class != p.Class {
		err.Message += ", as which priority.order counts"
	}
	return err
}

// checkNames rejects an upsert that names none of the SKUs or pools of its tenant, or
// others, unless it has the constraints of the versions that it replaces.
func checkNames(t *model.Tenant, u model.Upsert, replaced []*version) error {
	constraints := u.Spec.Constraints
	if len(replaced) > 0 && !slices.ContainsFunc(replaced, func(v *version) bool {
		return !request.SameConstraints(constraints, v.r.Spec.Constraints)
	}) {
		return nil
	}
	var sku []string
	if constraints.SKU != "" {
		sku = []string{constraints.SKU}
	}
	for _, l := range []struct {
		limit, field   string
		named, allowed []string
	}{
		{model.LimitSKUs, "constraints.sku", sku, t.Limits.SKUs},
		{model.LimitPools, "constraints.pools", constraints.Pools, t.Limits.Pools},
	} {
		outside := func(name string) bool {
			return !slices.ContainsFunc(l.allowed, func(allowed string) bool { return strings.EqualFold(allowed, name) })
		}
		if len(l.allowed) > 0 && (len(l.named) == 0 || slices.ContainsFunc(l.named, outside)) {
			return t.Disallows(l.limit, l.field, cmp.Or(strings.Join(l.named, ", "), "none"), "one of",
				strings.Join(l.allowed, ", "))
		}
	}
	return nil
}
