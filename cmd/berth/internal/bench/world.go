package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

const (
	// readyTimeout bounds how long executors take to become READY, stopTimeout how long
	// they take to stop.
	readyTimeout = 3 * time.Minute
	stopTimeout  = 30 * time.Second
	// maxTries bounds how often an idempotent request to etcd is sent.
	maxTries = 5
)

// World is a Berth for one workload, or for a part of one.
type World struct {
	Client *client.Client
	Etcd   *store.Etcd
	Space  keyspace.Space
	// Prefix begins the name of every job and executor.
	Prefix string

	run  *Run
	site *site
	sims []*child.Process
	from int64 // the audit begins after this revision
	// record is the value that Berth writes for a reservation.
	record []byte
	// stopTail ends the tail, if there is one.
	stopTail func() error
	// measured is the number of phases that the run had before this world.
	measured int

	mu   sync.Mutex
	jobs map[string]bool
}

// World calls do with a new world. If do succeeds, it audits every revision that the
// world has written, except the seed, which no service wrote.
func (r *Run) World(ctx context.Context, s setup, do func(ctx context.Context, w *World) error) (err error) {
	r.Say("starting")
	r.setup = s
	site, err := r.Place(ctx, r)
	if err != nil {
		return err
	}
	w := &World{run: r, site: site, Prefix: site.prefix, Space: keyspace.New(site.cluster), measured: len(r.Costs),
		jobs: map[string]bool{}, stopTail: func() error { return nil }}
	defer func() { err = errors.Join(err, w.close()) }()
	if w.Client, err = client.Dial(site.gateways); err != nil {
		return err
	}
	if w.Etcd, err = store.Dial(store.DialConfig{Endpoints: site.etcd}); err != nil {
		return err
	}
	if site.fleet == nil || s.seed != nil {
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

// awaitLeaders waits until every service has a leader.
func (w *World) awaitLeaders(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if _, err := w.Client.Pending(ctx); err != nil {
		return err
	}
	if _, err := w.Client.ExecutorsPage(ctx, &berthv1.ListExecutorsRequest{PageSize: 1}); err != nil {
		return err
	}
	_, err := w.Client.AssignmentsPage(ctx, &berthv1.ListAssignmentsRequest{PageSize: 1})
	return err
}

// close ends the world. In a running cluster it cancels the jobs of the world and
// deletes its raw keys.
func (w *World) close() error {
	var all []error
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if w.site.fleet == nil && w.Etcd != nil {
		for job := range w.jobs {
			_, err := w.Client.CancelJob(ctx, job)
			all = append(all, err)
		}
		all = append(all, w.clear(ctx))
	}
	for _, sim := range w.sims {
		all = append(all, sim.Stop(ctx))
	}
	if w.Etcd != nil {
		all = append(all, w.Etcd.Close())
	}
	if w.Client != nil {
		all = append(all, w.Client.Close())
	}
	return errors.Join(append(all, w.site.close())...)
}

// SKU returns the SKU of the simulated executors with a name; see Simulate.
func (w *World) SKU(name string) string { return w.Prefix + name }

// Simulate adds n simulated executors of an SKU in a process of their own, with
// resources as name=quantity, and waits until all are READY.
func (w *World) Simulate(ctx context.Context, name string, n int, resources ...string) error {
	began := time.Now()
	sim := child.New("sim-"+name, w.site.binary, w.site.dir, nil, "sim", "--prefix", w.SKU(name), "--sku", w.SKU(name),
		"--executors", strconv.Itoa(n), "--resources", strings.Join(resources, ","), "--gateways",
		strings.Join(w.site.agentsGateways, ","), "--log-level", "warn")
	w.sims = append(w.sims, sim)
	if err := sim.Start(ctx, "--listen"); err != nil {
		return err
	}
	if err := running.AwaitReady(ctx, w.Client, w.SKU(name), n, readyTimeout); err != nil {
		return err
	}
	w.run.Say("%d executors with %s are READY after %.1f s", n, strings.Join(resources, ","), time.Since(began).Seconds())
	return nil
}

// Job returns the name of the n-th job of the world.
func (w *World) Job(n int) string {
	job := w.Prefix + strconv.Itoa(n)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[job] = true
	return job
}

// Ask requests a batch.
func (w *World) Ask(ctx context.Context, b Batch) error {
	_, err := w.Client.Reserve(ctx, b.Request())
	return err
}

// revision returns the current revision of etcd.
func (w *World) revision(ctx context.Context) (revision int64, err error) {
	err = retry(ctx, func() error {
		page, err := w.Etcd.Page(ctx, store.PageRequest{From: "a", To: "b", Limit: 1})
		revision = page.Revision
		return err
	})
	return revision, err
}

// retry sends an idempotent request to etcd until it succeeds, at most maxTries times:
// on a busy machine one call may time out.
func retry(ctx context.Context, send func() error) (err error) {
	for range maxTries {
		if err = send(); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// Measure runs a phase and records the processor time that it used. do returns the
// number of operations.
func (w *World) Measure(ctx context.Context, phase string, do func() (operations int, err error)) error {
	w.run.Say("%s", phase)
	pids := w.pids()
	first, err := w.revision(ctx)
	if err != nil {
		return err
	}
	from, err := measureUsage(pids)
	if err != nil {
		return err
	}
	operations, err := do()
	if err != nil {
		return fmt.Errorf("%s: %w", phase, err)
	}
	to, err := measureUsage(pids)
	if err != nil {
		return err
	}
	c := cost(phase, operations, from, to)
	c.from = first
	if c.to, err = w.revision(ctx); err != nil {
		return err
	}
	w.run.Costs = append(w.run.Costs, c)
	return nil
}
