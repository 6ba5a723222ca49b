package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

const (
	// fastFailover is shorter than any failover by the TTL: a leader renews its etcd lease in each
	// sixth of the TTL, so that five sixths are left when it is killed, plus the election.
	// A fast failover takes some tenths of a second, and several times as much on a slow
	// machine.
	fastFailover = ttl * 5 / 6
	// attempts bounds the failovers of one service: each may coincide with other load of the
	// machine, or with standbys that have used up their evictions.
	attempts = 5
	// seen is how long standbys must have seen a leader before they evict it.
	seen = time.Second
)

// jobAlone is the job of the batches that are requested when a leader is killed alone.
const jobAlone = "alone"

// failovers kills the leader of each service once there is no other fault, which rarely
// happens during the schedule, and measures how long a batch waits that is requested at
// that moment. One fast failover of a service is enough. Afterwards everything is at rest
// again.
func (r *run) failovers(ctx context.Context) {
	if len(r.report.Violations) > 0 {
		return // the cluster has not recovered, so the waits would prove nothing
	}
	defer func() {
		if _, err := r.fleet.Client().CancelJob(ctx, jobAlone); err != nil {
			r.report.addViolation("cancel of job %s: %v", jobAlone, err)
		}
		r.settle(ctx, "after leaders were killed alone")
	}()
	r.report.Failovers = map[string][]time.Duration{}
	for _, service := range services {
		for n := 0; n < 2*attempts && len(r.report.Failovers[service]) < attempts; n++ {
			stage := fmt.Sprintf("%s-%d", service, n)
			calm, err := r.batchAlone(ctx, stage+"-calm")
			if err != nil {
				r.report.addViolation("cannot kill a leader: %v", err)
				return
			}
			p, wait, err := r.failover(ctx, service, stage)
			if err != nil {
				r.report.addViolation("the leader of %s was killed alone: %v", service, err)
				return
			}
			r.Log("%s was killed alone: a batch waited %v, want at most %v", p.Name, wait.Round(time.Millisecond),
				calm.Round(time.Millisecond))
			if proxied(p.Name) || calm > fastFailover/4 {
				continue // a proxy refuses nothing for it, so that the probe does not find it dead, or the machine is slow
			}
			r.report.Failovers[service] = append(r.report.Failovers[service], wait)
			if wait < fastFailover {
				break
			}
		}
	}
}

// failover kills the leader of a service, returns how long a batch waits until its worker
// is assigned to an executor, and starts the process again.
func (r *run) failover(ctx context.Context, service, stage string) (p *child.Process, wait time.Duration, err error) {
	if err := until(ctx, func(ctx context.Context) string {
		for _, replica := range r.fleet.Processes()[service] {
			if missing := unready(ctx, r.fleet, replica); missing != "" {
				return fmt.Sprintf("%s is not ready: %s", replica.Name, missing)
			}
		}
		leader, _, err := r.fleet.Leader(ctx, service)
		if err != nil {
			return err.Error()
		}
		p = leader
		return ""
	}); err != nil {
		return nil, 0, err
	}
	if err := store.Sleep(ctx, seen); err != nil {
		return nil, 0, err
	}
	p.Kill()
	wait, err = r.batchAlone(ctx, stage)
	return p, wait, errors.Join(err, r.fleet.Restart(ctx, p))
}

// batchAlone returns how long a batch waits until its worker is assigned to an executor.
func (r *run) batchAlone(ctx context.Context, stage string) (time.Duration, error) {
	began := time.Now()
	err := until(ctx, func(ctx context.Context) string {
		// A repeated request changes nothing and returns the current state.
		batch, err := r.fleet.Client().Reserve(ctx, &berthv1.Reservation{
			Job: jobAlone, Stage: stage, Count: 1, Constraints: &berthv1.Constraints{Sku: simName}, Task: &berthv1.Task{},
		})
		switch {
		case err != nil:
			return err.Error()
		case batch.GetState() != berthv1.Reservation_ACTIVE:
			return fmt.Sprintf("batch state %v", batch.GetState())
		}
		return ""
	})
	return time.Since(began), err
}
