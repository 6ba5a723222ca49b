package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

const (
	// readyTimeout bounds the time until executors are READY. stopTimeout bounds the time
	// until executors have stopped.
	readyTimeout = 3 * time.Minute
	stopTimeout  = 30 * time.Second
)

// ownPrefix is the prefix of a world that has its own cluster.
const ownPrefix = "b-"

// World is a Berth cluster for one workload or a part of a workload.
type World struct {
	Client *client.Client
	Etcd   *store.Etcd
	Space  keyspace.Space
	// Prefix is the prefix of the names of all jobs and executors of the world.
	Prefix string

	*Run
	// binary is the program and dir the directory of the processes that the world starts.
	binary, dir string
	cluster     running.Cluster
	// fleet is nil if the world uses a running cluster.
	fleet *fleet.Fleet
	// processes are the child processes by kind.
	processes map[string][]*child.Process
	from      int64 // the audit begins after this revision
	// record is the value that Berth writes for a reservation.
	record []byte
	starts starts
	// stopTail stops the tail. It does nothing if there is no tail.
	stopTail func() error
	jobs     sync.Map // names of jobs
}

// World calls do with a new world. If do succeeds, World audits every revision since the
// world began. The audit does not include the seed, because no service wrote it.
func (r *Run) World(ctx context.Context, config fleet.Config, do func(context.Context, *World) error) (err error) {
	r.Say("starting")
	w := &World{Run: r, cluster: r.Cluster, processes: map[string][]*child.Process{},
		starts: starts{batches: map[client.Key]*start{}}, stopTail: func() error { return nil }}
	if w.binary, err = os.Executable(); err != nil {
		return err
	}
	if w.dir, err = os.MkdirTemp(r.Dir, "berth-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(w.dir)) }()
	if len(r.Cluster.Gateways) > 0 {
		w.Prefix = "bench-" + strings.ToLower(rand.Text()[:8]) + "-"
	} else {
		if err := w.startBerth(ctx, config); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.fleet.Close()) }()
	}
	w.Space = keyspace.New(w.cluster.Name)
	var security *tls.Config
	etcd := store.DialConfig{Endpoints: w.cluster.Etcd}
	if w.fleet != nil {
		security = w.fleet.ClientTLS(identity.Gateway)
		if etcd, err = w.fleet.EtcdConfig(); err != nil {
			return err
		}
	}
	if w.Client, err = client.Dial(w.cluster.Gateways, client.WithTLS(security)); err != nil {
		return err
	}
	defer w.Client.Close()
	if w.Etcd, err = store.Dial(etcd); err != nil {
		return err
	}
	defer w.Etcd.Close()
	defer func() { err = errors.Join(err, w.leave()) }()
	if w.fleet == nil || config.Seed != nil {
		if w.from, err = w.revision(ctx); err != nil {
			return err
		}
	}
	if err := w.awaitLeaders(ctx); err != nil {
		return err
	}
	if err := w.readRecord(ctx); err != nil {
		return err
	}
	stopProfiles := w.profile(ctx)
	err = errors.Join(do(ctx, w), w.stopTail())
	stopProfiles()
	if err != nil {
		return err
	}
	return w.audit(ctx)
}

// startBerth starts a Berth cluster in which every part is a separate process.
func (w *World) startBerth(ctx context.Context, config fleet.Config) (err error) {
	config.Binary, config.Dir, config.Replicas = w.binary, w.dir, w.Replicas
	config.Etcd, config.LogLevel = max(1, config.Etcd), cmp.Or(config.LogLevel, "warn")
	if w.Profiles != "" {
		config.Flags = map[string][]string{"": append([]string{"--pprof"}, config.Flags[""]...),
			model.ServiceGateway: {"--http-listen", "127.0.0.1:0"}}
	}
	if w.fleet, err = fleet.Start(ctx, config); err != nil {
		return err
	}
	w.Prefix, w.processes = ownPrefix, w.fleet.Processes()
	w.cluster = running.Cluster{Name: "default", Gateways: w.fleet.Gateways(),
		AgentsGateways: w.fleet.AgentsGateways(), Etcd: w.fleet.Etcd()}
	return nil
}

// awaitLeaders waits until every service has a leader.
func (w *World) awaitLeaders(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if _, err := w.Client.PendingPage(ctx, &berthv1.ListPendingRequest{PageSize: 1}); err != nil {
		return err
	}
	if _, err := w.Client.ExecutorsPage(ctx, &berthv1.ListExecutorsRequest{PageSize: 1}); err != nil {
		return err
	}
	_, err := w.Client.AssignmentsPage(ctx, &berthv1.ListAssignmentsRequest{PageSize: 1})
	return err
}

// leave stops the simulated executors. If the world uses a running cluster, leave first
// cancels the jobs of the world and deletes the keys that put has written.
func (w *World) leave() error {
	var all []error
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if w.fleet == nil {
		for job := range w.jobs.Range {
			_, err := w.Client.CancelJob(ctx, job.(string))
			all = append(all, err)
		}
		// A digit follows the prefix in every key, and ':' follows the digits in ASCII.
		raw := store.DeleteRange(w.rawPrefix(), w.rawPrefix()+":")
		_, err := w.Etcd.Txn(ctx, store.Txn{Then: []store.Op{raw}})
		all = append(all, err)
	}
	for _, sim := range w.processes[kindSim] {
		all = append(all, sim.Stop(ctx))
	}
	return errors.Join(all...)
}

// SKU returns the SKU of the simulated executors with a name; see Simulate.
func (w *World) SKU(name string) string { return w.Prefix + name }

// startSim starts a process with n simulated executors of an SKU. Each resource has the form
// name=quantity.
func (w *World) startSim(ctx context.Context, name string, n int, resources ...string) error {
	args := []string{"sim", "--prefix", w.SKU(name), "--sku", w.SKU(name),
		"--executors", strconv.Itoa(n), "--resources", strings.Join(resources, ","), "--gateways",
		strings.Join(w.cluster.AgentsGateways, ","), "--log-level", "warn"}
	if w.fleet != nil && w.fleet.ClientTLS(identity.Gateway) != nil {
		files, err := w.fleet.Issue(identity.Agent, w.SKU(name)+"-*")
		if err != nil {
			return err
		}
		args = append(args, "--tls-cert", files.Cert, "--tls-key", files.Key, "--tls-ca", files.CA)
	}
	sim := child.New("sim-"+name, w.binary, w.dir, nil, args...)
	w.processes[kindSim] = append(w.processes[kindSim], sim)
	return sim.Start(ctx, "--listen")
}

// Simulate starts n simulated executors, as startSim does, and waits until all are READY.
func (w *World) Simulate(ctx context.Context, name string, n int, resources ...string) error {
	began := time.Now()
	if err := w.startSim(ctx, name, n, resources...); err != nil {
		return err
	}
	if err := running.AwaitReady(ctx, w.Client, w.SKU(name), n, readyTimeout); err != nil {
		return err
	}
	w.Say("%d executors with %s are READY after %.1f s", n, strings.Join(resources, ","), time.Since(began).Seconds())
	return nil
}

// Job returns the name of the n-th job of the world.
func (w *World) Job(n int) string {
	job := w.Prefix + strconv.Itoa(n)
	w.jobs.Store(job, nil)
	return job
}

// Ask requests a batch.
func (w *World) Ask(ctx context.Context, b Batch) error {
	_, err := w.Client.Reserve(ctx, b.Request())
	return err
}

// revision returns the current revision of etcd.
func (w *World) revision(ctx context.Context) (int64, error) {
	answer, err := w.Etcd.Client().Get(ctx, "berth")
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

// Measure runs a phase, and records and returns the cost of the phase. do returns the number
// of operations of the phase.
func (w *World) Measure(ctx context.Context, phase string, do func() (operations int, err error)) (c Cost, err error) {
	w.Say("%s", phase)
	pids := w.pids()
	first, err := w.revision(ctx)
	if err != nil {
		return c, err
	}
	from, err := measureUsage(pids)
	if err != nil {
		return c, err
	}
	operations, err := do()
	if err != nil {
		return c, fmt.Errorf("%s: %w", phase, err)
	}
	to, err := measureUsage(pids)
	if err != nil {
		return c, err
	}
	c = cost(phase, operations, from, to)
	c.world, c.from = w, first
	if c.to, err = w.revision(ctx); err != nil {
		return c, err
	}
	w.Costs = append(w.Costs, c)
	return c, nil
}
