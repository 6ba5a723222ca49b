package agent

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Stats describes an agent at one moment. The counters start at zero with the process.
type Stats struct {
	// Workers is the number of workers by state. A worker that has ended counts until the
	// control plane has acknowledged its end.
	Workers map[model.WorkerState]int
	// Starts is the number of started workers, and FailedStarts the number of starts that
	// failed. Ended is the number of ended workers by their last state; it includes workers
	// of an earlier agent that this agent adopted.
	Starts, FailedStarts uint64
	Ended                map[model.WorkerState]uint64
	// Cluster is the name of the cluster that registered the executor. It is empty before the
	// first registration, and if the cluster has an older version.
	Cluster string
	// Registrations is the number of successful registrations, and Streams the number of
	// heartbeat streams that the control plane answered.
	Registrations, Streams uint64
	// SinceAnswer is the time since the last answer of the control plane to a heartbeat. It is
	// negative before the first answer.
	SinceAnswer time.Duration
	// EndedBytes is the disk space of the kept directories of ended workers. FreeBytes is the
	// free space of the file system of Config.Dir; it is negative if that is unknown.
	EndedBytes, FreeBytes int64
}

// counters has the counters of Stats. Agent.mu guards it.
type counters struct {
	starts, failedStarts   uint64
	ended                  map[model.WorkerState]uint64
	registrations, streams uint64
	cluster                string
	// failure is the error of the last attempt to register; nil after a success.
	failure error
	// answering is set while the current heartbeat stream has an answer.
	answering  bool
	lastAnswer time.Time
}

// Stats returns the current metrics of the agent.
func (a *Agent) Stats() Stats {
	s := Stats{Workers: map[model.WorkerState]int{}, Ended: map[model.WorkerState]uint64{}, SinceAnswer: -1, FreeBytes: -1}
	if p, ok := a.cfg.Driver.(*Process); ok {
		p.mu.Lock()
		s.EndedBytes = p.retiredBytes()
		p.mu.Unlock()
	}
	var disk unix.Statfs_t
	if a.cfg.Dir != "" && unix.Statfs(a.cfg.Dir, &disk) == nil {
		s.FreeBytes = int64(disk.Bavail) * disk.Bsize
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.ledger.entries {
		s.Workers[e.state]++
	}
	for state, n := range a.counts.ended {
		s.Ended[state] = n
	}
	s.Starts, s.FailedStarts = a.counts.starts, a.counts.failedStarts
	s.Cluster = a.counts.cluster
	s.Registrations, s.Streams = a.counts.registrations, a.counts.streams
	if !a.counts.lastAnswer.IsZero() {
		s.SinceAnswer = time.Since(a.counts.lastAnswer)
	}
	return s
}

// Ready returns nil if the executor is registered and the control plane answers its
// heartbeats, and otherwise the reason why not.
func (a *Agent) Ready() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ready()
}

// ready implements Ready. a.mu must be locked.
func (a *Agent) ready() error {
	why := ""
	switch {
	case a.superseded:
		why = "another agent has taken the ID " + a.cfg.ID
	case a.ending || a.closed:
		return a.errEnding()
	case a.counts.failure != nil:
		why = fmt.Sprintf("executor %s is not registered: %s", a.cfg.ID, status.Convert(a.counts.failure).Message())
	case a.counts.registrations == 0:
		why = "executor " + a.cfg.ID + " is not registered yet"
	case !a.counts.answering:
		why = "the gateways do not answer the heartbeats of executor " + a.cfg.ID
	default:
		return nil
	}
	return fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s", why)
}

// AwaitReady waits until Ready returns nil, or until ctx ends. It returns the error of ctx.
func (a *Agent) AwaitReady(ctx context.Context) error {
	for {
		a.mu.Lock()
		err, changed := a.ready(), a.changed
		a.mu.Unlock()
		if err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// answering records an answer to a heartbeat. a.mu must be locked.
func (a *Agent) answering() {
	a.counts.lastAnswer = time.Now()
	if !a.counts.answering {
		a.counts.streams++
		a.counts.answering = true
		a.broadcast()
	}
}

// registerFailed records the error of an attempt to register. If no gateway was reached,
// the error says no more than that.
func (a *Agent) registerFailed(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.Canceled {
		a.counts.failure = err
	}
}

// streamEnded records that the heartbeat stream has ended.
func (a *Agent) streamEnded() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts.answering = false
}
