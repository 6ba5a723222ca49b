package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

const (
	// readyTimeout bounds how long executors may take to be READY, stopTimeout
	// how long they may take to end.
	readyTimeout = 3 * time.Minute
	stopTimeout  = 30 * time.Second
	// mostTries is how often etcd is asked again at most.
	mostTries = 5
)

// World is a Berth for one workload, or a part of one.
type World struct {
	Client *client.Client
	// Conn is a connection to the gateways, for calls that Client has not.
	Conn  *grpc.ClientConn
	Etcd  *store.Etcd
	Space keyspace.Space
	// Prefix begins the name of every job and executor.
	Prefix string

	run  *Run
	site *site
	sims []*child.Process
	from int64 // the revision that the audit begins behind
	// record is what Berth writes for a reservation.
	record []byte
	// stopTail ends the tail, if there is one.
	stopTail func() error
	// measured is how many phases the run had before this world.
	measured int

	mu   sync.Mutex
	jobs map[string]bool
}

// World calls do with a world of its own. If do returns no error, every revision that
// the world has written is audited, but not what etcd was seeded with: no service
// wrote it.
func (r *Run) World(ctx context.Context, s setup, do func(ctx context.Context, w *World) error) (err error) {
	r.Say("starting")
	r.setup = s
	site, err := r.Place(ctx, r)
	if err != nil {
		return err
	}
	w := &World{run: r, site: site, Prefix: site.prefix, Space: keyspace.New(site.cluster), measured: len(r.Costs), jobs: map[string]bool{}, stopTail: func() error { return nil }}
	defer func() { err = errors.Join(err, w.close()) }()
	if w.Client, err = client.Dial(site.gateways); err != nil {
		return err
	}
	if w.Conn, err = rpc.Dial(site.gateways, rpc.DialOptions{}); err != nil {
		return err
	}
	if w.Etcd, err = store.Dial(store.DialConfig{Endpoints: site.etcd}); err != nil {
		return err
	}
	if !site.passing || s.seed != nil {
		if w.from, err = w.revision(ctx); err != nil {
			return err
		}
	}
	if err := w.await(ctx); err != nil {
		return err
	}
	if err := w.readRecord(ctx); err != nil {
		return err
	}
	profiling := w.profile(ctx)
	err = do(ctx, w)
	err = errors.Join(err, w.stopTail())
	profiling()
	if err != nil {
		return err
	}
	return w.audit(ctx)
}

// await waits until every service is led.
func (w *World) await(ctx context.Context) error {
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

func (w *World) close() error {
	var all []error
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if !w.site.passing {
		all = append(all, w.leave(ctx))
	}
	for _, sim := range w.sims {
		all = append(all, sim.Stop(ctx))
	}
	if w.Etcd != nil {
		all = append(all, w.Etcd.Close())
	}
	if w.Conn != nil {
		all = append(all, w.Conn.Close())
	}
	if w.Client != nil {
		all = append(all, w.Client.Close())
	}
	return errors.Join(append(all, w.site.close())...)
}

// leave takes back what a cluster that goes on was given.
func (w *World) leave(ctx context.Context) error {
	var all []error
	if w.Client != nil {
		for job := range w.jobs {
			_, err := w.Client.CancelJob(ctx, job)
			all = append(all, err)
		}
	}
	if w.Etcd != nil {
		all = append(all, w.clear(ctx))
	}
	return errors.Join(all...)
}

// SKU is the name of the simulated executors' shape; see Simulate.
func (w *World) SKU(name string) string { return w.Prefix + name }

// Simulate adds n simulated executors of an SKU, with resources as name=quantity,
// and waits until all are READY. They are a process of their own.
func (w *World) Simulate(ctx context.Context, name string, n int, resources ...string) error {
	began := time.Now()
	sim := child.New("sim-"+name, w.site.binary, w.site.dir, nil, "sim", "--prefix", w.SKU(name), "--sku", w.SKU(name),
		"--executors", strconv.Itoa(n), "--resources", strings.Join(resources, ","), "--gateways", strings.Join(w.site.agentsGateways, ","), "--log-level", "warn")
	w.sims = append(w.sims, sim)
	if err := sim.Start(ctx, "--listen"); err != nil {
		return err
	}
	if err := running.AwaitReady(ctx, w.Client, w.SKU(name), n, readyTimeout); err != nil {
		return err
	}
	w.run.Say("%d executors of %s are ready after %.1f s", n, strings.Join(resources, ","), time.Since(began).Seconds())
	return nil
}

// Job is the name of the n-th job of the world.
func (w *World) Job(n int) string {
	job := w.Prefix + strconv.Itoa(n)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[job] = true
	return job
}

// Ask asks for a batch.
func (w *World) Ask(ctx context.Context, b Batch) error {
	_, err := w.Client.Reserve(ctx, b.Request())
	return err
}

// revision is etcd's present one.
func (w *World) revision(ctx context.Context) (revision int64, err error) {
	return revision, again(ctx, func() error {
		page, err := w.Etcd.Page(ctx, store.PageRequest{From: "a", To: "b", Limit: 1})
		revision = page.Revision
		return err
	})
}

// again asks etcd what may be asked twice until it answers, a few times at most: a
// machine that is kept busy may let one call wait too long.
func again(ctx context.Context, ask func() error) (err error) {
	for range mostTries {
		if err = ask(); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// Measure does something and notes the processor time that it took; do answers
// how many operations it was.
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

// timed measures a phase of n operations, one after the other, and returns how long
// each took, in ms.
func (w *World) timed(ctx context.Context, phase string, n int, do func(i int) error) (took []float64, err error) {
	err = w.Measure(ctx, phase, func() (int, error) {
		for i := range n {
			begin := time.Now()
			if err := do(i); err != nil {
				return i, err
			}
			took = append(took, millis(time.Since(begin)))
		}
		return n, nil
	})
	return took, err
}
