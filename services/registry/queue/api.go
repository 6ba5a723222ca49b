package queue

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// Upsert is the request of a model.Input that asks for a batch, or changes
// what was asked. It is answered by Upserted, once it is durable. Refusals are
// *fault.Error.
type Upsert struct {
	Key  model.Key
	Spec model.Spec
	// Workers names each seat; Count takes seats 0 to Count-1, each with its
	// next unused number. One of the two is given.
	Workers []model.Seat
	Count   int32
	// RequestID makes a repeat answer the first result; optional.
	RequestID string
	// IfEpoch lets the call act only on the living version of this epoch.
	IfEpoch int64
	// Trace is the call's, and becomes that of the version it makes.
	Trace model.Trace

	fingerprint uint64 // of all but Trace, set by the core
}

// Upserted answers an Upsert.
type Upserted struct {
	// View shows the newest version as the call left it, durable, with its place
	// in the queue of then.
	View
	Change model.Change
}

// Cancel is the request of a model.Input that cancels every living version of
// a key. It is answered by Cancelled, once nothing of it will be started any
// more. Cancelling what is not there succeeds.
type Cancel struct {
	Key       model.Key
	RequestID string
	IfEpoch   int64
}

// CancelJob is the request of a model.Input that cancels every living
// reservation of a job; answered like Cancel.
type CancelJob struct {
	Job       string
	RequestID string
}

// Cancelled answers Cancel and CancelJob.
type Cancelled struct {
	// Count is the number of living versions that the call ended, the requeues
	// of their workers included.
	Count int
}

// SendPass is an action: offer entries to executor-state, in this order. It is
// repeated until its outcome is definite, which comes back as PassDone. No effect is ever under way when one is cut: it
// is carried out whatever becomes of effects decided after it.
type SendPass struct {
	// Pass rises within the term.
	Pass, Term int64
	// Cut is the revision at which the queues were as the pass shows them.
	Cut     int64
	Entries []PassEntry
}

// PassEntry offers one reservation.
type PassEntry struct {
	Key model.Key
	UID string
	// Epoch and Mod are the revisions of the record as it was decided on.
	Epoch, Mod  int64
	Group       string
	Constraints constraint.Constraints
	Seats       model.Seats
	Trace       model.Trace
	// Again says that the last pass found no room for it, and that it has not changed
	// since: executor-state is told UID, Mod and Group, and has the rest of the record.
	Again bool
}

// PassDone is the event that the outcome of a pass is known. An entry that was
// offered again and has no outcome still has no room; others without one are
// offered again.
type PassDone struct {
	Pass     int64
	Outcomes []Outcome
	// Newest is set when the pass was refused because executor-state has seen this
	// higher number: nothing was tried. With TooHigh it is lower, 0 for none, and the
	// number of the pass is out of reach of it.
	Newest  int64
	TooHigh bool
}

// Outcome is what became of one entry of a pass.
type Outcome struct {
	UID    string
	Result Result
	// Lease is the create revision of the lease granted.
	Lease int64
	// Reason, Message and Fitting say why it did not fit.
	Reason  fault.Reason
	Message string
	Fitting int
}

// Result is the word for the outcome of an entry.
type Result uint8

// The results; the numbers are those of the wire.
const (
	// Granted: all of its workers are leased.
	Granted Result = 1
	// NoFit: not all of its workers fit now.
	NoFit Result = 2
	// Stale: the reservation is no longer as it was decided on.
	Stale Result = 3
	// Behind: an entry of its group before it was not granted.
	Behind Result = 4
	// Later: it was not looked at, nor was anything after it.
	Later Result = 5
)

var resultNames = [...]string{"unknown", "granted", "no_fit", "stale", "behind", "later"}

func (r Result) String() string { return resultNames[r] }

// HandOver is an action: hand leases over to the assigner. Like a pass it is
// one call in flight, repeated until definite, and answered by HandedOver.
type HandOver struct {
	Term  int64
	Tasks []Task
}

// Task is one lease to hand over.
type Task struct {
	Key model.Key
	UID string
	// Mod is the modification revision of the reservation as it was decided on.
	Mod int64
	// Lease is the create revision of the lease.
	Lease int64
	Trace model.Trace
}

// HandedOver is the event that the outcome of the hand-over in flight is known.
// Tasks without an outcome are handed over again.
type HandedOver struct {
	Outcomes []TaskOutcome
}

// TaskOutcome is what the assigner made of one task.
type TaskOutcome struct {
	UID string
	// Taken: the task is durable. Otherwise it is refused for Reason.
	Taken  bool
	Reason fault.Reason
}

// Config holds what may be chosen. Zero values are the defaults.
type Config struct {
	// Order of the queues; OrderByEpoch unless given.
	Order Order
	// Readiness says what makes the registry ready; ReadyAuto unless given.
	Readiness Readiness
	// ReadinessGrace ends the wait for the signal, counted from when the first
	// registry began to wait; 0 waits for the signal alone.
	ReadinessGrace time.Duration
	// BestEffort is the cluster's mode, for what does not say: workers that fit
	// start without the others of their batch.
	BestEffort bool
	// Debounce gathers changes of the inventory into one wake-up, counted from
	// the first of them; 50 ms.
	Debounce time.Duration
	// RetryEvery is how often what waits is offered without any wake-up; 1 s.
	RetryEvery time.Duration
	// MinDelay is the least time between the cuts of two passes; 1 ms.
	MinDelay time.Duration
	// PassEntries and PassWorkers bound what a pass holds beyond the heads of
	// its groups; 512 and 50,000.
	PassEntries, PassWorkers int
	// PassBytes bounds what a pass takes as a message, heads included: one that would
	// take more ends before, and the next goes on from there. About 12 MiB, of the 16
	// that a message between Berth's processes may have: 150,000 heads that are offered
	// again, 40,000 and more that are not.
	PassBytes int
	// MaxQueued and MaxQueuedPerJob bound the reservations that wait: an upsert that
	// would queue one more is refused. 1,000,000 and 50,000.
	MaxQueued, MaxQueuedPerJob int
	// MaxStored and MaxStoredPerJob bound the bytes that the records of reservations
	// and stages take, ended ones included as long as they are kept. 2 GiB, a quarter
	// of etcd's quota: each record is in etcd's history once more, as it was before it
	// changed; with what else is stored a fifth of the quota stays free. And 512 MiB.
	MaxStored, MaxStoredPerJob int64
	// KeepEnded is how long ended versions are kept; model.KeepTerminal, which is
	// what callers count on. Simulators shorten it, so that names come again.
	KeepEnded time.Duration
	// MaxEnded, when given, is how many ended versions are kept at most: the oldest
	// are forgotten before KeepEnded, except while a version that came of them is
	// kept. Without it only time bounds them.
	MaxEnded int
}

func (c Config) withDefaults() Config {
	if c.Order == nil {
		c.Order = OrderByEpoch{}
	}
	setDefault(&c.Debounce, 50*time.Millisecond)
	setDefault(&c.RetryEvery, time.Second)
	setDefault(&c.MinDelay, time.Millisecond)
	setDefault(&c.PassEntries, 512)
	setDefault(&c.PassWorkers, 50_000)
	setDefault(&c.PassBytes, 12<<20)
	setDefault(&c.MaxQueued, 1_000_000)
	setDefault(&c.MaxQueuedPerJob, 50_000)
	setDefault(&c.MaxStored, 2<<30)
	setDefault(&c.MaxStoredPerJob, 512<<20)
	setDefault(&c.KeepEnded, model.KeepTerminal)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
