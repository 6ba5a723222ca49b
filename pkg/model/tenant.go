package model

import (
	"slices"
	"strings"
)

// Tenant is a set of jobs with limits in common.
type Tenant struct {
	Name string
	// Prefix selects the jobs of the tenant, by the rule of Covers. If the prefixes of
	// several tenants cover a job, the job belongs to the tenant with the longest prefix.
	Prefix string
	Limits TenantLimits
}

// TenantLimits are the limits of a tenant. A zero value means no limit.
type TenantLimits struct {
	// QueuedReservations is the maximum number of queued reservations. Workers is the
	// maximum number of workers of all reservations that have not ended, and Batch the
	// maximum number of workers of one reservation.
	QueuedReservations, Workers, Batch int
	// StoredBytes is the maximum size of the records of reservations and stages, in bytes,
	// including ended reservations while they are kept.
	StoredBytes int64
	// EventStreams is the maximum number of open streams of job events, and
	// RequestsPerSecond the maximum rate of requests. Both apply at each gateway.
	EventStreams      int
	RequestsPerSecond float64
	// HighestPriority is the highest class that a priority may have. Lower values are
	// higher classes.
	HighestPriority Class
	// SKUs and Pools are the names that requests may name. With either, a request must name
	// at least one of them.
	SKUs, Pools []string
}

// Tenants finds the tenant of a job. It never changes, so goroutines may share it. A nil
// *Tenants has no tenants.
type Tenants struct {
	list     []Tenant
	byPrefix map[string]*Tenant
}

// NewTenants returns tenants whose prefixes differ.
func NewTenants(list []Tenant) *Tenants {
	t := &Tenants{slices.Clone(list), make(map[string]*Tenant, len(list))}
	slices.SortFunc(t.list, func(a, b Tenant) int { return strings.Compare(a.Name, b.Name) })
	for i := range t.list {
		t.byPrefix[t.list[i].Prefix] = &t.list[i]
	}
	return t
}

// All returns all tenants, sorted by name. The caller must not change the slice.
func (t *Tenants) All() []Tenant {
	if t == nil {
		return nil
	}
	return t.list
}

// Of returns the tenant of a job; nil if the job has no tenant. The caller must not change
// the tenant.
func (t *Tenants) Of(job string) *Tenant {
	if t == nil || len(t.list) == 0 {
		return nil
	}
	for end := len(job); end > 0; end-- {
		if found := t.byPrefix[job[:end]]; found != nil && Covers(job[:end], job) {
			return found
		}
	}
	return nil
}

// Separators are the characters that end a part of a name, in order.
const Separators = "-._"

// Covers reports whether a prefix covers the name of a job: the name is equal to the
// prefix, or continues it with a new part. Parts of a name are separated by '.', '-' or
// '_'. For example, "train" covers "train" and "train-eu", but not "training".
func Covers(prefix, job string) bool {
	rest, begins := strings.CutPrefix(job, prefix)
	return begins && prefix != "" && (rest == "" || strings.ContainsRune(Separators, rune(rest[0])) ||
		strings.ContainsRune(Separators, rune(prefix[len(prefix)-1])))
}
