package bench

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/fleet/wiring"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

// outage is one kind of fault that a failover is measured under.
type outage struct {
	name, shows string
	// target is about every figure of it; Max alone where Of is empty.
	target func(o *failoverOptions) Target
	// often says that it is done in as many rounds as kills are.
	often bool
	// hosts says that each process has to be on a host of its own.
	hosts bool
	// etcd says that it is etcd's, so that etcd's own gap is taken off.
	etcd bool
	// winds says that the leader goes on for a while: what is asked for at the moment
	// of the outage may still be answered by it.
	winds bool
	// restarts says that what undoes it is a new process. Reading all that is stored
	// is then no part of the outage: it would be done on another host, and is what
	// rolling shows.
	restarts bool
	// strike does it to a service's leader and answers how to undo it, once the
	// service has another. Outages without it are those of all services at once.
	strike func(ctx context.Context, f *failing, leader *child.Process) (heal func() error, err error)
	// all does it to all services, and is over when it returns.
	all func(ctx context.Context, f *failing) error
}

// outages in the order in which they run.
var outages = []outage{
	{name: "kill", shows: "kill -9 of the leader's process", often: true, restarts: true, strike: kill,
		target: func(*failoverOptions) Target { return Target{Of: Median, AtMost: 100, Max: new(500.0)} }},
	{name: "term", shows: "SIGTERM to the leader", winds: true, restarts: true, strike: terminate, target: orderly},
	{name: "rolling", shows: "rolling restart of all replicas of all services", all: rolling, target: orderly},
	{name: "stop", shows: "SIGSTOP of the leader", strike: freeze, target: byTTL},
	{name: "cut", shows: "network cut between leader and etcd", winds: true, hosts: true, strike: cutFromEtcd, target: byTTL},
	{name: "host", shows: "the leader's host cut off from all", hosts: true, strike: unplug, target: byTTL},
	{name: "etcd", shows: "kill -9 of etcd's leader, beyond etcd's own gap", etcd: true, all: killEtcdLeader,
		target: func(*failoverOptions) Target { return Target{Max: new(500.0)} }},
}

func orderly(*failoverOptions) Target { return Target{Max: new(300.0)} }

func byTTL(o *failoverOptions) Target { return Target{Max: new(millis(o.ttl + time.Second))} }

func kill(ctx context.Context, f *failing, p *child.Process) (func() error, error) {
	// Not Kill, which waits for the end: the kernel takes its time with that.
	return func() error { p.Kill(); return f.fleet.Restart(ctx, p) }, p.Signal(syscall.SIGKILL)
}

func terminate(ctx context.Context, f *failing, p *child.Process) (func() error, error) {
	return func() error {
		if err := p.Stop(ctx); err != nil {
			return err
		}
		return f.fleet.Restart(ctx, p)
	}, p.Signal(syscall.SIGTERM)
}

func freeze(_ context.Context, _ *failing, p *child.Process) (func() error, error) {
	return func() error { return p.Signal(syscall.SIGCONT) }, p.Signal(syscall.SIGSTOP)
}

// cutFromEtcd cuts one link after the other, each with a command of its own: the
// leader goes on over those that are left, which on a busy machine is for seconds.
func cutFromEtcd(_ context.Context, f *failing, p *child.Process) (func() error, error) {
	between := func(from, to string) bool { return from == p.Name && strings.HasPrefix(to, "etcd-") }
	if f.hosts.Set(between, wiring.Condition{There: true, Back: true}) == 0 {
		return nil, fault.New(fault.Internal, fault.ReasonInternal, "%s has no link to etcd", p.Name)
	}
	return func() error { f.hosts.Set(between, wiring.Condition{}); return nil }, nil
}

func unplug(_ context.Context, f *failing, p *child.Process) (func() error, error) {
	plug := func(out bool) error {
		if !f.hosts.Unplug(p.Name, out) {
			return fault.New(fault.Internal, fault.ReasonInternal, "the host of %s cannot be unplugged", p.Name)
		}
		return nil
	}
	return func() error { return plug(false) }, plug(true)
}

func rolling(ctx context.Context, f *failing) error {
	for _, service := range fleet.Services {
		for i := range failoverReplicas {
			p := f.fleet.Replica(service, i)
			if err := p.Stop(ctx); err != nil {
				return err
			}
			if err := f.fleet.Restart(ctx, p); err != nil {
				return err
			}
			if err := f.ready(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func killEtcdLeader(ctx context.Context, f *failing) error {
	i, err := f.fleet.EtcdLeader(ctx)
	if err != nil {
		return err
	}
	f.fleet.Member(i).Kill()
	began := time.Now()
	if err := f.flowing(ctx, began); err != nil {
		return err
	}
	if err := f.fleet.Restart(ctx, f.fleet.Member(i)); err != nil {
		return err
	}
	return store.Sleep(ctx, settle)
}

// ready waits until a replica that was away follows etcd again. One that was started
// again has all that is stored to read, on a machine that it shares with all others.
func (f *failing) ready(ctx context.Context, p *child.Process) error {
	return patiently(ctx, readyTimeout, p.Name+" is not ready", func(ctx context.Context) bool {
		_, err := get(ctx, p, "/readyz")
		return err == nil
	})
}

// recoverWithin bounds how long anything may take to come back.
const recoverWithin = 30 * time.Second

// until waits for what gives no signal.
func until(ctx context.Context, missing string, done func(context.Context) bool) error {
	return patiently(ctx, recoverWithin, missing, done)
}

// patiently is until with a limit of its own.
func patiently(ctx context.Context, limit time.Duration, missing string, done func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !done(ctx) {
		if err := store.Sleep(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%s after %v: %w", missing, limit, err)
		}
	}
	return nil
}
