package queue

import (
	"cmp"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/scheduler"
)

// Upserted answers a model.Upsert.
type Upserted struct {
	// View shows the newest version as the call left it, once it is durable, with its place
	// in the queue at that time.
	View
	Change model.Change
}

// Cancelled answers a request.Cancel, request.CancelJob or request.Flush.
type Cancelled struct {
	// Count is the number of living versions that the call ended, including the requeues of
	// their workers.
	Count int
	// Unknown reports whether the call named nothing that is stored. See Core.knows.
	Unknown bool
}

// WorkersCancelled answers a request.CancelWorkers.
type WorkersCancelled struct {
	// Count is the number of workers that the call removed.
	Count int
	// Unknown reports whether the stage has used none of the worker IDs.
	Unknown bool
}

// DispatchDone is the event that the outcome of the dispatch in flight is known. The core
// dispatches a task without an outcome again.
type DispatchDone struct {
	Outcomes []model.DispatchOutcome
}

// Config configures the core. Zero values are the defaults.
type Config struct {
	Scheduling scheduler.Config
	// Readiness selects what makes the registry ready; the default is ReadyAuto.
	Readiness Readiness
	// ReadinessGrace ends the wait for the signal. It counts from when the first registry
	// began to wait. With 0 the wait ends only with the signal.
	ReadinessGrace time.Duration
	// BestEffort is the cluster's mode for requests that do not set a batch mode: the
	// workers that fit start without the other workers of their batch.
	BestEffort bool
	// DefaultAttributes has the attributes of executors that a request without them gets. The
	// record of a reservation has them, so a later change affects only new requests.
	DefaultAttributes map[string]string
	// MaxQueued and MaxQueuedPerJob bound the queued reservations. The core rejects an
	// upsert that would queue one more. The defaults are 1,000,000 and 50,000.
	MaxQueued, MaxQueuedPerJob int
	// MaxStored and MaxStoredPerJob bound the bytes of the records of reservations and
	// stages, including ended reservations while they are kept. The default of MaxStored is
	// 2 GiB, a quarter of etcd's quota. etcd's history has each record once more, as it was
	// before its last change. With all other data a fifth of the quota stays free. The
	// default of MaxStoredPerJob is 512 MiB.
	MaxStored, MaxStoredPerJob int64
	// KeepEnded is how long ended versions are kept. The default is model.KeepTerminal, on
	// which callers rely. Simulators shorten it to use names again.
	KeepEnded time.Duration
	// MaxEnded, if set, bounds how many ended versions are kept. The core then forgets the
	// oldest before KeepEnded has passed, except a version that is the parent of a kept
	// version.
	MaxEnded int
}

func (c Config) withDefaults() Config {
	c.Scheduling = c.Scheduling.WithDefaults()
	c.Scheduling.BestEffort = c.BestEffort
	c.MaxQueued = cmp.Or(c.MaxQueued, 1_000_000)
	c.MaxQueuedPerJob = cmp.Or(c.MaxQueuedPerJob, 50_000)
	c.MaxStored = cmp.Or(c.MaxStored, 2<<30)
	c.MaxStoredPerJob = cmp.Or(c.MaxStoredPerJob, 512<<20)
	c.KeepEnded = cmp.Or(c.KeepEnded, model.KeepTerminal)
	return c
}
