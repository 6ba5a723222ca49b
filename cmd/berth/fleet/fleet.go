// Package fleet runs a whole Berth as real processes on this machine: etcd in
// this one or apart, replicas of every service, gateways and agents as children. The
// demo, the benchmarks and the tests on real processes use it.
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
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth.dev/cmd/berth/internal/embedded"
	"berth.dev/pkg/client"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/process/port"
)

// Config of a fleet.
type Config struct {
	// Binary is the program `berth`.
	Binary string
	// Dir keeps data, logs and workers; it must exist.
	Dir string
	// Replicas of each service, and gateways; 2 and 1 unless given.
	Replicas, Gateways int
	// TTL of the leaders' etcd leases; the services' default unless given.
	TTL time.Duration
	// LogLevel of the children; info unless given.
	LogLevel string
	// EtcdApart runs etcd as a child too, so that what it costs can be told from
	// what this process does.
	EtcdApart bool
	// Flags are further flags of replicas and gateways, by service; those of ""
	// are for all of them. Those of "agent" are for agents and simulated executors.
	Flags map[string][]string
}

// Services in the order in which they are started.
var Services = []string{model.ServiceRegistry, model.ServiceExecutorState, model.ServiceAssigner}

// Fleet is a running Berth.
type Fleet struct {
	config   Config
	etcd     *embedded.Etcd // nil when it is apart
	apart    *child.Process // nil when it is not
	endpoint string         // of etcd
	replicas map[string][]*child.Process
	gateways []*child.Process
	agents   map[string]*child.Process
	flags    map[*child.Process][]string // those that take a process's addresses
	held     []*port.Held                // the gateways' ports
	fronts   []string                    // the gateways' addresses
	client   *client.Client
}

const stopTimeout = 15 * time.Second

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
	// The services have to know where the gateways will be.
	for range f.config.Gateways {
		held, err := port.Hold("127.0.0.1")
		if err != nil {
			return err
		}
		f.held, f.fronts = append(f.held, held), append(f.fronts, held.Address())
	}
	for _, service := range Services {
		for i := range f.config.Replicas {
			name := fmt.Sprintf("%s-%d", service, i)
			args := []string{service, "--replica", name, "--etcd-endpoints", f.endpoint, "--gateways", strings.Join(f.fronts, ","), "--log-level", f.config.LogLevel}
			if f.config.TTL != 0 {
				args = append(args, "--ttl", f.config.TTL.String())
			}
			p := child.New(name, f.config.Binary, f.config.Dir, nil, f.flagged(service, args)...)
			f.replicas[service] = append(f.replicas[service], p)
			f.flags[p] = []string{"--listen", "--http-listen"}
			if err := f.Restart(ctx, p); err != nil {
				return err
			}
		}
	}
	for i, address := range f.fronts {
		args := []string{"gateway", "--replica", fmt.Sprintf("gateway-%d", i), "--listen", address, "--etcd-endpoints", f.endpoint, "--log-level", f.config.LogLevel}
		for _, service := range Services {
			args = append(args, "--"+service, strings.Join(f.addresses(service), ","))
		}
		p := child.New(fmt.Sprintf("gateway-%d", i), f.config.Binary, f.config.Dir, nil, f.flagged(model.ServiceGateway, args)...)
		f.gateways = append(f.gateways, p)
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	f.client, err = client.Dial(f.fronts)
	return err
}

// flagged adds the flags that the configuration has for a service.
func (f *Fleet) flagged(service string, args []string) []string {
	return slices.Concat(args, f.config.Flags[""], f.config.Flags[service])
}

func (f *Fleet) startEtcd(ctx context.Context) (err error) {
	if f.config.EtcdApart {
		f.apart = child.New("etcd", f.config.Binary, f.config.Dir, nil, "etcd", "--dir", f.config.Dir)
		err = f.apart.Start(ctx)
		f.endpoint = f.apart.Addresses().Listen
		return err
	}
	if f.etcd, err = embedded.Start(ctx, f.config.Dir); err != nil {
		return err
	}
	f.endpoint = f.etcd.Endpoint()
	return nil
}

func (f *Fleet) addresses(service string) []string {
	var list []string
	for _, p := range f.replicas[service] {
		list = append(list, p.Addresses().Listen)
	}
	return list
}

// Agent describes an agent to start.
type Agent struct {
	ID    string
	Slots int
	// Resources beside slots, as name=amount; detected from the host when empty.
	Resources []string
	// Reserved is what of them is set aside for workers of a role, as
	// role:name=amount,name=amount.
	Reserved []string
	// Attributes as name=value.
	Attributes []string
	SKU        string
	Generation int
	// Allow lists the commands that it may run; every command unless given.
	Allow []string
	// WorkDir is where its workers run; each in a directory of its own unless given.
	WorkDir string
}

// StartAgent starts a real agent on loopback.
func (f *Fleet) StartAgent(ctx context.Context, a Agent) error {
	resources := append([]string{"slots=" + strconv.Itoa(a.Slots)}, a.Resources...)
	if a.Allow == nil {
		a.Allow = []string{"*"}
	}
	args := []string{"agent", "--id", a.ID, "--gateways", strings.Join(f.fronts, ","), "--resources", strings.Join(resources, ","),
		"--dir", filepath.Join(f.config.Dir, a.ID), "--allow", strings.Join(a.Allow, ","), "--stop-workers", "--log-level", f.config.LogLevel}
	if a.SKU != "" {
		args = append(args, "--sku", a.SKU)
	}
	for _, share := range a.Reserved {
		args = append(args, "--reserved", share)
	}
	if len(a.Attributes) > 0 {
		args = append(args, "--attributes", strings.Join(a.Attributes, ","))
	}
	if a.Generation != 0 {
		args = append(args, "--generation", strconv.Itoa(a.Generation))
	}
	if a.WorkDir != "" {
		args = append(args, "--work-dir", a.WorkDir)
	}
	return f.startAgents(ctx, a.ID, args)
}

// StartSim starts a process of n simulated executors, named prefix-0 and so on.
func (f *Fleet) StartSim(ctx context.Context, prefix string, n, slots int) error {
	return f.startAgents(ctx, prefix, []string{"sim", "--prefix", prefix, "--sku", prefix, "--executors", strconv.Itoa(n),
		"--resources", "slots=" + strconv.Itoa(slots), "--gateways", strings.Join(f.fronts, ","), "--log-level", f.config.LogLevel})
}

func (f *Fleet) startAgents(ctx context.Context, name string, args []string) error {
	p := child.New(name, f.config.Binary, f.config.Dir, nil, slices.Concat(args, f.config.Flags["agent"])...)
	f.agents[name], f.flags[p] = p, []string{"--listen"}
	return f.Restart(ctx, p)
}

// Agent is the process of an agent, or of the simulated executors of a prefix.
func (f *Fleet) Agent(id string) *child.Process { return f.agents[id] }

// GatewayProcess is the process of the i-th gateway.
func (f *Fleet) GatewayProcess(i int) *child.Process { return f.gateways[i] }

// Replica is the process of the i-th replica of a service.
func (f *Fleet) Replica(service string, i int) *child.Process { return f.replicas[service][i] }

// Processes are the children of each kind: the services by their names, the
// gateways as "gateway", etcd as "etcd" when it is apart, and "agents".
func (f *Fleet) Processes() map[string][]*child.Process {
	all := maps.Clone(f.replicas)
	all[model.ServiceGateway] = f.gateways
	all["agents"] = slices.Collect(maps.Values(f.agents))
	if f.apart != nil {
		all["etcd"] = []*child.Process{f.apart}
	}
	return all
}

// Restart starts a process of the fleet that has ended, at the address it had.
func (f *Fleet) Restart(ctx context.Context, p *child.Process) error {
	return p.Start(ctx, f.flags[p]...)
}

// Leader finds the process that leads a service, and its term; nil while none
// does.
func (f *Fleet) Leader(ctx context.Context, service string) (*child.Process, int64, error) {
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
func (f *Fleet) Gateway() string { return f.fronts[0] }

// Gateways are the addresses of all gateways.
func (f *Fleet) Gateways() []string { return f.fronts }

// Etcd lists etcd's endpoints.
func (f *Fleet) Etcd() []string { return []string{f.endpoint} }

// Client is a client of the gateways.
func (f *Fleet) Client() *client.Client { return f.client }

// Close stops agents, gateways, services and etcd, in this order.
func (f *Fleet) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	var all []error
	if f.client != nil {
		all = append(all, f.client.Close())
	}
	stop := func(processes []*child.Process) {
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
	if f.apart != nil {
		stop([]*child.Process{f.apart})
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
