package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
)

// State is the state of a reservation. LEASING, OFFERING, ASSIGNING and HELD are derived from
// records of other services and are never stored.
type State uint8

// The states of a reservation.
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
	Held
	Offering
)

var stateNames = [...]string{"", "QUEUED", "LEASING", "ASSIGNING", "ACTIVE", "CANCELLING", "COMPLETED", "CANCELLED",
	"EXPIRED", "FAILED", "REPLACED", "HELD", "OFFERING"}

func (s State) String() string { return stateNames[s] }

// Terminal reports whether the state is final.
func (s State) Terminal() bool { return s >= Completed && s <= Replaced }

// Change is the effect of an upsert or of a bind.
type Change uint8

// The effects of an upsert, and Bound for that of a bind.
const (
	ChangeUnset Change = iota
	Created
	Unchanged
	Reordered
	ChangeReplaced
	Extended
	Bound
	Updated
)

var changeNames = [...]string{"", "CREATED", "UNCHANGED", "REORDERED", "REPLACED", "EXTENDED", "BOUND", "UPDATED"}

func (c Change) String() string { return changeNames[c] }

// Class is the priority class of a reservation.
type Class uint8

// The priority classes, the most urgent first.
const (
	ClassUnset Class = iota
	ClassReplace
	ClassScale
	ClassNewJob
)

var classNames = [...]string{"none", "REPLACE", "SCALE", "NEW_JOB"}

func (c Class) String() string { return classNames[c] }

// Above reports whether c is a higher class than o. ClassUnset is the lowest class.
func (c Class) Above(o Class) bool { return c-1 < o-1 } // unset wraps to the last

// Priority orders reservations of one queue.
type Priority struct {
	Class Class
	Tier  int32
	// Order, if set, is compared before the epoch. A lower order comes first.
	Order *int64
}

// Equal reports whether two priorities are equal.
func (p Priority) Equal(o Priority) bool {
	if p.Class != o.Class || p.Tier != o.Tier || (p.Order == nil) != (o.Order == nil) {
		return false
	}
	return p.Order == nil || *p.Order == *o.Order
}

// Batch is the batch mode. It decides if workers may start without the other workers of
// their batch.
type Batch uint8

// The batch modes. The numbers are equal to the numbers in the API. BatchUnset stands for
// the cluster's mode.
const (
	BatchUnset Batch = iota
	BatchStrict
	BatchBestEffort
)

// Start says what happens to a batch if one worker cannot be started.
type Start uint8

// The start modes. The numbers are equal to the numbers in the API.
const (
	StartUnset Start = iota
	// StartProgressive: the other workers of the batch start.
	StartProgressive
	// StartTogether: all workers are stopped, and the batch is queued again.
	StartTogether
)

// OnFailure says what happens to a worker that no attempt could start.
type OnFailure uint8

// The modes. The numbers are equal to the numbers in the API.
const (
	OnFailureUnset OnFailure = iota
	// OnFailureRequeue: only that worker is queued again.
	OnFailureRequeue
	// OnFailureNotify: an event reports the failure.
	OnFailureNotify
)

// Restart says which workers that ended by themselves are started again.
type Restart uint8

// The modes of restart.
const (
	RestartNever Restart = iota
	// RestartOnFailure: FAILED workers.
	RestartOnFailure
	// RestartAlways: COMPLETED workers too.
	RestartAlways
)

var restartNames = [...]string{"NEVER", "ON_FAILURE", "ALWAYS"}

func (r Restart) String() string { return restartNames[r] }

// OnWorkerLoss says what happens to a worker whose executor was LOST or drained, or that its
// executor stopped. Replacing it is no restart: Spec.RestartLimit does not limit it.
type OnWorkerLoss uint8

// The modes.
const (
	// OnLossNotify: an event reports the loss.
	OnLossNotify OnWorkerLoss = iota
	// OnLossReplace: the worker is queued again.
	OnLossReplace
)

var onLossNames = [...]string{"NOTIFY", "REPLACE"}

func (o OnWorkerLoss) String() string { return onLossNames[o] }

// OnWorkerFailure says what the failure of one worker means for the other workers of its
// reservation. A worker that Spec.Restart restarts has not failed, and neither has one that moved
// (TaskWorker.Moved).
type OnWorkerFailure uint8

// The modes.
const (
	// OnFailedNotify: an event reports the failure, and the other workers continue.
	OnFailedNotify OnWorkerFailure = iota
	// OnFailedRestart: all workers are stopped, and queued again as a gang.
	OnFailedRestart
	// OnFailedFail: all workers are stopped, and the reservation is FAILED.
	OnFailedFail
)

var onFailedNames = [...]string{"NOTIFY", "RESTART_GANG", "FAIL_GANG"}

func (o OnWorkerFailure) String() string { return onFailedNames[o] }

// ExitCodes says by the exit code of a worker whether it is restarted.
type ExitCodes struct {
	// Retry has the codes that are restarted. If it is empty, these are all that Fail does not have.
	// Fail has the codes that are final.
	Retry, Fail []int32
}

// Equal reports whether both have the same codes, in any order.
func (e *ExitCodes) Equal(o *ExitCodes) bool {
	if e == nil || o == nil {
		return e == o
	}
	return sameIndexes(e.Retry, o.Retry) && sameIndexes(e.Fail, o.Fail)
}

// sameIndexes reports whether two sets of numbers are equal.
func sameIndexes(a, b []int32) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// Requeue says which place in its queue a worker has that is queued again.
type Requeue uint8

// The places.
const (
	// RequeueFirst: before all versions that are not requeued.
	RequeueFirst Requeue = iota
	// RequeueByOrder: the place that the version that had the worker had by its priority and
	// epoch.
	RequeueByOrder
)

var requeueNames = [...]string{"FIRST", "BY_ORDER"}

func (r Requeue) String() string { return requeueNames[r] }

// Shrink says what a request means for running workers that it does not name.
type Shrink uint8

// The modes.
const (
	// ShrinkNever: they stay.
	ShrinkNever Shrink = iota
	// ShrinkHighest: those with the highest indexes are stopped until the stage has no more workers
	// than its target size.
	ShrinkHighest
)

var shrinkNames = [...]string{"NEVER", "STOP_HIGHEST"}

func (s Shrink) String() string { return shrinkNames[s] }

// LifetimeFrom says when a lifetime begins.
type LifetimeFrom uint8

// The begins of a lifetime.
const (
	LifetimeUnset LifetimeFrom = iota
	// FromCreated: when the registry accepts the reservation.
	FromCreated
	// FromLive: for each worker, when it becomes RUNNING.
	FromLive
)

var lifetimeNames = [...]string{"", "CREATED", "LIVE"}

func (f LifetimeFrom) String() string { return lifetimeNames[f] }

// Lifetime limits how long a reservation or each of its workers lives. The zero value sets
// no limit.
type Lifetime struct {
	For  time.Duration
	From LifetimeFrom
}

// Readiness says when a worker is RUNNING.
type Readiness uint8

// The modes of readiness. The numbers are equal to the numbers in the API.
const (
	ReadinessUnset Readiness = iota
	// ReadyStarted: once its process has started.
	ReadyStarted
	// ReadyReported: once its process reports that it is ready.
	ReadyReported
)

// Origin says why a version was queued.
type Origin uint8

// The origins. The numbers are equal to the numbers in the record.
const (
	// OriginRequested: a job service requested it.
	OriginRequested Origin = iota
	// OriginRequeue: the version has workers of its parent that are queued again.
	OriginRequeue
	// OriginPart: the version has the workers of its best-effort parent that fitted.
	OriginPart
)

// Task describes the process that an executor starts for each worker.
type Task struct {
	Command   string
	Args      []string
	Env       map[string]string
	Payload   []byte
	StopGrace time.Duration
	// StartTimeout is how long the worker may take to become RUNNING, from when its agent
	// begins the start. It is 0 for no limit; see StartLimit.
	StartTimeout time.Duration
	Readiness    Readiness
	// StopSignal is the signal that asks the worker to stop. It is empty for SIGTERM.
	StopSignal Signal
}

// IsEmpty reports whether the task says nothing about what a worker runs.
func (t Task) IsEmpty() bool {
	return t.Command == "" && len(t.Args) == 0 && len(t.Env) == 0 && len(t.Payload) == 0
}

// StartLimit returns how long the worker may take to become RUNNING, or 0 for no limit.
func (t Task) StartLimit() time.Duration {
	if t.StartTimeout == 0 && t.Readiness == ReadyReported {
		return DefaultReadyTimeout
	}
	return t.StartTimeout
}

// Spec is the request for a reservation, without the workers.
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
	// ExpireAt and NotBefore are the requested times; zero for none.
	ExpireAt, NotBefore time.Time
	Lifetime            Lifetime
	Restart             Restart
	OnWorkerLoss        OnWorkerLoss
	// Requeue is the place of workers that are queued again.
	Requeue Requeue
	// MaxRestarts is nil for the default; see RestartLimit.
	MaxRestarts *int32
	// Volume is the volume that each worker index requests; nil for none.
	Volume *VolumeRequest
	// Hold is set if the reservation waits for a bind once it has its executors. HoldTimeout
	// is nil for the default; see HoldLimit.
	Hold        bool
	HoldTimeout *time.Duration
	// OnWorkerFailure is about a worker that fails while others of the reservation run.
	OnWorkerFailure OnWorkerFailure
	// CompletesWith has the indexes of the workers whose end is the end of the reservation; empty
	// if that is the end of all workers.
	CompletesWith []int32
	// ExitCodes is nil if the exit code does not matter; see RestartsExit.
	ExitCodes *ExitCodes
	// Shrink is about the workers of the stage beyond TargetSize, at the time of the request.
	Shrink Shrink
}

// RestartsExit reports whether ExitCodes lets a worker be restarted that ended with an exit code.
// The code is nil if it is not known.
func (s *Spec) RestartsExit(code *int32) bool {
	e := s.ExitCodes
	switch {
	case e == nil:
		return true
	case code == nil:
		return len(e.Retry) == 0
	}
	return !slices.Contains(e.Fail, *code) && (len(e.Retry) == 0 || slices.Contains(e.Retry, *code))
}

// CompletesWithSame reports whether both specs name the same workers in CompletesWith.
func (s *Spec) CompletesWithSame(o *Spec) bool { return sameIndexes(s.CompletesWith, o.CompletesWith) }

// HoldLimit returns how long a reservation with Hold may be held, or 0 for no limit.
func (s Spec) HoldLimit() time.Duration {
	if s.HoldTimeout != nil {
		return *s.HoldTimeout
	}
	return DefaultHoldTimeout
}

// IsBestEffort reports whether workers may start without the other workers of their
// batch. The request decides, and otherwise the cluster's mode. A batch that starts
// together or restarts as a gang, or is held, is never best effort. The mode is evaluated when it
// matters and never stored, so the cluster's mode may change while reservations are pending.
func (s Spec) IsBestEffort(mode bool) bool {
	return s.Start != StartTogether && s.OnWorkerFailure != OnFailedRestart && !s.Hold && !s.Constraints.Cells &&
		(s.Batch == BatchBestEffort || s.Batch == BatchUnset && mode)
}

// RestartLimit returns how often in a row a worker is queued again at most. It does not
// apply to RestartAlways.
func (s Spec) RestartLimit() int32 {
	if s.MaxRestarts != nil {
		return *s.MaxRestarts
	}
	return s.MaxAttempts - 1
}

// TracksRunning reports whether the records of the workers have the time at which they became
// RUNNING.
func (s Spec) TracksRunning() bool {
	return s.Lifetime.From == FromLive || s.Restart != RestartNever || s.OnWorkerLoss != OnLossNotify ||
		s.OnWorkerFailure != OnFailedNotify
}

// RestartDelay returns how long a worker waits that is queued again for the nth time in a
// row: 0, 1, 2, 4 and up to 300 seconds. The first restart is immediate, because most
// failures are not repeated.
func RestartDelay(n int32) time.Duration {
	if n < 2 {
		return 0
	}
	return min(time.Second<<min(n-2, 16), MaxRestartDelay)
}

// The limits of a request. Configuration can only lower them.
const (
	MaxWorkers = 50_000
	// MaxIndex is the highest worker index. MaxRequested is the highest number in a request.
	// Only Berth uses the higher numbers up to MaxNumber, when it requeues workers.
	MaxIndex     = 1<<30 - 1
	MaxRequested = 1_000_000_000
	MaxNumber    = 1<<30 - 1
	MaxPayload   = 64 << 10
	// AgentVariables is the prefix of the variables that agents set.
	AgentVariables  = "BERTH_"
	MaxLabels       = 64
	MaxAttributes   = 100
	MaxMaxAttempts  = 100
	DefaultAttempts = 3
	MaxMaxRestarts  = 100
	// MaxExitCode is the highest exit code of a process. MaxExitCodes bounds each list of them, and
	// MaxCompletesWith the list of indexes.
	MaxExitCode      = 255
	MaxExitCodes     = 64
	MaxCompletesWith = 64
	MaxStartTimeout  = 24 * time.Hour
	// DefaultReadyTimeout is the start timeout of a task with ReadyReported and no other.
	DefaultReadyTimeout = 10 * time.Minute
	MaxRestartDelay     = 300 * time.Second
	// StableAfter is how long a worker must run so that its next failure counts as the first.
	// The delay of restarts is never longer than half of it.
	StableAfter = 10 * time.Minute
	// DefaultHoldTimeout is how long a reservation is held that sets no limit. It frees what
	// a client has forgotten, and is long enough for use on the next day.
	DefaultHoldTimeout = 24 * time.Hour
	DefaultStopGrace   = 10 * time.Second
	// KeepTerminal is how long clients can read an ended reservation.
	KeepTerminal = 10 * time.Minute
	// AvoidFor is how long a reservation avoids an executor that could not start one of its
	// workers. It is long enough not to hit the same fault at once, and not longer than a
	// host usually needs to recover.
	AvoidFor = 10 * time.Minute
	// MaxEarlier bounds the ranges of earlier numbers in the record of a requeue. The numbers
	// of a worker have gaps only if other names of its stage use its index.
	MaxEarlier = 16
	// MaxEarlierOf bounds the different earlier numbers in the record of a round. Of a worker beyond
	// it, these are the Round numbers before the present one.
	MaxEarlierOf = 256
	// MaxContinues bounds the versions that a round of a gang continues.
	MaxContinues = 32
)

// Reservation is the record of one version of a reservation.
type Reservation struct {
	Key  Key
	UID  string
	Spec Spec
	// Workers has the requested workers, each with its number.
	Workers WorkerSet

	// Place is unique among the live versions. It orders the versions with the same epoch.
	// PlaceEpoch is the epoch of the version from which this version inherited its place, or
	// 0.
	Place      int64
	PlaceEpoch int64
	// RefusedEpoch is the epoch that ordered the workers before the assigner refused their dispatch,
	// or 0. If it is set, they wait at the tail, and the part of their priority does not count that
	// would place them before others. Their next round has this epoch and this priority again.
	RefusedEpoch int64

	State   State
	Reason  fault.Reason
	Message string

	CreatedAt, UpdatedAt, EndedAt time.Time

	// Requests has the calls that made or changed this version. The registry uses them to
	// recognize repeats.
	Requests []RequestMark
	// Origin says why the version was queued. Parent is the UID of the version whose workers
	// this version requeues, of which it is a part, or of which it is the next round. A
	// requeue of a requeue has the same parent as the first. Otherwise Parent is empty.
	Origin Origin
	Parent string
	// Round is the number of times that these workers were queued again. Failures is the number
	// of these times in a row that followed a failure and no move (TaskWorker.Moved): of the worker
	// of a requeue, which begins anew after it has run for StableAfter, or of a batch that could
	// not start together. Spec.RestartLimit limits Failures of a requeue, and Spec.MaxAttempts
	// those of a batch.
	Round, Failures int32
	// Requeued has the workers of the version whose index was queued again since they ended, by
	// a requeue or by another request for the reservation. The transaction that queues a requeue
	// also stores it. Without RecordsRequeues, which is set in the ACTIVE records of all Berth
	// versions that store it, an index was queued again if its stage has a higher number of it.
	Requeued        WorkerSet
	RecordsRequeues bool
	// Granted is set if the workers had executors before the version was queued; see
	// AwaitsFirstGrant.
	Granted bool
	// Split is set if the version is what is left of a batch after parts of it went ahead, or
	// replaces such a version. Its workers count for the reservation also if it ends before they
	// had executors.
	Split bool
	// Earlier has the numbers that the worker of a requeue had before, in ascending order. It
	// has at most MaxEarlier ranges, the first and the latest. If it is empty, these are the
	// Round numbers before the present one.
	Earlier []NumberRange
	// EarlierOf has the earlier numbers of the workers of a round of a gang that restarts.
	EarlierOf []EarlierNumbers
	// Continues has the epochs of the versions whose workers a round of a gang that restarts has, in
	// ascending order: at most MaxContinues, the first and the latest.
	Continues []int64
	// Failed has the executors on which earlier rounds failed, the latest last. The
	// reservation avoids these executors for AvoidFor; see ConstraintsAt.
	Failed []FailedOn
	// FailedFor is the reason of the failure after which these workers were queued again. It is
	// empty if they were not, or if they moved.
	FailedFor fault.Reason
	// Unwanted has the workers of a dispatched version that were cancelled individually. The
	// assigner evicts them.
	Unwanted WorkerSet
	// StopGraces has the workers that were cancelled with a shorter time to end than Spec.Task
	// says; see GraceOf.
	StopGraces []StopGrace
	// LatestTarget is the target size of the latest request that changed nothing but the
	// target size of this version. It is nil if the target size in Spec is the latest.
	LatestTarget *int32
	// WorkerCounts has the number of workers in each final state. It remains after the task
	// is deleted.
	WorkerCounts map[string]int32
	// Ends has the ends of workers whose task is deleted, as far as the view of the reservation
	// needs them; nil for none.
	Ends *Ends
	// First is the UID of the version with which the reservation of the key began: the one that
	// was requested while no version lived. It is empty in that version, and in versions with a
	// Parent of an older Berth version, which have the First of the parent.
	First string
	// LifetimeEnd is when a lifetime from FromCreated ends; zero without one. NotBefore is the
	// time at which the version enters its queue; zero for at once.
	LifetimeEnd, NotBefore time.Time
	// Missing has the workers of the version that have ended for good: Berth does not queue them
	// again, and they were not COMPLETED, cancelled or at the end of their lifetime. The end of the
	// version sets it. It also has such workers of the deleted versions in Ends.Past.
	Missing WorkerSet
	// Latest is the latest request for the reservation if it differs from what this version has;
	// nil if it does not. Versions that derive from this version take it as far as
	// request.Take says.
	Latest *Latest
	// BoundAt is the time at which a version with Spec.Hold was bound; zero before. Then
	// Spec.Task is the task of the bind. Versions that derive from this version inherit it.
	BoundAt time.Time
	// RequestedTask is a fingerprint of the task that the request for a bound version had, or of no task
	// once a later request had another; 0 in records of Berth versions that did not store it.
	RequestedTask uint64
	// Chosen is the ID of the cell that a bind has chosen for this version; empty before.
	Chosen string
	// Trace is the trace of the request. Versions that derive from this version inherit the
	// trace.
	Trace Trace

	// Epoch and Mod are the create and mod revisions of the key. They are 0 until the record
	// is committed, and are not part of the stored value.
	Epoch, Mod int64
}

// FailuresBefore returns how often in a row the index of a worker of the version had failed
// before the worker ended. Only a requeue counts failures of one worker. The failures of a batch
// are those to start together.
func (r *Reservation) FailuresBefore(w *TaskWorker) int32 {
	if r.Origin != OriginRequeue || w.Stable() {
		return 0
	}
	return r.Failures
}

// Ends has the ends of workers by how they ended.
type Ends struct {
	// Own has the workers of the version itself that did not end COMPLETED, once the version has
	// ended. If they have too many runs, WorkerCounts counts more workers than Own has.
	Own []End
	// Past has workers of other versions of the reservation, whose records are deleted: for each
	// index the newest one. Counted has those that Past only counts.
	Past    []End
	Counted WorkerSet
	// Cause is the first failure in time of all of them; zero if none failed.
	Cause Failure
}

// End is how some workers ended.
type End struct {
	// State is the final state. It is WorkerUnset for workers of a version that ended before it
	// was dispatched.
	State WorkerState
	// GaveUp is set for workers that Berth did not queue again because their limit was reached.
	GaveUp bool
	// Cancelled is set in Ends.Past for workers that were cancelled, or whose version was cancelled or
	// expired: a later request for their index is a new one.
	Cancelled bool
	Workers   WorkerSet
	// More is the number of further workers, which are not known by index.
	More int32
}

// EarlierNumbers has the numbers that some workers had before, in ascending order: at most MaxEarlier
// ranges, the first and the latest.
type EarlierNumbers struct {
	Workers WorkerSet
	Numbers []NumberRange
}

// Failure is how a worker failed.
type Failure struct {
	ID WorkerID
	At time.Time
	// Text describes the failure.
	Text string
}

// Before reports whether the failure is before another one: earlier in time, or at the same
// time with a lower index. A zero failure is before none.
func (f Failure) Before(o Failure) bool {
	return !f.At.IsZero() && (o.At.IsZero() || cmp.Or(f.At.Compare(o.At), f.ID.Compare(o.ID)) < 0)
}

// MaxEndRuns bounds the runs of workers in each list of Ends, so that a record stays small.
const MaxEndRuns = 1024

// ExpiresAt returns the time at which the version expires in any state, or the zero time.
func (r *Reservation) ExpiresAt() time.Time {
	at, end := r.Spec.ExpireAt, r.LifetimeEnd
	if at.IsZero() || !end.IsZero() && end.Before(at) {
		return end
	}
	return at
}

// Holds reports whether the version is held once it has its executors.
func (r *Reservation) Holds() bool { return r.Spec.Hold && r.BoundAt.IsZero() }

// AwaitsFirstGrant reports whether the version waits for the first executors of its request, which
// Spec.QueueTimeout limits. Older Berth versions do not store Granted.
func (r *Reservation) AwaitsFirstGrant() bool {
	return !r.Granted && r.Origin != OriginRequeue && r.Round == 0
}

// RequeuedFirst reports whether the version comes before all versions that are not requeued.
func (r *Reservation) RequeuedFirst() bool {
	return r.Origin == OriginRequeue && r.Spec.Requeue == RequeueFirst
}

// QueuedAt returns the time at which the version entered or enters its queue.
func (r *Reservation) QueuedAt() time.Time {
	if r.NotBefore.After(r.CreatedAt) {
		return r.NotBefore
	}
	return r.CreatedAt
}

// Demand says what a version requests of the fleet at a time.
type Demand uint8

const (
	// NoDemand means that the version has executors, is being stopped or has ended.
	NoDemand Demand = iota
	// DemandLater means that the version has no executors, and its NotBefore has not passed. It is
	// in no queue. Its request or a restart delays it.
	DemandLater
	// DemandNow means that the version is pending, that is, in its queue.
	DemandNow
)

// DemandAt returns what the version requests at a time. placed reports whether it has executors:
// a lease or a task, or cells keep executors for it. All services count pending reservations
// and workers by this method, so that their numbers agree. A quarantined stage has no demand.
func (r *Reservation) DemandAt(now time.Time, placed bool) Demand {
	switch {
	case placed || r.State != Queued:
		return NoDemand
	case r.NotBefore.After(now):
		return DemandLater
	}
	return DemandNow
}

// Group returns the ID of the group that the reservation belongs to: that of its
// constraints. With a volume it is a group of the key and the first worker index. So a worker
// index that waits for its volume blocks no other.
//
// A version whose cell is chosen, or that was bound before its cell withdrew, is a group of its
// own, because a bind waits behind nobody. The requeues of a reservation in a cell are a group: they
// may wait for this cell while another one has capacity for others.
//
// So are the workers of a reservation that are queued again because of a fault of their task: they
// avoid the executors on which they failed, and these may have capacity for others.
func (r *Reservation) Group() string {
	switch {
	case r.Spec.Constraints.Cells && (r.Chosen != "" || !r.BoundAt.IsZero()):
		return r.Spec.Constraints.GroupOf(";bound:" + r.UID)
	case r.Spec.Constraints.Cells && r.Origin == OriginRequeue:
		return r.Spec.Constraints.GroupOf(";requeued:" + r.Key.String())
	case r.Spec.Volume == nil && r.BlamesTask():
		return r.Spec.Constraints.GroupOf(";bad-task:" + r.Key.String())
	case r.Spec.Volume == nil:
		return r.Spec.Constraints.Group()
	}
	return r.Spec.Constraints.GroupOf(fmt.Sprintf(";volume:%s/%d", r.Key, r.FirstIndex()))
}

// BlamesTask reports whether the workers of the reservation are queued again, and the task was at fault
// when they last could not be started.
func (r *Reservation) BlamesTask() bool {
	return len(r.Failed) > 0 && r.Failed[len(r.Failed)-1].BadTask
}

// FirstIndex returns the lowest worker index of the reservation.
func (r *Reservation) FirstIndex() int32 {
	if len(r.Workers) == 0 {
		return 0
	}
	return r.Workers[0].First
}

// FailedOn is an executor that could not start a worker, and the time at which the
// failure was known.
type FailedOn struct {
	Executor string
	At       time.Time
	// BadTask is set if the task was at fault.
	BadTask bool
	// Refused is set if the agent refused the task because of its allow-lists (Executor.AllowLists).
	Refused bool
}

// Avoided reports whether the executor is still avoided at the given time.
func (f FailedOn) Avoided(now time.Time) bool { return now.Before(f.At.Add(AvoidFor)) }

// AvoidedAt returns the executors of the list that are still avoided at the given time.
func AvoidedAt(failed []FailedOn, now time.Time) (avoided []FailedOn) {
	for _, f := range failed {
		if f.Avoided(now) {
			avoided = append(avoided, f)
		}
	}
	return avoided
}

// ConstraintsAt returns the constraints of the reservation at a time: the requested
// constraints, and in AvoidFailed the executors to avoid because of recent failures.
// AvoidFailed is separate from the requested executors to avoid, because it is ignored if
// no other executor matches.
func (r *Reservation) ConstraintsAt(now time.Time) constraint.Constraints {
	k := r.Spec.Constraints
	for _, f := range AvoidedAt(r.Failed, now) {
		k.AvoidFailed = append(k.AvoidFailed, f.Executor)
		if f.Refused {
			k.RefusedBy = append(k.RefusedBy, f.Executor)
		}
	}
	return k
}

// Ready is the record of the registry's readiness. Until Since is set, no lease is
// granted.
type Ready struct {
	// Since is the time at which the registry became ready. It is zero before that.
	Since time.Time
	// By is "auto", "signal" or "grace".
	By string
	// Begun is the time at which a registry first waited for the signal.
	Begun time.Time
}

// Latest is a request for a reservation whose version was dispatched before.
type Latest struct {
	Spec Spec
	// Count or Workers has the requested workers. Both are unset if these are the workers of the
	// reservation.
	Count   int32
	Workers WorkerSet
	// Adds is set if the request listed workers that it added to those of the reservation. It says
	// nothing about the others.
	Adds bool
	// At is the time from which a lifetime of the request counts that begins when it is accepted.
	At time.Time
}

// Requested returns the latest request for the reservation, without its workers.
func (r *Reservation) Requested() *Spec {
	if r.Latest != nil {
		return &r.Latest.Spec
	}
	return &r.Spec
}

// FieldResult says to which workers a field of the latest request applies.
type FieldResult struct {
	// Field is the path of the field in the API.
	Field   string
	Applies Applies
	// Message says which workers keep another value, and how to change that.
	Message string
}

// Applies says to which workers a field applies.
type Applies uint8

// The values. The numbers are equal to the numbers in the API.
const (
	AppliesUnset Applies = iota
	// AppliesNow: to the whole reservation.
	AppliesNow
	// AppliesLater: to workers that Berth dispatches later.
	AppliesLater
	// AppliesNot: to no worker of this reservation.
	AppliesNot
)

var appliesNames = [...]string{"", "NOW", "LATER", "NO"}

func (a Applies) String() string { return appliesNames[a] }

// RequestMark is the stored answer to a call.
type RequestMark struct {
	ID        string
	Change    Change
	Cancelled int32
	// Fields has the fields that an upsert changed, as request.Fields.
	Fields uint64
	// Call is a fingerprint of the request. It is 0 in records of Berth versions that had no
	// fingerprints.
	Call uint64
}

// Stage is the record of a stage. The registry needs it to decide the next request for
// the stage.
type Stage struct {
	Job, Stage string
	TargetSize int32
	// Numbers has the highest number used for each worker index.
	Numbers WorkerSet
	// Idle has the latest calls that changed nothing. The registry uses them to recognize
	// repeats: a late repeat must not act on a later state of the stage.
	Idle []IdleRequest
}

// IdleRequest is a call that changed nothing, because the stage already had the requested
// state.
type IdleRequest struct {
	ID string
	// UID is the uid of the version that an upsert found. It is empty for a cancel.
	UID string
	// Call has the same meaning as in RequestMark.
	Call uint64
}
