package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/fleet/wiring"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

// patience is the maximum time for recovery after a fault. It is much longer than a recovery
// takes, so that a slow machine does not cause a violation.
const patience = 2 * time.Minute

// Applied is a fault that was injected.
type Applied struct {
	Fault
	// Victim is the process that the target named when the fault was injected.
	Victim string
	// Begun and Ended are times since the start of the run.
	Begun, Ended time.Duration
	// Skipped is the reason why the fault was not injected. It is empty if the fault was
	// injected.
	Skipped string
}

// network is the network that faults change.
type network interface {
	// Set changes the condition of the chosen links and returns their number. chosen gets
	// the names of both ends of a link.
	Set(chosen func(from, to string) bool, c wiring.Condition) int
	// Unplug disconnects a process from the network or connects it again. It returns false
	// if the process has no link.
	Unplug(name string, unplugged bool) bool
}

// injector injects the faults of a schedule.
type injector struct {
	fleet    *fleet.Fleet
	links    network
	etcd     *store.Etcd
	programs programs
	// audited returns the revision up to which the history is no longer needed.
	audited func() int64
	begun   time.Time

	mu      sync.Mutex
	busy    map[string]bool // a process has at most one fault at a time
	applied []Applied
}

// run injects each fault at its time and returns when all faults have ended. It returns
// an error if a process did not start again.
func (i *injector) run(ctx context.Context, faults []Fault) error {
	var under sync.WaitGroup
	var mu sync.Mutex
	var all []error
	for _, f := range faults {
		select {
		case <-time.After(time.Until(i.begun.Add(f.At))):
		case <-ctx.Done():
			all = append(all, ctx.Err())
		}
		if ctx.Err() != nil {
			break
		}
		under.Go(func() {
			a := Applied{Fault: f, Begun: time.Since(i.begun)}
			err := i.apply(ctx, &a)
			a.Ended = time.Since(i.begun)
			i.mu.Lock()
			i.applied = append(i.applied, a)
			i.mu.Unlock()
			if err != nil {
				mu.Lock()
				all = append(all, fmt.Errorf("%v: %w", f, err))
				mu.Unlock()
			}
		})
	}
	under.Wait()
	return errors.Join(all...)
}

func (i *injector) apply(ctx context.Context, a *Applied) error {
	switch a.Kind {
	case Kill, Terminate, Freeze:
		return i.process(ctx, a)
	case MoveEtcd:
		to, _ := strconv.Atoi(strings.TrimPrefix(a.Target, "etcd-"))
		if err := i.fleet.MoveEtcdLeader(ctx, to); err != nil {
			a.Skipped = err.Error() // etcd has no leader, or the member is down
		}
	case CutMember, CutMemberSend, CutMemberReceive:
		i.partition(ctx, a)
	case Compact:
		if _, err := i.etcd.Client().Compact(ctx, i.audited()); err != nil {
			a.Skipped = err.Error()
		}
	case Rolling:
		return i.rolling(ctx)
	case StepClock:
		return stepped(ctx, a.By, a.For)
	case Upgrade:
		return i.replace(ctx, func(string) bool { return true }, false)
	case Rollback:
		return i.replace(ctx, beginsOld, true)
	default:
		i.link(ctx, a)
	}
	return nil
}

// process injects a fault into a process and waits until the process runs again.
func (i *injector) process(ctx context.Context, a *Applied) error {
	p, err := i.claim(ctx, a.Target)
	if err != nil {
		a.Skipped = err.Error()
		return nil
	}
	defer i.release(p)
	a.Victim = p.Name
	switch a.Kind {
	case Kill:
		p.Kill()
	case Terminate:
		stop, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := p.Stop(stop); err != nil {
			return err
		}
	case Freeze:
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		<-time.After(a.For)
		return p.Signal(syscall.SIGCONT)
	}
	<-time.After(a.For)
	return i.restart(ctx, p)
}

// restart starts a process that has ended. A member of etcd exits if most of the other
// members answer slowly, so restart repeats the start until it succeeds. A process of
// Berth must start at the first attempt.
func (i *injector) restart(ctx context.Context, p *child.Process) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !strings.HasPrefix(p.Name, "etcd-") {
		return i.fleet.Restart(ctx, p)
	}
	return until(ctx, func(ctx context.Context) string {
		if err := i.fleet.Restart(ctx, p); err != nil {
			return err.Error()
		}
		return ""
	})
}

// rolling restarts every replica and gateway, one after another. It skips processes that
// have another fault.
func (i *injector) rolling(ctx context.Context) error {
	all := i.fleet.Processes()
	for _, kind := range append(slices.Clone(services), "gateway") {
		for _, p := range all[kind] {
			if !i.take(p) {
				continue
			}
			stop, cancel := context.WithTimeout(ctx, patience)
			err := p.Stop(stop)
			cancel()
			if err == nil {
				err = i.restart(ctx, p)
			}
			i.release(p)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// link changes the condition of links and restores the links after the time of the fault.
// If two faults affect the same link, the condition of the later fault applies. The fault
// that ends first restores the link, so links never stay broken.
func (i *injector) link(ctx context.Context, a *Applied) {
	from, to, _ := strings.Cut(a.Target, "→")
	var ends [2]func(string) bool
	for n, end := range []string{from, to} {
		name, err := i.name(ctx, end)
		if err != nil {
			a.Skipped = err.Error()
			return
		}
		a.Victim += strings.TrimPrefix("→"+name, strings.Repeat("→", 1-n))
		ends[n] = func(s string) bool { return s == name || strings.HasPrefix(s, name+"-") }
	}
	if a.Kind == Isolate {
		a.Victim = strings.TrimSuffix(a.Victim, "→")
		if !i.links.Unplug(a.Victim, true) {
			a.Skipped = "the process has no links"
			return
		}
		<-time.After(a.For)
		i.links.Unplug(a.Victim, false)
		return
	}
	chosen := func(x, y string) bool { return ends[0](x) && ends[1](y) }
	if i.links.Set(chosen, a.Condition) == 0 {
		a.Skipped = "unknown link"
		return
	}
	<-time.After(a.For)
	i.links.Set(chosen, wiring.Condition{})
}

// name returns the name of the process that a target currently denotes.
func (i *injector) name(ctx context.Context, target string) (string, error) {
	name, leads := strings.CutSuffix(target, "/leader")
	if !leads {
		return target, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if name == "etcd" {
		n, err := i.fleet.EtcdLeader(ctx)
		return fmt.Sprintf("etcd-%d", n), err
	}
	p, _, err := i.fleet.Leader(ctx, name)
	if err != nil {
		return "", err
	}
	return p.Name, nil
}

// claim returns the process of a target and reserves the process, so that no other fault
// uses it.
func (i *injector) claim(ctx context.Context, target string) (*child.Process, error) {
	name, err := i.name(ctx, target)
	if err != nil {
		return nil, err
	}
	for _, processes := range i.fleet.Processes() {
		for _, p := range processes {
			if p.Name == name {
				if !i.take(p) {
					return nil, fmt.Errorf("%s has another fault", name)
				}
				return p, nil
			}
		}
	}
	return nil, fmt.Errorf("unknown process %s", name)
}

func (i *injector) take(p *child.Process) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	name := exclusive(p)
	if i.busy[name] {
		return false
	}
	i.busy[name] = true
	return true
}

func (i *injector) release(p *child.Process) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.busy, exclusive(p))
}

// exclusive returns the name under which a process is reserved for a fault. All members
// of etcd share one name, because a member may need longer to recover than its fault
// lasts.
func exclusive(p *child.Process) string {
	if strings.HasPrefix(p.Name, "etcd-") {
		return "etcd"
	}
	return p.Name
}

// faults returns the injected faults in the order in which they began.
func (i *injector) faults() []Applied {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := slices.Clone(i.applied)
	slices.SortFunc(all, func(a, b Applied) int { return int(a.Begun - b.Begun) })
	return all
}
