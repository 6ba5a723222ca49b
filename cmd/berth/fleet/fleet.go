// Package fleet runs a whole Berth as real processes on this machine: etcd in
// this one or as members of their own, replicas of every service, gateways and
// agents as children. The demo, the benchmarks and the tests on real processes use
// it.
//
// It promises that processes can be killed, stopped and started again one by
// one, each with the address it had, and that none is left when it is closed.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"berth.dev/client"
	"berth.dev/cmd/berth/internal/embedded"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/process/port"
	"berth.dev/pkg/store"
)

// Config of a fleet.
type Config struct {
	// Binary is the program `berth`. Program, if given, answers the one that a
	// process is started from, by its name.
	Binary  string
	Program func(name string) string
	// Dir keeps data, logs and workers; it must exist.
	Dir string
	// Replicas of each service, and gateways; 2 and 1 unless given.
	Replicas, Gateways int
	// TTL of the leaders' etcd leases; the services' default unless given.
	TTL time.Duration
	// LogLevel of the children; info unless given.
	LogLevel string
	// Etcd is how many members etcd has, each a child, so that they can be killed,
	// and what they cost be told from what this process does. 0 runs one in this
	// process.
	Etcd int
	// Seed fills etcd before anything else runs, by its endpoints; it stays empty
	// unless given.
	Seed func(ctx context.Context, etcd []string) error
	// Via answers where one process reaches the address that another listens on,
	// so that who starts the fleet can stand in between and cut the link. Both go
	// by their names: etcd-0, registry-0, gateway-0, an agent's id. Orders to an
	// agent come from "orders", whoever sends them, and who finds a replica's address
	// in the records, as a standby does that proves the leader dead, is "proof". All
	// other members of etcd reach one at the same address, so who does is "peers". The
	// address itself unless given.
	Via func(from, to, address string) (string, error)
	// Place answers where a process runs, by its name: hosts of their own, as far as
	// the network goes. All run on this host's loopback unless given.
	Place func(name string) (Place, error)
	// Flags are further flags of replicas and gateways, by service; those of ""
	// are for all of them. Those of "agent" are for agents and simulated executors,
	// those of "etcd" for its members.
	Flags map[string][]string
}

// Place is where a process runs.
type Place struct {
	// Host is the address that it listens on; nobody else listens there. Loopback,
	// on ports that are held, unless given.
	Host string
	// Command is what its program and arguments are given to, to be run there.
	Command []string
}

// Services in the order in which they are started.
var Services = model.Services

// Fleet is a running Berth.
type Fleet struct {
	config   Config
	etcd     *embedded.Etcd   // nil when its members are children
	members  []*child.Process // of etcd
	etcds    []string         // etcd's endpoints
	initial  string           // etcd's members, as each is told of them
	replicas map[string][]*child.Process
	gateways []*child.Process
	agents   map[string]*child.Process
	flags    map[*child.Process][]string // those that take a process's addresses
	held     []*port.Held                // ports of those whose addresses others know before they run
	fronts   []process.Addresses         // the gateways' addresses
	client   *client.Client
}

const (
	// stopTimeout is what the processes of one kind have to stop in.
	stopTimeout = 15 * time.Second
	// lookEvery is how often it is looked who leads while nobody does.
	lookEvery = 50 * time.Millisecond
)

// Start starts etcd, the services and the gateways.
func Start(ctx context.Context, config Config) (*Fleet, error) {
	if config.Replicas == 0 {
		config.Replicas = 2
	}
	if config.Gateways == 0 {
		config.Gateways = 1
	}
	if config.LogLevel == "" {
		config.LogLevel = "info"
	}
	if config.Via == nil {
		config.Via = func(_, _, address string) (string, error) { return address, nil }
	}
	if config.Program == nil {
		config.Program = func(string) string { return config.Binary }
	}
	if config.Place == nil {
		config.Place = func(string) (Place, error) { return Place{}, nil }
	}
	f := &Fleet{config: config, replicas: map[string][]*child.Process{}, agents: map[string]*child.Process{}, flags: map[*child.Process][]string{}}
	if err := f.start(ctx); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context) (err error) {
	if err := f.startEtcd(ctx); err != nil {
		return err
	}
	if f.config.Seed != nil {
		if err := f.config.Seed(ctx, f.etcds); err != nil {
			return err
		}
	}
	// The services have to know where the gateways will be.
	for i := range f.config.Gateways {
		var front process.Addresses
		for n, address := range []*string{&front.Listen, &front.Agents, &front.Internal} {
			if *address, err = f.address(fmt.Sprintf("gateway-%d", i), n); err != nil {
				return err
			}
		}
		f.fronts = append(f.fronts, front)
	}
	for _, service := range Services {
		for i := range f.config.Replicas {
			name := fmt.Sprintf("%s-%d", service, i)
			etcds, err := f.via(name, "etcd", f.etcds)
			if err != nil {
				return err
			}
			gateways, err := f.via(name, model.ServiceGateway, f.InternalGateways())
			if err != nil {
				return err
			}
			listen, err := f.address(name, 0)
			if err != nil {
				return err
			}
			advertise, err := f.config.Via("proof", name, listen)
			if err != nil {
				return err
			}
			args := []string{service, "--replica", name, "--listen", listen, "--advertise", advertise,
				"--etcd-endpoints", etcds, "--gateways", gateways, "--log-level", f.config.LogLevel}
			if f.config.TTL != 0 {
				args = append(args, "--ttl", f.config.TTL.String())
			}
			p, err := f.process(name, f.flagged(service, args), "--http-listen")
			if err != nil {
				return err
			}
			f.replicas[service] = append(f.replicas[service], p)
			if err := f.Restart(ctx, p); err != nil {
				return err
			}
		}
	}
	for i, front := range f.fronts {
		name := fmt.Sprintf("gateway-%d", i)
		etcds, err := f.via(name, "etcd", f.etcds)
		if err != nil {
			return err
		}
		args := []string{"gateway", "--replica", name, "--listen", front.Listen, "--agents-listen", front.Agents, "--internal-listen", front.Internal,
			"--etcd-endpoints", etcds, "--log-level", f.config.LogLevel}
		for _, service := range Services {
			replicas, err := f.via(name, service, f.addresses(service))
			if err != nil {
				return err
			}
			args = append(args, "--"+service, replicas)
		}
		p, err := f.process(name, f.flagged(model.ServiceGateway, args))
		if err != nil {
			return err
		}
		f.gateways = append(f.gateways, p)
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	f.client, err = client.Dial(f.Gateways())
	return err
}

// flagged adds the flags that the configuration has for a service.
func (f *Fleet) flagged(service string, args []string) []string {
	common := f.config.Flags[""]
	if service == "etcd" {
		common = nil
	}
	return slices.Concat(args, common, f.config.Flags[service])
}

// via lists the addresses of all processes of a kind as another reaches them.
func (f *Fleet) via(from, kind string, addresses []string) (string, error) {
	var list []string
	for i, address := range addresses {
		reached, err := f.config.Via(from, fmt.Sprintf("%s-%d", kind, i), address)
		if err != nil {
			return "", err
		}
		list = append(list, reached)
	}
	return strings.Join(list, ","), nil
}

func (f *Fleet) addresses(service string) []string {
	var list []string
	for _, p := range f.replicas[service] {
		list = append(list, p.Addresses().Listen)
	}
	return list
}

// Agent is the process of an agent, or of the simulated executors of a prefix.
func (f *Fleet) Agent(id string) *child.Process { return f.agents[id] }

// GatewayProcess is the process of the i-th gateway.
func (f *Fleet) GatewayProcess(i int) *child.Process { return f.gateways[i] }

// Replica is the process of the i-th replica of a service.
func (f *Fleet) Replica(service string, i int) *child.Process { return f.replicas[service][i] }

// Processes are the children of each kind: the services by their names, the
// gateways as "gateway", etcd's members as "etcd" when they are children, and
// "agents".
func (f *Fleet) Processes() map[string][]*child.Process {
	all := maps.Clone(f.replicas)
	all[model.ServiceGateway] = f.gateways
	all["agents"] = slices.Collect(maps.Values(f.agents))
	if len(f.members) > 0 {
		all["etcd"] = f.members
	}
	return all
}

// Restart starts a process of the fleet that has ended, at the address it had.
func (f *Fleet) Restart(ctx context.Context, p *child.Process) error {
	return p.Start(ctx, f.flags[p]...)
}

// Leader waits until a process leads a service, and answers it and its term.
func (f *Fleet) Leader(ctx context.Context, service string) (*child.Process, int64, error) {
	for looked := false; ; looked = true {
		p, term, err := f.leads(ctx, service)
		if p != nil {
			return p, term, nil
		}
		// A look that ctx cuts short says less than the one before: nobody led.
		if cut := looked && ctx.Err() != nil; err != nil && !cut {
			return nil, 0, err
		}
		if err := store.Sleep(ctx, lookEvery); err != nil {
			return nil, 0, fmt.Errorf("nobody leads %s: %w", service, err)
		}
	}
}

// leads is the process that leads a service just now, and its term; nil when none
// does.
func (f *Fleet) leads(ctx context.Context, service string) (*child.Process, int64, error) {
	answer, err := f.client.Leaders(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, s := range answer.GetServices() {
		if s.GetService() != service {
			continue
		}
		for _, p := range f.replicas[service] {
			if p.Name == s.GetLeader() {
				return p, s.GetTerm(), nil
			}
		}
	}
	return nil, 0, nil
}

// Gateway is the address of the first gateway, REST and gRPC.
func (f *Fleet) Gateway() string { return f.fronts[0].Listen }

// Gateways are the addresses of all gateways.
func (f *Fleet) Gateways() []string {
	return f.listeners(func(a process.Addresses) string { return a.Listen })
}

// AgentsGateways are the addresses at which agents call the gateways.
func (f *Fleet) AgentsGateways() []string {
	return f.listeners(func(a process.Addresses) string { return a.Agents })
}

// InternalGateways are the addresses at which the services call the gateways.
func (f *Fleet) InternalGateways() []string {
	return f.listeners(func(a process.Addresses) string { return a.Internal })
}

func (f *Fleet) listeners(of func(process.Addresses) string) []string {
	var list []string
	for _, front := range f.fronts {
		list = append(list, of(front))
	}
	return list
}

// Client is a client of the gateways.
func (f *Fleet) Client() *client.Client { return f.client }

// Close stops agents, gateways, services and etcd, in this order.
func (f *Fleet) Close() error {
	var all []error
	if f.client != nil {
		all = append(all, f.client.Close())
	}
	stop := func(processes []*child.Process) {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		ended := make(chan error, len(processes))
		for _, p := range processes {
			go func() { ended <- p.Stop(ctx) }()
		}
		for range processes {
			all = append(all, <-ended)
		}
	}
	stop(slices.Collect(maps.Values(f.agents)))
	stop(f.gateways)
	for _, service := range Services {
		stop(f.replicas[service])
	}
	if f.etcd != nil {
		f.etcd.Close()
	}
	// One that leads and is told to stop first hands over, to others that stop too:
	// that takes its whole time-out, and what is on disk is whole either way.
	for _, p := range f.members {
		p.Kill()
	}
	for _, p := range f.held {
		p.Release()
	}
	return errors.Join(all...)
}

// Binary finds the program `berth` for who runs as something else: the path in
// BERTH_BINARY.
func Binary() (string, error) {
	if path := os.Getenv("BERTH_BINARY"); path != "" {
		return path, nil
	}
	return os.Executable()
}
