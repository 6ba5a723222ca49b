package model

import (
	"fmt"

	"berth.dev/api/fault"
)

// The names of the limits of a tenant in JSON and in errors.
const (
	LimitQueuedReservations = "queuedReservations"
	LimitWorkers            = "workers"
	LimitBatch              = "batch"
	LimitStoredBytes        = "storedBytes"
	LimitEventStreams       = "eventStreams"
	LimitRequestsPerSecond  = "requestsPerSecond"
	LimitHighestPriority    = "highestPriority"
	LimitSKUs               = "skus"
	LimitPools              = "pools"
)

// Exceeded returns the error for a request that exceeds a limit of the tenant. The error
// has the current value, which is what the tenant uses or what the request has, and the
// maximum.
func (t *Tenant) Exceeded(limit string, current, most any) *fault.Error {
	return fault.New(fault.Exhausted, fault.ReasonTenantLimit,
		"the request exceeds the limit %s of tenant %s: current %v, maximum %v", limit, t.Name, current, most).
		With("tenant", t.Name).With("limit", limit).With("current", fmt.Sprint(current)).With("max", fmt.Sprint(most))
}

// Disallows returns the error for a request whose field has a value that a limit of the
// tenant does not allow: the value must be "at most" or "one of" most.
func (t *Tenant) Disallows(limit, field, current, relation, most string) *fault.Error {
	e := t.Exceeded(limit, current, most)
	e.Message = fmt.Sprintf("%s: must be %s %s (limit %s of tenant %s), got %s", field, relation, most, limit, t.Name,
		current)
	return e
}
