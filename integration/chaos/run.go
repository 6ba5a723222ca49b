package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/audit"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/fleet/wiring"
	"berth.dev/integration/proxy"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/store"
	"berth.dev/pkg/transport"
)

var space = keyspace.New("default")

// The size of the cluster.
const (
	replicas  = 3
	gateways  = 2
	members   = 3
	clients   = 4
	hosts     = 2
	hostSlots = 6
	hostName  = "host"
	simName   = "sim"
	executors = 40
	simSlots  = 8
	ttl       = 2 * time.Second // the shortest valid TTL, for as many changes of leader as possible
)

// Options are the options of a run.
type Options struct {
	// Binary is the program `berth`. Dir is the directory for data and logs.
	Binary, Dir string
	Seed        uint64
	// Duration is the time for which faults are injected. The checks run after this time.
	Duration time.Duration
	// Namespaces gives each process a network namespace, so that every link can be cut. The
	// error of a run wraps wiring.ErrNoNamespaces if namespaces are not permitted; see part.
	Namespaces bool
	// Clock permits steps of the machine's time of day, which affect all processes of the
	// machine. If the machine does not permit them, the run fails.
	Clock bool
	// Old, if set, is an older program `berth`. Half of the processes begin with it. They
	// are upgraded during the faults, rolled back once, and upgraded again.
	Old string
	// TLS encrypts all connections, except those between the members of etcd.
	TLS bool
	// Log prints progress.
	Log func(format string, args ...any)
}

// shape returns the default cluster of schedules.
func shape() Shape {
	s := Shape{Replicas: replicas, Gateways: gateways, Members: members, Clients: clients, Sims: []string{simName}}
	for i := range hosts {
		s.Agents = append(s.Agents, fmt.Sprintf("%s-%d", hostName, i))
	}
	return s
}

// run is a run in progress.
type run struct {
	Options
	fleet    *fleet.Fleet
	links    *proxy.Links
	hosts    *wiring.Namespaces // nil unless each process has a namespace
	programs programs
	store    *store.Etcd
	follower *audit.Follower
	load     *load
	clients  []*client.Client
	readers  []*reader
	report   *Report
}

// Run injects faults into a cluster and checks the cluster. It returns an error if the
// run itself failed. The report contains the violations.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	r := &run{Options: o, links: proxy.New(), report: &Report{Seed: o.Seed, Duration: o.Duration}}
	r.programs = programs{dir: o.Dir, new: o.Binary, old: o.Old}
	whole := shape()
	whole.Hosts, whole.Clock, whole.Upgrade = o.Namespaces, o.Clock, o.Old != ""
	faults := Plan(o.Seed, o.Duration, whole)
	config := fleet.Config{
		Binary: o.Binary, Program: r.programs.of, Dir: o.Dir, Replicas: replicas, Gateways: gateways, Etcd: members,
		TTL: ttl, Via: r.via,
	}
	if o.TLS {
		config.TLS = transport.Require
	}
	if o.Namespaces {
		hosts, err := wiring.NewNamespaces(uint16(os.Getpid()))
		if err != nil {
			return nil, err
		}
		defer hosts.Close()
		r.hosts, r.links, config.Place = hosts, proxy.NewOn(hosts.Here()), hosts.Place
		config.Hosts = []string{hosts.Here()}
	}
	defer r.links.Close()
	broken := both{r.hosts, r.links}
	r.fleet, err = fleet.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.fleet.Close()) }()
	etcd, err := r.fleet.EtcdConfig()
	if err != nil {
		return nil, err
	}
	if r.store, err = store.Dial(etcd); err != nil {
		return nil, err
	}
	defer r.store.Close()

	background, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	r.follower = audit.Follow(r.store, space)
	running.Go(func() { r.follower.Run(background) })

	if err := r.populate(ctx); err != nil {
		return nil, err
	}
	o.Log("%d faults in %v", len(faults), o.Duration)
	begun := time.Now()
	r.load = newLoad(&history{begun: begun}, o.Dir, o.Old == "")
	if err := os.MkdirAll(r.load.copies, 0o700); err != nil {
		return nil, err
	}
	if err := r.connect(ctx); err != nil {
		return nil, err
	}
	defer r.disconnect()
	r.follow(background, &running)

	calling, hush := context.WithCancel(ctx)
	var callers sync.WaitGroup
	for who, c := range r.clients {
		callers.Go(func() { r.load.run(calling, c, who, rand.New(rand.NewPCG(o.Seed, 100+uint64(who)))) })
	}
	injector := newInjector(r, broken, begun)
	err = injector.run(ctx, faults)
	broken.Set(func(string, string) bool { return true }, wiring.Condition{})
	hush()
	callers.Wait()
	r.report.Faults = injector.faults()
	if err != nil {
		// A process that does not start again is a violation.
		r.report.addViolation("no recovery after a fault: %v", err)
		return r.report, nil
	}
	r.check(ctx)
	return r.report, nil
}

// via returns the address of a proxy for a link that needs a proxy, and otherwise the
// address itself.
//
// With namespaces, half of the processes and agents are behind proxies, because only a
// proxy can make a link slow or lossy, or refuse connections. The packets of the other
// processes take the direct route. With and without namespaces, a standby probes some
// leaders through a proxy, which can make a running leader look dead. It probes other
// leaders directly, because a proxy does not refuse connections when the leader behind it
// is dead.
func (r *run) via(from, to, address string) (string, error) {
	one, other := from, to
	if from == "orders" || from == "proof" {
		one, other = to, from
	}
	if r.hosts == nil && other != "proof" || proxied(one) {
		return r.links.Via(from, to, address)
	}
	return address, nil
}

// proxied reports whether all links to a process go through a proxy, including liveness
// probes.
func proxied(name string) bool { return strings.HasSuffix(name, "-0") || name == simName }

// populate starts the executors and waits until all are READY.
func (r *run) populate(ctx context.Context) error {
	for _, id := range shape().Agents {
		if err := r.fleet.StartAgent(ctx, fleet.Agent{ID: id, Slots: hostSlots, SKU: hostName}); err != nil {
			return err
		}
	}
	if err := r.fleet.StartSim(ctx, simName, executors, simSlots); err != nil {
		return err
	}
	return until(ctx, r.ready)
}

// ready describes how many executors are not READY yet. It returns an empty string if all
// are READY.
func (r *run) ready(ctx context.Context) string {
	n := 0
	for _, err := range r.fleet.Client().Executors(ctx, &berthv1.ListExecutorsRequest{State: berthv1.Executor_READY,
		PageSize: 1000}) {
		if err != nil {
			return err.Error()
		}
		n++
	}
	if n < executors+hosts {
		return fmt.Sprintf("%d of %d executors are ready", n, executors+hosts)
	}
	return ""
}

// connect creates the clients. Each client has its own links.
func (r *run) connect(ctx context.Context) error {
	for who := range clients {
		var addresses []string
		for i, gateway := range r.fleet.Gateways() {
			address, err := r.links.Via(fmt.Sprintf("client-%d", who), fmt.Sprintf("gateway-%d", i), gateway)
			if err != nil {
				return err
			}
			addresses = append(addresses, address)
		}
		c, err := client.Dial(addresses, client.WithTLS(r.fleet.ClientTLS(identity.Gateway)))
		if err != nil {
			return err
		}
		r.clients = append(r.clients, c)
	}
	return ctx.Err()
}

func (r *run) disconnect() {
	for _, c := range r.clients {
		c.Close() // all calls of the client have ended
	}
}

// jobs returns all jobs of the clients.
func jobs() []string {
	all := []string{jobWaiting, jobRunning}
	for who := range clients {
		all = append(all, hostJob(who))
	}
	return all
}

// follow reads the events of every job. The stream of each job uses the links of one client.
func (r *run) follow(ctx context.Context, running *sync.WaitGroup) {
	for i, job := range jobs() {
		reader := newReader(job)
		r.readers = append(r.readers, reader)
		running.Go(func() { reader.run(ctx, r.clients[i%len(r.clients)]) })
	}
}

func newInjector(r *run, broken network, begun time.Time) *injector {
	return &injector{
		fleet: r.fleet, links: broken, etcd: r.store, programs: r.programs, begun: begun,
		busy: map[string]bool{},
		audited: func() (revision int64) {
			r.follower.Look(func(a *audit.Auditor) { revision = a.Stats().Revision })
			return revision
		},
	}
}

// both is a network that consists of the namespaces of the processes, if there are any,
// and the proxies.
type both struct {
	hosts *wiring.Namespaces
	links *proxy.Links
}

func (b both) Set(chosen func(from, to string) bool, c wiring.Condition) int {
	n := b.links.Set(chosen, c)
	if b.hosts != nil {
		n += b.hosts.Set(chosen, c)
	}
	return n
}

func (b both) Unplug(name string, unplugged bool) bool {
	return b.hosts != nil && b.hosts.Unplug(name, unplugged) || b.links.Unplug(name, unplugged)
}

// pollEvery is the interval of polls for conditions without a signal.
const pollEvery = 20 * time.Millisecond

// until polls a condition that gives no signal. check returns what is missing, or "".
// After patience the error contains that text.
func until(ctx context.Context, check func(context.Context) string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	missing := ""
	for {
		now := check(ctx)
		if now == "" {
			return nil
		}
		if ctx.Err() == nil {
			missing = now // if ctx has ended, the previous description is more useful
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("after %v: %s", patience, missing)
		}
	}
}
