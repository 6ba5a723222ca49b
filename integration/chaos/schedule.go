package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"berth.dev/cmd/berth/fleet/wiring"
	"berth.dev/pkg/model"
)

// Kind is the kind of a fault.
type Kind string

// The kinds. The target of a fault of a process is a process. The target of a fault of a
// link is a pair of ends.
const (
	Kill      Kind = "kill"      // kill -9, and a restart at the end
	Terminate Kind = "terminate" // SIGTERM, and a restart at the end
	Freeze    Kind = "freeze"    // SIGSTOP, and SIGCONT at the end
	Cut       Kind = "cut"       // both directions
	CutTo     Kind = "cut-to"    // the direction to the target
	CutFrom   Kind = "cut-from"  // the direction from the target
	Isolate   Kind = "isolate"   // all links of a process
	Refuse    Kind = "refuse"    // connections are refused and reset, as by a firewall
	Slow      Kind = "slow"
	Lossy     Kind = "lossy"
	MoveEtcd  Kind = "move-etcd-leader"
	Compact   Kind = "compact"
	Rolling   Kind = "rolling-restart" // SIGTERM to every replica, one after another
	StepClock Kind = "step-clock"      // the time of day is changed, and corrected at the end
	Upgrade   Kind = "upgrade"         // every process gets the new program
	Rollback  Kind = "roll-back"       // half of the processes get the old program again
)

// Fault is a fault or an operation at a time of the schedule.
type Fault struct {
	// At is the time at which the fault begins. For is its duration, which is 0 for an
	// instantaneous fault.
	At, For time.Duration
	Kind    Kind
	// Target is a process (registry-0, etcd-1, host-0), the leader of a service
	// (registry/leader) or the leader of etcd (etcd/leader). The target of a link is two
	// ends with an arrow between them. As an end of a link, a name without a number means
	// all processes of that kind.
	Target string
	// Condition is the condition of a link.
	Condition wiring.Condition
	// By is the size of a clock step.
	By time.Duration
}

func (f Fault) String() string {
	s := fmt.Sprintf("%8.3fs %-16s", f.At.Seconds(), f.Kind)
	if f.Target != "" {
		s += " " + f.Target
	}
	if f.By != 0 {
		s += fmt.Sprintf(" by %v", f.By)
	}
	if f.For > 0 {
		s += fmt.Sprintf(" for %v", f.For)
	}
	return s
}

// Shape describes the cluster for which a schedule is planned.
type Shape struct {
	Replicas, Gateways, Members, Clients int
	// Agents has the names of the agents. Sims has the names of the processes of simulated
	// executors.
	Agents, Sims []string
	// Hosts is set if each process has a namespace. Clock is set if the time of day may be
	// stepped. Upgrade is set if half of the processes begin with an old program.
	Hosts, Clock, Upgrade bool
}

// lane is a sequence of faults that do not overlap.
type lane struct {
	quiet time.Duration // maximum time between two faults
	next  func(*rand.Rand, Shape) Fault
}

// Plan returns the schedule of a seed. Every fault begins before the configured duration ends. Faults of
// different lanes may coincide, but faults of the same lane do not. So at any time at
// most one fault affects etcd, and two members keep working. In the same way, at most one
// fault affects a process of Berth, one a link and one an agent.
func Plan(seed uint64, duration time.Duration, shape Shape) []Fault {
	lanes := []lane{
		{3 * time.Second, processFault},
		{6 * time.Second, etcdFault},
		{3 * time.Second, linkFault},
		{4 * time.Second, agentFault},
		{time.Minute, rollingFault},
	}
	var all []Fault
	if shape.Upgrade {
		// An upgrade restarts every process too.
		lanes = lanes[:len(lanes)-1]
		all = []Fault{
			{Kind: Upgrade, At: duration / 5}, {Kind: Rollback, At: duration / 2}, {Kind: Upgrade, At: duration * 3 / 4},
		}
	}
	if shape.Clock {
		lanes = append(lanes, lane{10 * time.Second, clockFault})
	}
	for i, lane := range lanes {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		for at := between(r, 0, lane.quiet); at < duration; at += between(r, lane.quiet/4, lane.quiet) {
			f := lane.next(r, shape)
			f.At = at
			f.For = min(f.For, duration-at)
			all = append(all, f)
			at += f.For
		}
	}
	slices.SortStableFunc(all, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return all
}

var services = model.Services

// replica returns a random replica or, in half of the cases, the leader of a service.
func replica(r *rand.Rand, shape Shape) string {
	service := services[r.IntN(len(services))]
	if r.IntN(2) == 0 {
		return service + "/leader"
	}
	return numbered(r, service, shape.Replicas)
}

func processFault(r *rand.Rand, shape Shape) Fault {
	target := replica(r, shape)
	if r.IntN(6) == 0 {
		target = numbered(r, model.ServiceGateway, shape.Gateways)
	}
	switch n := r.IntN(10); {
	case n < 5:
		return Fault{Kind: Kill, Target: target, For: between(r, 0, time.Second)}
	case n < 7:
		return Fault{Kind: Terminate, Target: target, For: between(r, 0, time.Second)}
	default:
		return Fault{Kind: Freeze, Target: target, For: between(r, 50*time.Millisecond, 6*time.Second)}
	}
}

func etcdFault(r *rand.Rand, shape Shape) Fault {
	target := numbered(r, "etcd", shape.Members)
	if r.IntN(2) == 0 {
		target = "etcd/leader"
	}
	switch n := r.IntN(12); {
	case n < 3:
		return Fault{Kind: Kill, Target: target, For: between(r, 0, 3*time.Second)}
	case n < 5:
		return Fault{Kind: Freeze, Target: target, For: between(r, 50*time.Millisecond, 4*time.Second)}
	case n < 8:
		return memberFault(r, shape)
	case n < 10:
		return Fault{Kind: MoveEtcd, Target: numbered(r, "etcd", shape.Members)}
	default:
		return Fault{Kind: Compact}
	}
}

func linkFault(r *rand.Rand, shape Shape) Fault {
	ends := []string{
		replica(r, shape) + "→etcd",
		replica(r, shape) + "→" + numbered(r, "etcd", shape.Members),
		replica(r, shape) + "→gateway",
		numbered(r, model.ServiceGateway, shape.Gateways) + "→" + replica(r, shape),
		numbered(r, model.ServiceGateway, shape.Gateways) + "→etcd",
		numbered(r, "client", shape.Clients) + "→gateway",
		numbered(r, "client", shape.Clients) + "→" + numbered(r, model.ServiceGateway, shape.Gateways),
	}
	if r.IntN(8) == 0 {
		// This fault makes a running leader look dead to a liveness probe.
		return Fault{
			Kind: Refuse, Target: "proof→" + numbered(r, services[r.IntN(len(services))], 1),
			For:       between(r, 50*time.Millisecond, time.Second),
			Condition: wiring.Condition{Refused: true},
		}
	}
	f := Fault{Target: ends[r.IntN(len(ends))], For: between(r, 100*time.Millisecond, 5*time.Second)}
	return condition(r, f)
}

// condition draws a random fault for a link.
func condition(r *rand.Rand, f Fault) Fault {
	switch r.IntN(7) {
	case 0:
		f.Kind, f.Condition = CutTo, wiring.Condition{There: true}
	case 1:
		f.Kind, f.Condition = CutFrom, wiring.Condition{Back: true}
	case 2:
		f.Kind, f.Condition = Slow, wiring.Condition{Delay: between(r, 5*time.Millisecond, 300*time.Millisecond)}
	case 3:
		f.Kind, f.Condition = Lossy, wiring.Condition{Loss: 0.02 + 0.2*r.Float64()}
	case 4:
		f.Kind, f.Condition = Refuse, wiring.Condition{Refused: true}
	case 5:
		from, _, _ := strings.Cut(f.Target, "→")
		f.Kind, f.Target, f.Condition = Isolate, from, wiring.Condition{There: true, Back: true}
	default:
		f.Kind, f.Condition = Cut, wiring.Condition{There: true, Back: true}
	}
	return f
}

func agentFault(r *rand.Rand, shape Shape) Fault {
	names := slices.Concat(shape.Agents, shape.Sims)
	name := names[r.IntN(len(names))]
	orders := "orders→" + name
	if slices.Contains(shape.Sims, name) {
		orders = name + "→gateway"
	}
	switch n := r.IntN(10); {
	case n < 3:
		return Fault{Kind: Kill, Target: shape.Agents[r.IntN(len(shape.Agents))], For: between(r, 0, 3*time.Second)}
	case n < 5:
		return Fault{Kind: Freeze, Target: name, For: between(r, 50*time.Millisecond, 5*time.Second)}
	case n < 7:
		return condition(r, Fault{Target: name + "→gateway", For: between(r, 100*time.Millisecond, 8*time.Second)})
	default:
		return condition(r, Fault{Target: orders, For: between(r, 100*time.Millisecond, 5*time.Second)})
	}
}

func rollingFault(_ *rand.Rand, _ Shape) Fault { return Fault{Kind: Rolling} }

// clockFault returns a step of the time of day. The maximum of the step is either one
// second or more than every timeout of the control plane, including lostAfter.
func clockFault(r *rand.Rand, _ Shape) Fault {
	most := []time.Duration{time.Second, 2 * time.Minute}[r.IntN(2)]
	return Fault{Kind: StepClock, By: between(r, -most, most), For: between(r, 50*time.Millisecond, 3*time.Second)}
}

func numbered(r *rand.Rand, name string, n int) string {
	return fmt.Sprintf("%s-%d", name, r.IntN(n))
}

// between returns a random duration in whole milliseconds, which is short to print.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return (least + time.Duration(r.Int64N(int64(most-least)))).Truncate(time.Millisecond)
}
