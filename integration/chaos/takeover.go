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
	// swift is shorter than any failover that waits for the TTL. A leader renews its etcd
	// lease every sixth of the TTL, so when it is killed, at least five sixths of the TTL
	// remain. The election takes additional time. A fast failover takes some tenths of a
	// second, and several times as much on a slow machine.
	swift = ttl * 5 / 6
	// tries is the maximum number of failovers of one service. A failover may be slow
	// because of other load on the machine, or because the standbys have used up their
	// evictions.
	tries = 5
	// seen is the time for which a standby must have seen a leader before it evicts the
	// leader.
	seen = time.Second
)

// jobAlone is the job of the batches that are requested when a leader is killed alone.
const jobAlone = "alone"

// takeovers kills the leader of each service while there is no other fault, which rarely
// happens during the schedule. It measures how long a batch waits that is requested at
// that moment. One fast failover of each service is enough. takeovers returns when
// nothing is in flight any more.
func (r *run) takeovers(ctx context.Context) {
	if len(r.report.Violations) > 0 {
		return // the cluster has not recovered, so the waits would prove nothing
	}
	defer func() {
		if _, err := r.fleet.Client().CancelJob(ctx, jobAlone); err != nil {
			r.report.wrong("cancelling all of %s: %v", jobAlone, err)
		}
		r.settle(ctx, "after leaders were killed alone")
	}()
	r.report.Takeovers = map[string][]time.Duration{}
	for _, service := range services {
		for n := 0; n < 2*tries && len(r.report.Takeovers[service]) < tries; n++ {
			stage := fmt.Sprintf("%s-%d", service, n)
			calm, err := r.batchAlone(ctx, stage+"-calm")
			if err != nil {
				r.report.wrong("no leader could be killed: %v", err)
				return
			}
			p, wait, err := r.takeover(ctx, service, stage)
			if err != nil {
				r.report.wrong("the leader of %s was killed alone: %v", service, err)
				return
			}
			r.Log("%s was killed alone; a batch waited %v instead of %v", p.Name, wait.Round(time.Millisecond),
				calm.Round(time.Millisecond))
			if proxied(p.Name) || calm > swift/4 {
				// The probe does not find a dead leader behind a proxy, because the proxy
				// still accepts connections. A slow machine proves nothing either.
				continue
			}
			r.report.Takeovers[service] = append(r.report.Takeovers[service], wait)
			if wait < swift {
				break
			}
		}
	}
}

// takeover kills the leader of a service and starts the process again. It returns how
// long a batch waits until its worker is assigned to an executor.
func (r *run) takeover(ctx context.Context, service, stage string) (p *child.Process, wait time.Duration, err error) {
	if err := until(ctx, func(ctx context.Context) string {
		for _, replica := range r.fleet.Processes()[service] {
			if missing := unready(ctx, replica.Addresses().HTTP); missing != "" {
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
			return fmt.Sprintf("the batch is %v", batch.GetState())
		}
		return ""
	})
	return time.Since(began), err
}
