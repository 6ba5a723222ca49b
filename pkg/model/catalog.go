package model

import (
	"time"

	"berth.dev/pkg/resource"
)

// SKU is the record of a host shape: its specification, and the rule for the number of
// its executors.
type SKU struct {
	Name       string
	Resources  resource.Vector
	Attributes map[string]string
	Scale      *ScaleRule
	UpdatedAt  time.Time
}

// ScaleRule is the wanted number of executors of a SKU. A Max of nil is no bound.
type ScaleRule struct {
	MinIdle, MinSize int32
	MaxIdle, MaxSize *int32
}

// Pool is the record of a named set of executors: those that have all of the
// attributes, ignoring case.
type Pool struct {
	Name       string
	Attributes map[string]string
	// LostAfter is how long its executors may be unreachable before they are LOST; nil
	// for the cluster's value.
	LostAfter *time.Duration
	UpdatedAt time.Time
}

// KeepDisable is how long an ended request to disable is kept, so that a late repeat of
// its call has no effect.
const KeepDisable = 10 * time.Minute

// Disable is the record of one request to take executors out of allocation: those with
// one of IDs, or with all Attributes. It applies until EndedAt is set.
type Disable struct {
	// ID is the id of the request.
	ID         string
	IDs        []string
	Attributes map[string]string
	Reason     string
	// ExpireAt is zero for a request that applies until it is undone.
	ExpireAt  time.Time
	CreatedAt time.Time
	// EndedAt is when it expired or was undone. From then on it applies to no executor,
	// and is kept for KeepDisable so that a repeat of its call has no effect.
	EndedAt time.Time
	// Drain: the workers on these executors are evicted.
	Drain bool
	// Claim: the request is a claim for scale-down.
	Claim bool
	// Enable: the record is for a call that undid other requests, Undone of them. It
	// applies to no executor.
	Enable bool
	Undone int32
	// Call is a fingerprint of the call, which distinguishes a repeat from another call
	// with the same ID.
	Call uint64
	// ReportedThrough is the progress of reporting the request to the jobs, in order of executors
	// and, on each, of leases: the last executor's ID, a slash and the lease's UID.
	// ReportedAll is set once all jobs have the event.
	ReportedThrough string
	ReportedAll     bool
}

// Holds reports whether the request takes executors out of allocation.
func (d *Disable) Holds() bool { return d.EndedAt.IsZero() }
