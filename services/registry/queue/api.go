package queue

import (
	"time"

	"berth.dev/pkg/model"
)

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

// CycleDone is the event that the outcome of a cycle is known. A candidate that
// was sent again and has no outcome still does not fit; others without one are
// candidates of the next cycle.
type CycleDone struct {
	Cycle    int64
	Outcomes []model.Outcome
	// Newest is set when the cycle was refused because executor-state has seen this
	// higher number: nothing was tried. With TooHigh it is lower, 0 for none, and the
	// number of the cycle is out of reach of it.
	Newest  int64
	TooHigh bool
}

// DispatchDone is the event that the outcome of the dispatch in flight is known.
// Tasks without an outcome are dispatched again.
type DispatchDone struct {
	Outcomes []model.DispatchOutcome
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
	// RetryEvery is how often what waits is tried without any wake-up; 1 s.
	RetryEvery time.Duration
	// MinDelay is the least time between two cycles; 1 ms.
	MinDelay time.Duration
	// CycleCandidates and CycleWorkers bound what a cycle holds beyond the heads of
	// its groups; 512 and 50,000.
	CycleCandidates, CycleWorkers int
	// CycleBytes bounds what a cycle takes as a message, heads included: one that would
	// take more ends before, and the next goes on from there. About 12 MiB, of the 16
	// that a message between Berth's processes may have: 150,000 heads that are named
	// again, 40,000 and more that are sent whole.
	CycleBytes int
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
	setDefault(&c.CycleCandidates, 512)
	setDefault(&c.CycleWorkers, 50_000)
	setDefault(&c.CycleBytes, 12<<20)
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
