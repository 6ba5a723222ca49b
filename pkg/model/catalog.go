package model

import (
	"time"

	"berth.dev/pkg/resource"
)

// SKU is the record of a host shape's specification, and of the rule that the
// number of its executors follows.
type SKU struct {
	Name       string
	Resources  resource.Vector
	Attributes map[string]string
	Scale      *ScaleRule
	UpdatedAt  time.Time
}

// ScaleRule says how many executors of a SKU are wanted. A Max of nil is no
// bound.
type ScaleRule struct {
	MinIdle, MinSize int32
	MaxIdle, MaxSize *int32
}

// Pool is the record of a named set of executors: those that have all of the
// attributes, without regard to case.
type Pool struct {
	Name       string
	Attributes map[string]string
	// LostAfter is how long its executors may be unreachable before their
	// workers are given up; nil for the cluster's.
	LostAfter *time.Duration
	UpdatedAt time.Time
}

// KeepDisable is how long an ended request to disable is remembered, so that a
// late repeat of its call does not act again.
const KeepDisable = 10 * time.Minute

// Disable is the record of one request to take executors out of allocation:
// those with one of IDs, or with all Attributes. It holds until EndedAt is set.
type Disable struct {
	// ID is the id of the request.
	ID         string
	IDs        []string
	Attributes map[string]string
	Reason     string
	// ExpireAt is zero for a request that stands until it is undone.
	ExpireAt  time.Time
	CreatedAt time.Time
	// EndedAt is when it expired or was undone: since then it holds for nobody,
	// and is kept for KeepDisable so that a repeat of its call acts once.
	EndedAt time.Time
	// Drain: workers on these executors are to go.
	Drain bool
	// Claim: it was made by a claim for scale-down.
	Claim bool
	// Enable: it remembers a call that undid other requests, Undone of them. It
	// holds for nobody.
	Enable bool
	Undone int32
	// Call is a fingerprint of what the call asked for, which tells a repeat from
	// another call under the same id.
	Call uint64
	// Told is how far the jobs were told of it, in order of executors and, on
	// each, of leases: the last executor's id, a slash and the lease's uid.
	// ToldAll says that there is none left to tell of.
	Told    string
	ToldAll bool
}

// Holds says whether the request takes executors out of allocation.
func (d *Disable) Holds() bool { return d.EndedAt.IsZero() }
