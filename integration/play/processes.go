package play

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/cmd/berth/audit"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/quantity"
	"berth.dev/pkg/store"
)

const (
	// patience is the maximum duration of every wait on real processes.
	patience = time.Minute
	// lookEvery is the interval of polls for conditions that give no signal.
	lookEvery = 5 * time.Millisecond
)

// Processes is a cluster of real processes on this machine.
type Processes struct {
	*grpc.ClientConn
	fleet  *fleet.Fleet
	store  *store.Etcd
	dir    string
	work   string // the working directory of all workers
	killed map[string]*child.Process
	agents map[string]place // the newest agent, by executor ID
	timely bool             // see Options.Timely
	silent map[string]*silentHost
}

// place is the process and directory of an agent.
type place struct{ process, dir string }

// StartProcesses starts etcd and the services. binary is the program `berth`. dir is the
// directory for the files of all processes.
func StartProcesses(binary, dir string, o Options) (*Processes, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p := &Processes{dir: dir, work: filepath.Join(dir, "work"), killed: map[string]*child.Process{},
		agents: map[string]place{}, timely: o.Timely, silent: map[string]*silentHost{}}
	err := os.Mkdir(p.work, 0o755)
	if err != nil {
		return nil, err
	}
	var registry []string
	if o.Readiness != "" {
		registry = append(registry, "--readiness", o.Readiness)
	}
	if o.Defaults != "" {
		registry = append(registry, "--default-attributes", o.Defaults)
	}
	if o.Legacy {
		registry = append(registry, "--pass-through-reservation-scheduling=false")
	}
	if p.fleet, err = fleet.Start(ctx, fleet.Config{
		Binary: binary, Dir: dir, Replicas: o.Replicas, Flags: map[string][]string{model.ServiceRegistry: registry},
	}); err != nil {
		return nil, err
	}
	if p.ClientConn, err = rpc.Dial(p.fleet.Gateways(), rpc.DialOptions{}); err != nil {
		return nil, errors.Join(err, p.fleet.Close())
	}
	if p.store, err = store.Dial(store.DialConfig{Endpoints: p.fleet.Etcd()}); err != nil {
		return nil, errors.Join(err, p.ClientConn.Close(), p.fleet.Close())
	}
	return p, nil
}

// Follow implements Cluster.
func (p *Processes) Follow(job string, enough func(*berthv1.Event) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for event, err := range p.fleet.Client().Events(ctx, job, "") {
		if err != nil || enough(event) {
			return err
		}
	}
	return fmt.Errorf("the event stream of %s ended early", job)
}

// Until implements Cluster.
func (p *Processes) Until(holds func() bool) error {
	look, end := time.NewTicker(lookEvery), time.NewTimer(patience)
	defer look.Stop()
	defer end.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-end.C:
			return fmt.Errorf("condition not met within %v", patience)
		}
	}
	return nil
}

// Now implements Cluster.
func (p *Processes) Now() time.Time { return time.Now() }

// Wait implements Cluster.
func (p *Processes) Wait(d time.Duration) error {
	<-time.After(d)
	return nil
}

// StartExecutor implements Cluster.
func (p *Processes) StartExecutor(e Executor) error {
	if e.Silent {
		return p.startSilent(e)
	}
	return p.startAgent(e, place{e.ID, filepath.Join(p.dir, e.ID)})
}

// StartCopy implements Cluster.
func (p *Processes) StartCopy(e Executor) error {
	name := e.ID + ".copy"
	return p.startAgent(e, place{name, filepath.Join(p.dir, name)})
}

// RestartAgentAs implements Cluster.
func (p *Processes) RestartAgentAs(id string, now Executor) error {
	dir := p.agents[id].dir
	if now.ID != id {
		if err := fleet.GiveDirectory(dir, now.ID); err != nil {
			return err
		}
	}
	return p.startAgent(now, place{now.ID, dir})
}

func (p *Processes) startAgent(e Executor, at place) error {
	agent := fleet.Agent{
		ID: e.ID, SKU: e.SKU, Generation: int(e.Generation), Allow: e.Allow, Starts: e.Starts, WorkDir: p.work, Slots: 1,
		Name: at.process, Dir: at.dir,
	}
	for name, amount := range e.Resources {
		if name == "slots" {
			agent.Slots = int(amount)
			continue
		}
		agent.Resources = append(agent.Resources, name+"="+quantity.String(name, amount))
	}
	for role, share := range e.Reserved {
		amounts := make([]string, 0, len(share))
		for name, amount := range share {
			amounts = append(amounts, name+"="+quantity.String(name, amount))
		}
		agent.Reserved = append(agent.Reserved, role+":"+strings.Join(amounts, ","))
	}
	for name, value := range e.Attributes {
		agent.Attributes = append(agent.Attributes, name+"="+value)
	}
	p.agents[e.ID] = at
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.fleet.StartAgent(ctx, agent)
}

// KillAgent implements Cluster.
func (p *Processes) KillAgent(id string) error {
	agent := p.fleet.Agent(p.agents[id].process)
	if agent == nil {
		return fmt.Errorf("unknown agent %s", id)
	}
	agent.Kill()
	return nil
}

// FreezeAgent implements Cluster.
func (p *Processes) FreezeAgent(id string) error { return p.signal(id, syscall.SIGSTOP) }

// ThawAgent implements Cluster.
func (p *Processes) ThawAgent(id string) error { return p.signal(id, syscall.SIGCONT) }

func (p *Processes) signal(id string, signal os.Signal) error {
	agent := p.fleet.Agent(p.agents[id].process)
	if agent == nil {
		return fmt.Errorf("unknown agent %s", id)
	}
	return agent.Signal(signal)
}

// Wipe implements Cluster. It kills the programs of the workers, which outlive the agent
// because they are not child processes of the agent.
func (p *Processes) Wipe(id string) error {
	dir := p.agents[id].dir
	if err := os.Rename(dir, dir+".wiped"); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := os.Link(filepath.Join(dir+".wiped", "secret"), filepath.Join(dir, "secret")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	on, err := berthv1.NewAssignmentsClient(p).ListAssignments(ctx,
		&berthv1.ListAssignmentsRequest{Executor: id, PageSize: 1000})
	for _, a := range on.GetAssignments() {
		err = errors.Join(err, p.Finish(model.Worker{Job: a.GetJob(), Stage: a.GetStage(),
			ID: model.WorkerID{Index: a.GetIndex(), Number: a.GetNumber()}}, 0))
	}
	return err
}

func (p *Processes) volumes(id string, parts ...string) string {
	return filepath.Join(append([]string{p.agents[id].dir, "volumes"}, parts...)...)
}

// WipeVolumes implements Cluster.
func (p *Processes) WipeVolumes(id string) error {
	volumes, err := os.ReadDir(p.volumes(id))
	for _, v := range volumes {
		err = errors.Join(err, os.RemoveAll(p.volumes(id, v.Name())))
	}
	return err
}

// AddVolume implements Cluster.
func (p *Processes) AddVolume(id, name string) error { return os.MkdirAll(p.volumes(id, name), 0o700) }

// HasVolume implements Cluster.
func (p *Processes) HasVolume(id, volume string) bool {
	_, err := os.Stat(p.volumes(id, volume))
	return err == nil
}

// Written implements Cluster.
func (p *Processes) Written(id, volume string) ([]string, error) {
	text, err := os.ReadFile(p.volumes(id, volume, "written"))
	return strings.Fields(string(text)), err
}

// RestartAgent implements Cluster.
func (p *Processes) RestartAgent(id string) error {
	return p.restart(p.fleet.Agent(p.agents[id].process))
}

func (p *Processes) restart(process *child.Process) error {
	if process == nil {
		return errors.New("the agent was never started")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.fleet.Restart(ctx, process)
}

// KillLeader implements Cluster.
func (p *Processes) KillLeader(service string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	leader, _, err := p.fleet.Leader(ctx, service)
	if err != nil {
		return err
	}
	leader.Kill()
	p.killed[service] = leader
	return nil
}

// Restart implements Cluster.
func (p *Processes) Restart(service string) error {
	process := p.killed[service]
	delete(p.killed, service)
	return p.restart(process)
}

// Finish implements Cluster.
func (p *Processes) Finish(w model.Worker, code int32) error { return p.say(w, fmt.Sprint(code)) }

// Ready implements Cluster.
func (p *Processes) Ready(w model.Worker) error { return p.say(w, ready) }

// Timely implements Cluster.
func (p *Processes) Timely() bool { return p.timely }

// say writes a line to the pipe of a worker's program.
func (p *Processes) say(w model.Worker, line string) error {
	name := filepath.Join(p.work, fmt.Sprintf("%s.%s.%d.%d", w.Job, w.Stage, w.ID.Index, w.ID.Number))
	var pipe *os.File
	err := p.Until(func() (ok bool) {
		// The open succeeds once the program reads from the pipe.
		var err error
		pipe, err = os.OpenFile(name, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("%s is not running: %w", w, err)
	}
	_, err = fmt.Fprintln(pipe, line)
	return errors.Join(err, pipe.Close())
}

// Store implements Cluster.
func (p *Processes) Store() (store.Store, keyspace.Space) {
	return p.store, keyspace.New("default")
}

// Programs implements Cluster.
func (p *Processes) Programs() (int, error) {
	programs, err := p.programs()
	return len(programs), err
}

// programs returns the processes of workers and the parent processes of workers. Only
// these processes have a working directory below the fleet's directory.
func (p *Processes) programs() ([]int, error) {
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	var programs []int
	for _, link := range links {
		dir, err := os.Readlink(link) // an exited process has no working directory
		if err != nil || !strings.HasPrefix(dir, p.dir+string(filepath.Separator)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
			programs = append(programs, pid)
		}
	}
	return programs, err
}

// Rest implements Cluster.
func (p *Processes) Rest() error {
	_, space := p.Store()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	follower, ended := audit.Follow(p.store, space), make(chan struct{})
	go func() { defer close(ended); follower.Run(ctx) }()
	defer func() { cancel(); <-ended }()

	var left []audit.Violation
	err := p.Until(func() bool {
		if err := follower.CatchUp(ctx); err != nil {
			return false
		}
		follower.Look(func(a *audit.Auditor) { left = a.Quiesced() })
		return len(left) == 0
	})
	if err != nil {
		return fmt.Errorf("%w: %d violations: %v", err, len(left), left)
	}
	auditor, err := audit.Check(ctx, p.store, space, 0)
	if err != nil {
		return err
	}
	for _, v := range auditor.Violations() {
		err = errors.Join(err, fmt.Errorf("%v", v))
	}
	if stats := auditor.Stats(); stats.Snapshots != 0 {
		err = errors.Join(err, fmt.Errorf("the audited history has gaps: %+v", stats))
	}
	return err
}

// Close implements Cluster. It also kills the processes that killed agents have left.
func (p *Processes) Close() error {
	var err error
	for _, h := range p.silent {
		err = errors.Join(err, h.close())
	}
	err = errors.Join(err, p.store.Close(), p.ClientConn.Close(), p.fleet.Close())
	over := p.Until(func() bool {
		programs, listed := p.programs()
		for _, pid := range programs {
			_ = syscall.Kill(pid, syscall.SIGKILL) // fails if the process has exited
		}
		return listed == nil && len(programs) == 0
	})
	if over != nil {
		over = fmt.Errorf("programs still run: %w", over)
	}
	return errors.Join(err, over)
}
