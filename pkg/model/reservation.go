package model

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
)

// State is a reservation's state. LEASING and ASSIGNING are derived from the records of
// other services, and never stored.
type State uint8

// The states.
const (
	StateUnset State = iota
	Queued
	Leasing
	Assigning
	Active
	Cancelling
	Completed
	Cancelled
	Expired
	Failed
	Replaced
)

var stateNames = [...]string{"", "QUEUED", "LEASING", "ASSIGNING", "ACTIVE", "CANCELLING", "COMPLETED", "CANCELLED",
	"EXPIRED", "FAILED", "REPLACED"}

func (s State) String() string { return stateNames[s] }

// Terminal reports whether the state is an end.
func (s State) Terminal() bool { return s >= Completed }

// Change is the effect of an upsert.
type Change uint8

// The changes.
const (
	ChangeUnset Change = iota
	Created
	Unchanged
	Reordered
	ChangeReplaced
)

var changeNames = [...]string{"", "CREATED", "UNCHANGED", "REORDERED", "REPLACED"}

func (c Change) String() string { return changeNames[c] }

// Class is the class of a priority.
type Class uint8

// The classes, most urgent first.
const (
	ClassUnset Class = iota
	ClassReplace
	ClassScale
	ClassNewJob
)

// Priority orders reservations of one queue.
type Priority struct {
	Class Class
	Tier  int32
	// Order, if set, ranks before the epoch, lower first.
	Order *int64
}

// Equal compares two priorities.
func (p Priority) Equal(o Priority) bool {
	if p.Class != o.Class || p.Tier != o.Tier || (p.Order == nil) != (o.Order == nil) {
		return false
	}
	return p.Order == nil || *p.Order == *o.Order
}

// Batch is the batch mode: whether workers may start without the others of their batch.
type Batch uint8

// The modes; the numbers are those of the API. Unset is the cluster's mode.
const (
	BatchUnset Batch = iota
	BatchStrict
	BatchBestEffort
)

// Start is what happens to a batch if one worker cannot be started.
type Start uint8

// The start modes; the numbers are those of the API.
const (
	StartUnset Start = iota
	// StartProgressive: the other workers start.
	StartProgressive
	// StartTogether: all workers are stopped, and the batch is queued again.
	StartTogether
)

// OnFailure is what happens to a worker that no attempt could start.
type OnFailure uint8

// The modes; the numbers are those of the API.
const (
	OnFailureUnset OnFailure = iota
	// OnFailureRequeue: only that worker is queued again, before all others.
	OnFailureRequeue
	// OnFailureNotify: an event reports it.
	OnFailureNotify
)

// Origin is how a version came to be queued.
type Origin uint8

// The origins; the numbers are those of the record.
const (
	// OriginRequested: a job service requested it.
	OriginRequested Origin = iota
	// OriginRequeue: workers of its parent could not be started. It is queued before
	// all versions that are not requeued.
	OriginRequeue
	// OriginPart: it has the workers of its parent that fitted, if the batch is
	// best-effort.
	OriginPart
)

// Task is what an executor starts for each worker.
type Task struct {
	Command   string
	Args      []string
	Env       map[string]string
	Payload   []byte
	StopGrace time.Duration
}

// Spec is the request of a reservation without its workers.
type Spec struct {
	TargetSize   int32
	Constraints  constraint.Constraints
	Priority     Priority
	Task         Task
	Batch        Batch
	Start        Start
	OnFailure    OnFailure
	MaxAttempts  int32
	QueueTimeout time.Duration
	Labels       map[string]string
}

// The bounds of a request. They are limits of the API; configuration can only lower
// them.
const (
	MaxWorkers = 50_000
	// MaxIndex bounds worker indexes. MaxRequested is the highest number in a request.
	// Only Berth uses the numbers above, up to MaxNumber, when it requeues workers.
	MaxIndex     = 1<<30 - 1
	MaxRequested = 1_000_000_000
	MaxNumber    = 1<<30 - 1
	MaxPayload   = 64 << 10
	// AgentVariables is the prefix of the variables that agents set.
	AgentVariables   = "BERTH_"
	MaxLabels        = 64
	MaxAttributes    = 100
	MaxMaxAttempts   = 100
	DefaultAttempts  = 3
	DefaultStopGrace = 10 * time.Second
	// KeepTerminal is how long an ended reservation can be read.
	KeepTerminal = 10 * time.Minute
	// AvoidFor is how long an executor is avoided for a worker that it could not start:
	// long enough not to hit the same fault at once, and no longer than a host usually
	// needs to recover.
	AvoidFor = 10 * time.Minute
)

// Reservation is the record of one version of a reservation.
type Reservation struct {
	Key  Key
	UID  string
	Spec Spec
	// Workers are the requested workers, each with its number.
	Workers WorkerSet

	// Place is unique among the live versions and orders those of one epoch. PlaceEpoch
	// is the epoch of the version from which this one inherited its place, 0 without
	// one.
	Place      int64
	PlaceEpoch int64

	State   State
	Reason  fault.Reason
	Message string

	CreatedAt, UpdatedAt, EndedAt time.Time

	// Requests are the calls that made or changed this version, to recognize repeats.
	Requests []RequestMark
	// Origin is how it came to be queued. Parent is the UID of the version whose
	// workers it requeues or which it is a part of; empty for a request.
	Origin Origin
	Parent string
	// Round counts how often these workers were queued again because they could not be
	// started. Spec.MaxAttempts bounds the rounds, including the first.
	Round int32
	// Failed are the executors on which earlier rounds failed, the latest last. They
	// are avoided for a while; see ConstraintsAt.
	Failed []FailedOn
	// Unwanted are workers of a dispatched version that were cancelled individually:
	// the assigner evicts them.
	Unwanted WorkerSet
	// LatestTarget is the target size of the latest request that changed nothing else
	// of this version; nil if that of Spec is the latest.
	LatestTarget *int32
	// WorkerCounts are the workers by final state, kept after the task is deleted.
	WorkerCounts map[string]int32
	// Trace is the trace of the request; versions that derive from this one inherit it.
	Trace Trace

	// Epoch and Mod are the create and modification revisions of the key: 0
	// until the record is committed. They are not part of the stored value.
	Epoch, Mod int64
}

// FailedOn is an executor that could not start a worker, and when that was known.
type FailedOn struct {
	Executor string
	At       time.Time
}

// Avoided reports whether the executor is still avoided.
func (f FailedOn) Avoided(now time.Time) bool { return now.Before(f.At.Add(AvoidFor)) }

// AvoidedAt returns the executors of the list that are still avoided.
func AvoidedAt(failed []FailedOn, now time.Time) (avoided []FailedOn) {
	for _, f := range failed {
		if f.Avoided(now) {
			avoided = append(avoided, f)
		}
	}
	return avoided
}

// ConstraintsAt returns the constraints of the reservation at a time: the requested
// ones, and the executors to avoid because of recent failures. The two lists stay
// apart, since only the second is dropped if no other executor matches.
func (r *Reservation) ConstraintsAt(now time.Time) constraint.Constraints {
	k := r.Spec.Constraints
	for _, f := range AvoidedAt(r.Failed, now) {
		k.AvoidFailed = append(k.AvoidFailed, f.Executor)
	}
	return k
}

// Ready is the record of the registry's readiness. Before Since is set, no lease is
// granted.
type Ready struct {
	// Since is when the registry became ready; zero before.
	Since time.Time
	// By is "auto", "signal" or "grace".
	By string
	// Begun is when a registry first waited for the signal.
	Begun time.Time
}

// RequestMark is the stored answer to a call.
type RequestMark struct {
	ID        string
	Change    Change
	Cancelled int32
	// Call is a fingerprint of the request; 0 in records of versions without
	// fingerprints.
	Call uint64
}

// Stage is the record of a stage, the basis for its next request.
type Stage struct {
	Job, Stage string
	TargetSize int32
	// Numbers has the highest number used for each worker index.
	Numbers WorkerSet
	// Idle are the latest calls that changed nothing, to recognize repeats: a late
	// repeat must not act on a later state of the stage.
	Idle []IdleRequest
}

// IdleRequest is a call that found the requested state.
type IdleRequest struct {
	ID string
	// UID is the version that an upsert found; empty for a cancel.
	UID string
	// Call is a fingerprint of the request, as in RequestMark.
	Call uint64
}
