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

// Disable is the record of one request to take executors out of allocation:
// those with one of IDs, or with all Attributes.
type Disable struct {
	// ID is the id of the request.
	ID         string
	IDs        []string
	Attributes map[string]string
	Reason     string
	// ExpireAt is zero for a request that stands until it is undone.
	ExpireAt  time.Time
	CreatedAt time.Time
	// Drain: workers on these executors are to go.
	Drain bool
	// Claim: it was made by a claim for scale-down.
	Claim bool
	// Told is the last executor, in order of ids, whose jobs were told of it;
	// ToldAll that there is none left to tell of.
	Told    string
	ToldAll bool
}
