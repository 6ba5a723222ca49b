package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// Config configures an agent. ID, Driver and Conn are required.
type Config struct {
	// ID is the ID of the executor, 1 to 253 of [A-Za-z0-9._-].
	ID string
	// Address is the address of the agent's gRPC server for the assigner.
	Address    string
	SKU        string
	Host       string
	Attributes map[string]string
	// Resources is the capacity of the executor; see Detect.
	Resources resource.Vector
	// Reserved is the share of Resources that is reserved for the workers of each role.
	Reserved   map[string]resource.Vector
	Generation int64

	Driver Driver
	// Cell, if set, makes the executor a cell: it has no Resources, and gets the offers to the
	// cell. Driver then starts the workers in another cluster.
	Cell Cell
	// Dir is the directory for the tombstones, the secret and the volumes. Only one agent at
	// a time can use the directory, and it belongs to one executor of one cluster: New refuses
	// another ID. Without a directory the agent's promises end with its
	// process, which is sufficient for simulated workers.
	Dir string
	// Secret proves after a restart that the executor belongs to this agent; at most 256
	// bytes. The default is the secret stored in Dir. Without Secret and Dir the agent makes
	// a new secret. Then Berth refuses the next agent with this ID until the executor is
	// LOST. See openSecret.
	Secret string
	// Conn is the connection to the gateway. Dial it with DialOptions, so that it reconnects
	// soon after an outage. Several agents may share a connection; an agent does not close
	// it.
	Conn grpc.ClientConnInterface
	// StopWhenIsolatedAfter is how long the control plane may be silent before the agent
	// stops its workers. With 0 the workers keep running.
	StopWhenIsolatedAfter time.Duration
	// Starts is the maximum number of workers that the agent starts at the same time;
	// further starts are queued. The default is twice the number of processors, at least 4, and
	// no limit for a cell.
	Starts int
	// StartTimeout is the time after which the agent begins the next queued start although a
	// slow one has not finished, 30 s by default.
	StartTimeout time.Duration
	// TombstoneAge is the minimum age at which the agent drops a tombstone, 24 h by default.
	TombstoneAge time.Duration
	// Log is slog.Default() by default.
	Log *slog.Logger

	// now returns the time of day. Tests replace it to step the clock. It is only for times
	// that are stored or reported. Waits use timers and the monotonic clock reading, because
	// a step of the clock does not change them.
	now func() time.Time
	// startWait is the maximum time that a start request waits until the worker runs; slow
	// tests raise it.
	startWait time.Duration
}

// Agent is the agent of one executor. Its methods are safe for concurrent use.
type Agent struct {
	cfg  Config
	log  *slog.Logger
	lock *os.File
	// owner is the content of ownerFile.
	owner owner
	// secret proves that the executor belongs to this agent. keptSecret is set if an earlier
	// run of the agent used the same secret.
	secret     string
	keptSecret bool
	// volumes is the directory of the volumes, or "" if the agent has none on disk.
	volumes string
	// offers has the offers to a cell, and its answers.
	offers offers
	// wake contains one element when a report is due.
	wake chan struct{}
	// requests counts the requests, starts and removals of volumes in progress, and the gangs
	// that are followed.
	requests sync.WaitGroup
	// life ends when Close begins; end ends it.
	life context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	// ending is set once the agent must not start any more workers.
	ending bool
	// superseded is set once another agent has the ID; supersede sets it and calls leave, which is set
	// while Run runs.
	// notices counts the answers in which the control plane said that the agent is
	// superseded.
	superseded bool
	leave      func()
	// foreign is set once the control plane belongs to another cluster than the directory. The
	// agent stops no worker then.
	foreign bool
	notices int
	// completeDue is set when the control plane requests a complete report.
	completeDue bool
	ledger      *ledger
	journal     *journal
	workers     map[identity]*worker
	// starting has the starts that are queued or in progress. startQueue has the queued
	// starts in order. freeStarts is the number of starts that may still begin.
	starting   map[identity]*start
	startQueue []*start
	freeStarts int
	// gangs has the gangs of workers here whose members the agent follows.
	gangs map[model.Key]*gang
	// pendingEnds has the ends of workers that the agent could not make durable yet;
	// retryEnds retries them.
	pendingEnds map[identity]Exit
	retryEnds   *time.Timer
	// changed is closed and replaced when the state of a worker changes, and when the agent
	// becomes ready.
	changed chan struct{}
	counts  counters
	// outputReads counts the reads of output in progress, and outputWaits those that may wait
	// for output. outputs limits the bytes that they return.
	outputReads, outputWaits int
	outputs                  *rate.Limiter
}

// worker contains what the agent needs to stop a worker of the ledger.
type worker struct {
	handle Handle
	grace  time.Duration
	// start is the start of the worker. It is nil if the agent adopted a worker that was
	// RUNNING or EVICTING.
	start *start
	// members is the cursor of the members of its gang that the worker has, or "" if it has
	// none.
	members string
}

// maxExecutorID is the maximum length of an executor's ID.
const maxExecutorID = 253

// defaultGrace is the grace period of a task without stop_grace.
const defaultGrace = 10 * time.Second

// New returns an agent that has read its tombstones and adopted the workers of the
// previous agent. The agent accepts requests once Run has registered it. The caller must
// call Close.
func New(cfg Config) (*Agent, error) {
	if !model.ValidName(cfg.ID, maxExecutorID) {
		return nil, fmt.Errorf("agent: %q is not an executor ID", cfg.ID)
	}
	if cfg.Driver == nil || cfg.Conn == nil {
		return nil, fmt.Errorf("agent %s: driver and connection are required", cfg.ID)
	}
	if cfg.Starts < 0 || cfg.StartTimeout < 0 {
		return nil, fmt.Errorf("agent %s: Starts and StartTimeout must not be negative", cfg.ID)
	}
	if cfg.Cell != nil {
		if len(cfg.Resources)+len(cfg.Reserved) > 0 {
			return nil, fmt.Errorf("agent %s: a cell must not have Resources or Reserved", cfg.ID)
		}
		cfg.Starts = cmp.Or(cfg.Starts, math.MaxInt)
	}
	cfg.TombstoneAge = cmp.Or(cfg.TombstoneAge, defaultTombstoneAge)
	cfg.Starts = cmp.Or(cfg.Starts, defaultStarts())
	cfg.StartTimeout = cmp.Or(cfg.StartTimeout, defaultStartTimeout)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	cfg.startWait = cmp.Or(cfg.startWait, startWait)
	if cfg.StopWhenIsolatedAfter <= 0 {
		cfg.StopWhenIsolatedAfter = math.MaxInt64
	}
	if cfg.now == nil {
		cfg.now = time.Now
	}
	a := &Agent{
		cfg: cfg, log: cfg.Log.With("executor", cfg.ID),
		wake: make(chan struct{}, 1), changed: make(chan struct{}),
		ledger: newLedger(cfg.ID, newNonce(), cfg.TombstoneAge), workers: map[identity]*worker{},
		starting: map[identity]*start{}, freeStarts: cfg.Starts, pendingEnds: map[identity]Exit{},
		gangs: map[model.Key]*gang{}, offers: offers{answers: map[string]*offerAnswer{}},
		counts: counters{ended: map[model.WorkerState]uint64{}}, outputs: newOutputLimiter(),
	}
	a.life, a.end = context.WithCancel(context.Background())
	// a.mu stays locked, so that the agent processes the end of an adopted worker only after
	// open has added its entry.
	a.mu.Lock()
	err := a.open()
	a.mu.Unlock()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("agent %s: %w", cfg.ID, err), a.Close())
	}
	return a, nil
}

func (a *Agent) open() error {
	if a.cfg.Dir != "" {
		if err := os.MkdirAll(a.cfg.Dir, 0o750); err != nil {
			return err
		}
		var err error
		if a.lock, err = lockDir(a.cfg.Dir); err != nil {
			return err
		}
		// This check comes before anything in the directory is read or removed.
		if a.owner, err = openOwner(a.cfg.Dir, a.cfg.ID, a.log); err != nil {
			return err
		}
		var tombstones []tombstone
		if a.journal, tombstones, err = openJournal(a.cfg.Dir); err != nil {
			return err
		}
		now := a.cfg.now()
		for _, t := range tombstones {
			t.At = rebase(t.At, now)
			a.ledger.bury(t)
		}
	}
	var err error
	if a.secret, a.keptSecret, err = openSecret(a.cfg); err != nil {
		return err
	}
	adopted, err := a.cfg.Driver.Adopt(func(s Spec) { a.loaded(s.identity()) },
		func(s Spec, x Exit) { a.ended(s.identity(), x) })
	if err != nil {
		return err
	}
	for _, w := range adopted {
		a.adopt(w)
	}
	// If the disk is full, the ends of adopted workers stay pending until there is space.
	if err := a.journal.reserve(a.ledger.live(), a.ledger.tombstones); err != nil {
		a.log.Warn("no disk space for the ends of adopted workers", "error", err)
	}
	a.warnOfFiles()
	if a.cfg.Dir == "" {
		return nil
	}
	return a.openVolumes()
}

// warnOfFiles warns if the executor offers more slots than the agent may have workers.
func (a *Agent) warnOfFiles() {
	if _, processes := a.cfg.Driver.(*Process); !processes {
		return
	}
	slots := a.cfg.Resources.WithSlots()[resource.Slots]
	if need, limit := filesFor(slots, a.cfg.Starts), int64(fileLimit()); need > limit {
		a.log.Warn("the limit of open files is too low for the slots of this executor, and starts will fail: "+raiseFiles,
			"limit", limit, "slots", slots, "needed", need)
	}
}

// adopt adds a worker of the previous agent. A worker that is still loading holds a permit
// and has what is left of its limit. a.mu must be locked.
func (a *Agent) adopt(w Adopted) {
	w.Spec.cell = a.cfg.Cell != nil
	id, state := w.Spec.identity(), model.WorkerRunning
	level := slog.LevelInfo
	if w.Spec.cell {
		level = slog.LevelDebug // its driver logs each reservation
	}
	switch {
	case w.Ended && a.ledger.known[id]:
		return
	case w.Late, !w.Stopping && w.Spec.loads() && !w.Ready:
		state = model.WorkerStarting
	case w.Stopping:
		state = model.WorkerEvicting
	}
	a.ledger.adopt(id, w.Spec.UID, state, w.Since)
	a.ledger.entries[id].volume = w.Spec.Volume.ID
	adopted := &worker{handle: w.Handle, grace: w.Spec.Grace}
	a.workers[id] = adopted
	if (w.HasMembers || w.Spec.cell && !w.Ended) && a.joinGang(w.Spec) != nil {
		adopted.members = "of an earlier agent"
	}
	a.log.Log(a.life, level, "adopted a worker", "worker", w.Spec.Worker, "epoch", w.Spec.Epoch, "state", state)
	if state != model.WorkerStarting {
		return
	}
	s := &start{spec: w.Spec, late: w.Late}
	adopted.start = s
	if w.Late {
		a.limitStart(s, 0) // The previous agent may have exited before it signalled the worker.
		return
	}
	a.take(s)
	now := a.cfg.now()
	a.limitStart(s, w.Spec.StartLimit-now.Sub(rebase(w.Spec.Begun, now)))
}

// rebase adds the monotonic clock reading of now to a stored time, so that a later step
// of the clock does not change its age. If the clock was set back, a stored time may be
// in the future: rebase returns now for it.
func rebase(at, now time.Time) time.Time { return now.Add(-max(0, now.Sub(at))) }

// notify wakes the goroutines that wait for a change, and requests a report. a.mu must be
// locked.
func (a *Agent) notify() {
	a.broadcast()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// broadcast wakes the goroutines that wait for a change, without a report. a.mu must be
// locked.
func (a *Agent) broadcast() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// StopWorkers stops every worker, including the workers that are being started, each
// within its own grace period. It returns when the last worker has exited. It withdraws
// queued starts, and from then on the agent starts no worker. It stops nothing if the control
// plane belongs to another cluster than the directory.
func (a *Agent) StopWorkers(ctx context.Context) error {
	a.mu.Lock()
	a.ending = true
	a.clearStartQueue()
	foreign := a.foreign
	a.mu.Unlock()
	if foreign {
		return nil
	}
	for {
		a.mu.Lock()
		live, changed := a.ledger.live(), a.changed
		for _, s := range a.starting {
			s.interrupt() // none is queued
		}
		a.mu.Unlock()
		if live == 0 {
			return nil
		}
		if err := a.stopUpTo(model.WorkerRunning); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("agent %s: %d workers still run: %w", a.cfg.ID, live, ctx.Err())
		}
	}
}

// reportWithin is how long StopAndReport waits, after the last worker has ended, until the control
// plane has the ends.
const reportWithin = 2 * defaultEvery

// StopAndReport stops every worker as StopWorkers does. While Run runs, it then waits until the
// control plane has acknowledged the ends. If no gateway does that within reportWithin, or before ctx
// ends, it returns nevertheless: the next agent on the directory reports them.
func (a *Agent) StopAndReport(ctx context.Context) error {
	if err := a.StopWorkers(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reportWithin)
	defer cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ledger.entries) > 0 {
		a.completeDue = true // ends in answers to requests are in no report of changes
		a.notify()
	}
	isPending := func() bool { return a.leave != nil && !a.foreign && len(a.ledger.entries) > 0 }
	a.awaitWhile(ctx, isPending)
	if isPending() {
		a.log.Warn("the control plane has not acknowledged the ends of workers", "workers", len(a.ledger.entries))
	}
	return nil
}

// awaitWhile waits until a condition no longer holds or ctx ends. a.mu must be locked; awaitWhile unlocks
// it while it waits.
func (a *Agent) awaitWhile(ctx context.Context, holds func() bool) {
	for holds() && ctx.Err() == nil {
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		a.mu.Lock()
	}
}

// stopUpTo stops the started workers whose state is last or an earlier state.
func (a *Agent) stopUpTo(last model.WorkerState) error {
	a.mu.Lock()
	selected := map[identity]*worker{}
	for id, w := range a.workers {
		if e := a.ledger.entries[id]; e != nil && e.state <= last {
			selected[id] = w
		}
	}
	a.mu.Unlock()
	var errs []error
	for id, w := range selected {
		errs = append(errs, a.stopWorker(id, w, w.grace))
	}
	return errors.Join(errs...)
}

// Close waits for the requests and starts in progress, interrupts removals of volumes,
// closes the driver and releases the directory. It withdraws queued starts. Running
// workers keep running, and the next agent adopts them; to end the workers, call StopWorkers
// first. Run must have returned.
func (a *Agent) Close() error {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil
	}
	a.closed = true
	a.end()
	a.clearStartQueue()
	if a.retryEnds != nil {
		a.retryEnds.Stop()
	}
	a.mu.Unlock()
	a.requests.Wait()
	err := a.cfg.Driver.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		a.finish(w.start)
	}
	err = errors.Join(err, a.journal.close())
	if a.lock != nil {
		err = errors.Join(err, a.lock.Close())
	}
	return err
}

// lockDir locks the directory for one agent. The kernel releases the lock when the
// process ends, even if the process is killed.
func lockDir(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		by := "another agent"
		if own, err := readOwner(dir); err == nil && own.Executor != "" {
			by = fmt.Sprintf("the agent of %q", own.Executor)
		}
		return nil, errors.Join(fmt.Errorf("%s is in use by %s, which runs: %w", dir, by, err), file.Close())
	}
	return file, nil
}
