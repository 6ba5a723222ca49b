package model

import (
	"time"

	"berth.dev/pkg/resource"
)

// SKU is the record of a host shape. It contains the specification of the shape and the
// rule for the number of its executors.
type SKU struct {
	Name       string
	Resources  resource.Vector
	Attributes map[string]string
	Scale      *ScaleRule
	UpdatedAt  time.Time
}

// ScaleRule is the wanted number of executors of a SKU. If a maximum is nil, the number
// has no upper limit.
type ScaleRule struct {
	MinIdle, MinSize int32
	MaxIdle, MaxSize *int32
	// Cooldown is how long more than MaxIdle executors must be spare before the rule
	// recommends fewer executors.
	Cooldown time.Duration
	// HoldUntil is the time until which the rule recommends the current number of executors.
	HoldUntil time.Time
}

// Held reports whether the rule holds scaling at a time. A nil rule does not.
func (r *ScaleRule) Held(now time.Time) bool { return r != nil && now.Before(r.HoldUntil) }

// Pool is the record of a named set of executors. An executor belongs to the pool if it
// has all of the pool's attributes, ignoring case.
type Pool struct {
	Name       string
	Attributes map[string]string
	// LostAfter is how long executors of the pool may be unreachable before they are LOST.
	// If it is nil, the cluster's value applies.
	LostAfter *time.Duration
	UpdatedAt time.Time
}

// KeepDisable is how long the record of an ended request to disable remains, so that a
// late repeat of its call has no effect.
const KeepDisable = 10 * time.Minute

// Disable is the record of one request to take executors out of allocation. It applies to
// the executors with one of IDs or with all Attributes, until EndedAt is set.
type Disable struct {
	// ID is the ID of the request.
	ID         string
	IDs        []string
	Attributes map[string]string
	Reason     string
	// ExpireAt is the time at which the request ends by itself. It is zero if the request
	// applies until it is undone.
	ExpireAt  time.Time
	CreatedAt time.Time
	// EndedAt is the time at which the request expired or was undone. From then on the
	// request applies to no executor. The record remains for KeepDisable, so that a repeat
	// of its call has no effect.
	EndedAt time.Time
	// Drain is set if the request also evicts the workers on these executors.
	Drain bool
	// Grace is the time that a drain gives workers to end after their termination signal, if that is
	// shorter than what they have otherwise; nil if the drain gives none.
	Grace *time.Duration
	// Claim is set if the request is a claim for scale-down.
	Claim bool
	// Enable is set if the record is for a call that undid other requests. Undone is the
	// number of these requests. Such a record applies to no executor.
	Enable bool
	Undone int32
	// Call is a fingerprint of the call. It distinguishes a repeat of the call from another
	// call with the same ID.
	Call uint64
	// ReportedThrough is the last lease for which an event has reported the request to its
	// job: the ID of the executor, a slash and the UID of the lease. Events follow the order
	// of executors, and on each executor the order of leases. ReportedAll is set once all
	// events are reported.
	ReportedThrough string
	ReportedAll     bool
}

// InForce reports whether the request still takes executors out of allocation.
func (d *Disable) InForce() bool { return d.EndedAt.IsZero() }
