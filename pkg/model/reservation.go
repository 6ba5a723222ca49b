package model

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
)

// State is a reservation's state. LEASING and ASSIGNING are derived from what
// other services have stored, and never stored themselves.
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

var stateNames = [...]string{"", "QUEUED", "LEASING", "ASSIGNING", "ACTIVE", "CANCELLING", "COMPLETED", "CANCELLED", "EXPIRED", "FAILED", "REPLACED"}

func (s State) String() string { return stateNames[s] }

// Terminal says whether the state is an end.
func (s State) Terminal() bool { return s >= Completed }

// Change is what an upsert did.
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
	// Order comes before the epoch where it is given, lower first.
	Order *int64
}

// Equal compares two priorities.
func (p Priority) Equal(o Priority) bool {
	if p.Class != o.Class || p.Tier != o.Tier || (p.Order == nil) != (o.Order == nil) {
		return false
	}
	return p.Order == nil || *p.Order == *o.Order
}

// Batch says whether workers may start without the others of their batch.
type Batch uint8

// The modes; the numbers are those of the wire. Unset is the cluster's mode.
const (
	BatchUnset Batch = iota
	BatchStrict
	BatchBestEffort
)

// Start says what becomes of a batch of which one worker cannot be started.
type Start uint8

// The ways to start; the numbers are those of the wire.
const (
	StartUnset Start = iota
	// StartProgressive: each worker for itself.
	StartProgressive
	// StartTogether: all are stopped, and the batch is queued again.
	StartTogether
)

// OnFailure says what becomes of a worker that no attempt started.
type OnFailure uint8

// What may become of it; the numbers are those of the wire.
const (
	OnFailureUnset OnFailure = iota
	// OnFailureRequeue: just that worker is queued again, first.
	OnFailureRequeue
	// OnFailureNotify: an event tells of it.
	OnFailureNotify
)

// Origin says how a version came to be queued.
type Origin uint8

// The origins; the numbers are those of the record.
const (
	// OriginAsked: a job service asked for it.
	OriginAsked Origin = iota
	// OriginRequeue: workers of its parent could not be started. It is queued
	// before all that is not requeued.
	OriginRequeue
	// OriginPart: those workers of its parent that fitted, where the batch does
	// not have to be whole.
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

// Spec is the body of a reservation but for its workers: what is asked.
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

// The bounds of a request. They are the interface's limits, and may only be
// lowered by configuration.
const (
	MaxWorkers = 50_000
	// MaxIndex bounds worker indexes. MaxRequested is the highest number that a
	// request may name; above it, up to MaxNumber, Berth alone counts, when it
	// requeues workers.
	MaxIndex     = 1<<30 - 1
	MaxRequested = 1_000_000_000
	MaxNumber    = 1<<30 - 1
	MaxPayload   = 64 << 10
	// AgentVariables begins the names of the variables that agents set themselves.
	AgentVariables   = "BERTH_"
	MaxLabels        = 64
	MaxAttributes    = 100
	MaxMaxAttempts   = 100
	DefaultAttempts  = 3
	DefaultStopGrace = 10 * time.Second
	// KeepTerminal is how long an ended reservation can still be read.
	KeepTerminal = 10 * time.Minute
	// AvoidFor is how long an executor that a worker could not be started on is
	// avoided for it: long enough not to meet the same trouble at once, and no
	// longer than a host usually needs to be well again.
	AvoidFor = 10 * time.Minute
)

// Reservation is the record of one version of a reservation.
type Reservation struct {
	Key  Key
	UID  string
	Spec Spec
	// Workers is what was asked, each with its number.
	Workers WorkerSet

	// Place is unique among the living and orders versions of one epoch;
	// PlaceEpoch is the epoch that the version it took its place from was
	// accepted at, 0 for one that took its own.
	Place      int64
	PlaceEpoch int64

	State   State
	Reason  fault.Reason
	Message string

	CreatedAt, UpdatedAt, EndedAt time.Time

	// Requests are the calls that made or changed this version, for repeats.
	Requests []RequestMark
	// Origin says how it came to be queued. Parent is the uid of the version
	// that it requeues workers of, or is a part of; empty for what was asked.
	Origin Origin
	Parent string
	// Round counts the times that these workers were queued again because they
	// could not be started; Spec.MaxAttempts bounds the rounds, the first
	// included.
	Round int32
	// Failed are the executors that rounds before this one failed on, the latest
	// last. They are avoided for a while: see ConstraintsAt.
	Failed []FailedOn
	// Unwanted are workers of a version that was dispatched which were
	// cancelled one by one: the assigner evicts them.
	Unwanted WorkerSet
	// LatestTarget is the target size of the latest request that changed nothing
	// else of this version; nil while that of Spec is the latest.
	LatestTarget *int32
	// WorkerCounts are the workers by the state they ended in, kept when the
	// task is gone.
	WorkerCounts map[string]int32
	// Trace is that of the request that asked for it; versions that come of this
	// one have it too.
	Trace Trace

	// Epoch and Mod are the create and modification revisions of the key: 0
	// until the record is committed. They are not part of the stored value.
	Epoch, Mod int64
}

// FailedOn is an executor that a worker could not be started on, and when that
// was known.
type FailedOn struct {
	Executor string
	At       time.Time
}

// Avoided says whether the executor is still avoided.
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

// ConstraintsAt are the constraints of the reservation as they hold at a time:
// those asked for, and avoiding the executors that it failed on lately. The two
// lists stay apart, for only the second yields when nothing else matches.
func (r *Reservation) ConstraintsAt(now time.Time) constraint.Constraints {
	k := r.Spec.Constraints
	for _, f := range AvoidedAt(r.Failed, now) {
		k.AvoidFailed = append(k.AvoidFailed, f.Executor)
	}
	return k
}

// Ready is the record of the registry's readiness: before Since is set nothing
// is leased.
type Ready struct {
	// Since is when it became ready; zero before.
	Since time.Time
	// By is "auto", "signal" or "grace".
	By string
	// Begun is when a registry first waited for the signal.
	Begun time.Time
}

// RequestMark remembers the answer to a call.
type RequestMark struct {
	ID        string
	Change    Change
	Cancelled int32
	// Call is a fingerprint of the request; 0 for one of before there were any.
	Call uint64
}

// Stage is the record of a stage: what its next request builds on.
type Stage struct {
	Job, Stage string
	TargetSize int32
	// Numbers holds the highest number used of each worker index.
	Numbers WorkerSet
	// Idle are the latest calls that changed nothing, for repeats: a late one
	// must not be decided on what has become of the stage since.
	Idle []IdleRequest
}

// IdleRequest is a call that found everything as it asked.
type IdleRequest struct {
	ID string
	// UID is the version that an upsert found; empty for a cancel.
	UID string
	// Call is a fingerprint of the request, as in RequestMark.
	Call uint64
}
