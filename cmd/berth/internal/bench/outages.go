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
	"berth.dev/pkg/leader"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

// outage is a kind of fault.
type outage struct {
	name, shows string
	// target is the target of every figure of the outage.
	target Target
	// often is set if --rounds sets the number of rounds, instead of --other-rounds.
	often bool
	// hosts is set if each process must run on a separate host.
	hosts bool
	// etcd is set if the fault is in etcd. The figures are then the time beyond the longest
	// time without a successful put to etcd itself.
	etcd bool
	// lingers is set if the leader keeps working for a while after the begin of the outage.
	// The leader may then still answer the probe.
	lingers bool
	// restarts is set if a process is restarted to end the outage. The time in which the new
	// process reads all records is not part of the outage, because in production that process
	// reads them on another host. The outage "rolling" measures that time.
	restarts bool
	// strike causes the outage in the leader of a service. heal ends the outage; call it
	// after the service has another leader. strike is nil for outages of all services at
	// once.
	strike func(ctx context.Context, f *failing, leader *child.Process) (heal func() error, err error)
	// all causes the outage in all services and returns after the outage has ended.
	all func(ctx context.Context, f *failing) error
}

// outages lists the outages in the order in which they run.
var outages = []outage{
	{name: "kill", shows: "kill -9 of the leader's process", often: true, restarts: true, strike: kill,
		target: Target{Of: Median, AtMost: 100, Max: new(500.0)}},
	{name: "term", shows: "SIGTERM to the leader", lingers: true, restarts: true, strike: terminate, target: orderly},
	{name: "rolling", shows: "rolling restart of all replicas of all services", all: rolling, target: orderly},
	{name: "stop", shows: "SIGSTOP of the leader", strike: freeze, target: byTTL},
	{name: "cut", shows: "network link cut between leader and etcd", lingers: true, hosts: true, strike: cutFromEtcd,
		target: byTTL},
	{name: "host", shows: "the leader's host without any network", hosts: true, strike: unplug, target: byTTL},
	{name: "etcd", shows: "kill -9 of etcd's leader, beyond etcd's own gap", etcd: true, all: killEtcdLeader,
		target: Target{Max: new(500.0)}},
}

// orderly is the target of restarts. byTTL is the target of outages that end when the
// leader's etcd lease expires.
var (
	orderly = Target{Max: new(300.0)}
	byTTL   = Target{Max: new(millis(leader.DefaultTTL + time.Second))}
)

func kill(ctx context.Context, f *failing, p *child.Process) (func() error, error) {
	// Kill waits until the process has exited, which may take the kernel a while.
	return func() error { p.Kill(); return f.w.fleet.Restart(ctx, p) }, p.Signal(syscall.SIGKILL)
}

func terminate(ctx context.Context, f *failing, p *child.Process) (func() error, error) {
	return func() error { return f.restart(ctx, p) }, p.Signal(syscall.SIGTERM)
}

// restart stops a process and starts it again.
func (f *failing) restart(ctx context.Context, p *child.Process) error {
	if err := p.Stop(ctx); err != nil {
		return err
	}
	return f.w.fleet.Restart(ctx, p)
}

func freeze(_ context.Context, _ *failing, p *child.Process) (func() error, error) {
	return func() error { return p.Signal(syscall.SIGCONT) }, p.Signal(syscall.SIGSTOP)
}

// cutFromEtcd cuts the links to the members of etcd one after another, each with a separate
// command. Until the last link is cut, the leader keeps working over the other links. On a
// busy machine that may take seconds.
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
			return fault.New(fault.Internal, fault.ReasonInternal, "cannot unplug the host of %s", p.Name)
		}
		return nil
	}
	return func() error { return plug(false) }, plug(true)
}

func rolling(ctx context.Context, f *failing) error {
	for _, service := range fleet.Services {
		for i := range failoverReplicas {
			p := f.w.fleet.Replica(service, i)
			if err := f.restart(ctx, p); err != nil {
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
	i, err := f.w.fleet.EtcdLeader(ctx)
	if err != nil {
		return err
	}
	f.w.fleet.Member(i).Kill()
	began := time.Now()
	if err := f.flowing(ctx, began); err != nil {
		return err
	}
	if err := f.w.fleet.Restart(ctx, f.w.fleet.Member(i)); err != nil {
		return err
	}
	return store.Sleep(ctx, settle)
}

// ready waits until a replica is ready. A restarted replica becomes ready after it has read
// all records.
func (f *failing) ready(ctx context.Context, p *child.Process) error {
	return until(ctx, readyTimeout, p.Name+" is not ready", func(ctx context.Context) bool {
		_, err := get(ctx, nil, p, "/readyz")
		return err == nil
	})
}

// recoverWithin bounds the recovery from an outage.
const recoverWithin = 30 * time.Second

// until polls until done returns true, for at most limit. Use it only for conditions that
// give no signal.
func until(ctx context.Context, limit time.Duration, missing string, done func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !done(ctx) {
		if err := store.Sleep(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%s after %v: %w", missing, limit, err)
		}
	}
	return nil
}
