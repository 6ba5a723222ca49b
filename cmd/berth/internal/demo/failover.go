package demo

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// failover describes the failover after a leader was killed.
type failover struct {
	service  string
	from, to string
	// gap is the time from the kill to the first sign that the service works again.
	gap time.Duration
}

// killLeader kills the leader of a service (kill -9), and waits until the service works again: it
// accepts a request, grants a gang, or starts a worker.
func (d *demo) killLeader(ctx context.Context, service string) error {
	leader, term, err := d.fleet.Leader(ctx, service)
	if err != nil {
		return err
	}
	if err := d.awaitFastFailover(ctx, service); err != nil {
		return err
	}
	// Without constraints, the probe is in another group than the pending gang and does not
	// queue behind that gang.
	probe := d.gang("probe", service, 1, "true")
	probe.Constraints = nil
	until := map[string][]berthv1.Reservation_State{
		model.ServiceExecutorState: {berthv1.Reservation_ASSIGNING, berthv1.Reservation_ACTIVE,
			berthv1.Reservation_COMPLETED},
		model.ServiceAssigner: {berthv1.Reservation_COMPLETED},
	}[service]
	d.say("kill -9 %s, which leads %s (term %d)", leader.Name, service, term)
	killed := time.Now()
	leader.Kill()
	if _, err := d.request(ctx, probe, until...); err != nil {
		return err
	}
	gap := time.Since(killed)
	successor, newTerm, err := d.fleet.Leader(ctx, service)
	if err != nil {
		return err
	}
	if newTerm <= term {
		return fmt.Errorf("%s: the term is %d after %d", service, newTerm, term)
	}
	d.say("%s leads %s (term %d), serving again after %v", successor.Name, service, newTerm,
		gap.Round(time.Millisecond))
	d.failovers = append(d.failovers, failover{service, leader.Name, successor.Name, gap})
	if err := d.fleet.Restart(ctx, leader); err != nil {
		return err
	}
	_, err = d.client.WaitFor(ctx, client.KeyOf(probe), berthv1.Reservation_COMPLETED)
	return err
}

// fastFailover is the time after which a failover of a new leader is fast. A standby
// replaces a dead leader immediately only if the standby has known that leader for a
// second.
const fastFailover = 1250 * time.Millisecond

// awaitFastFailover waits until fastFailover has passed since the leader of a service was
// elected.
func (d *demo) awaitFastFailover(ctx context.Context, service string) error {
	answer, err := d.client.Leaders(ctx)
	if err != nil {
		return err
	}
	for _, s := range answer.GetServices() {
		if s.GetService() == service {
			return store.Sleep(ctx, min(fastFailover, time.Until(s.GetSince().AsTime().Add(fastFailover))))
		}
	}
	return fmt.Errorf("the gateway does not list %s", service)
}

// report runs the remaining checks, prints the table and returns an error if a check failed.
func (d *demo) report(ctx context.Context) error {
	granted, lost := 0, 0
	for _, key := range d.acked {
		r, err := d.client.Get(ctx, key)
		switch {
		case fault.Is(err, fault.ReasonNotFound):
			lost++
			continue
		case err != nil:
			return err
		}
		if r.GetState() == berthv1.Reservation_COMPLETED || r.GetState() == berthv1.Reservation_CANCELLED &&
			r.GetWorkerCounts()["EVICTED"] == r.GetCount() {
			granted++
		}
	}
	twice, started, err := d.startedTwice()
	if err != nil {
		return err
	}
	history, err := d.history(ctx)
	if err != nil {
		return err
	}
	violations := history.Violations()

	fmt.Fprintln(d.out)
	table := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	row := func(what string, value any) { fmt.Fprintf(table, "  %s\t%v\n", what, value) }
	row("gangs requested", len(d.acked))
	row("gangs granted as a whole", granted)
	for _, t := range d.failovers {
		row("failover of "+t.service, fmt.Sprintf("%v  (%s → %s)", t.gap.Round(time.Millisecond), t.from, t.to))
	}
	row("workers started", started)
	row("workers started twice", twice)
	row("acknowledged requests lost", lost)
	row("violations in etcd's history", len(violations))
	row("total time", time.Since(d.began).Round(100*time.Millisecond))
	if err := table.Flush(); err != nil {
		return err
	}
	for _, v := range violations {
		fmt.Fprintf(d.out, "  violation: %+v\n", v)
	}
	if granted != len(d.acked) || twice > 0 || lost > 0 || len(violations) > 0 {
		return fault.New(fault.Internal, fault.ReasonInternal, "a check failed; see the table")
	}
	fmt.Fprintln(d.out, "\nAll checks passed.")
	return nil
}
