package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// Config is what an agent is made of. ID, Driver and Conn are required.
type Config struct {
	// ID is the executor's, 1 to 253 of [A-Za-z0-9._-].
	ID string
	// Address is where the assigner's orders reach the agent's gRPC server.
	Address    string
	SKU        string
	Host       string
	Attributes map[string]string
	// Resources is what the executor offers; Detect finds it out.
	Resources resource.Vector
	// Reserved are shares of Resources that it sets aside, each for the workers
	// of a role.
	Reserved   map[string]resource.Vector
	Generation int64

	Driver Driver
	// Dir keeps the tombstones and the secret, and is held by one agent at a time.
	// Without one the promises end with the agent, as befits simulated ones.
	Dir string
	// Secret proves that the executor is this agent's, over its restarts: at most 256
	// bytes. The one kept in Dir unless given; without either a new one is made, and
	// the next agent is refused until the executor is LOST. See openSecret.
	Secret string
	// Conn leads to the gateway. Dial it with DialOptions, so that it comes back
	// soon after an outage. Agents may share it; the agent does not close it.
	Conn grpc.ClientConnInterface
	// StopWhenIsolatedAfter is how long the control plane may be silent before
	// the agent stops its workers; 0 lets them run.
	StopWhenIsolatedAfter time.Duration
	// Starts is how many workers are being started at once, the rest waits in
	// line; twice the processors unless given, and at least 4.
	Starts int
	// StartTimeout is how long a start may take before the next one in line goes
	// past it; 30 s unless given.
	StartTimeout time.Duration
	// TombstoneAge is how long tombstones are kept at least; 24 h unless given.
	TombstoneAge time.Duration
	// Log is slog's default unless given.
	Log *slog.Logger

	// now is the time of day, for tests to step.
	now func() time.Time
	// promptly is how long an order to start waits, for tests that are slow.
	promptly time.Duration
}

// Agent is the agent of one executor. Its methods are safe for concurrent use.
type Agent struct {
	cfg   Config
	log   *slog.Logger
	lock  *os.File
	nonce string
	// secret proves that the executor is this agent's; keptSecret says that a run
	// before had it.
	secret     string
	keptSecret bool
	// now is the time of day as it is told. Nothing waits by it: that is for
	// timers, and for the monotonic reading that it carries, which a step of the
	// clock leaves alone.
	now func() time.Time
	// wake has one element when there is news to report.
	wake chan struct{}
	// asked: the control plane wants a complete report.
	asked bool
	// orders counts those under way.
	orders sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// ending is set when no worker is started any more.
	ending bool
	// superseded is set once another agent has the ID, leave is called with it.
	// notices counts the answers that said so.
	superseded bool
	leave      func()
	notices    int
	ledger     *ledger
	journal    *journal
	workers    map[identity]*worker
	// starting are the workers that are being started or wait for it, line those
	// that wait, in order, and room says how many more may begin.
	starting map[identity]*start
	line     []*start
	room     int
	// held are the ends that could not be made durable yet, again tries them.
	held  map[identity]Exit
	again *time.Timer
	// changed is closed and made afresh when a worker is started or ended.
	changed chan struct{}
}

// worker is what the agent holds of an entry beside the ledger.
type worker struct {
	handle Handle
	grace  time.Duration
}

// defaultGrace is the grace of a task that names none.
const defaultGrace = 10 * time.Second

// New makes an agent, reads its tombstones and adopts the workers of the one
// before it. It takes orders once Run has registered it. Close it.
func New(cfg Config) (*Agent, error) {
	if !model.ValidName(cfg.ID, 253) {
		return nil, fmt.Errorf("agent: %q is not an executor id", cfg.ID)
	}
	if cfg.Driver == nil || cfg.Conn == nil {
		return nil, fmt.Errorf("agent %s: driver and connection are required", cfg.ID)
	}
	if cfg.TombstoneAge == 0 {
		cfg.TombstoneAge = defaultTombstoneAge
	}
	if cfg.Starts < 0 || cfg.StartTimeout < 0 {
		return nil, fmt.Errorf("agent %s: starts and their timeout cannot be negative", cfg.ID)
	}
	if cfg.Starts == 0 {
		cfg.Starts = defaultStarts()
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = defaultStartTimeout
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.now == nil {
		cfg.now = time.Now
	}
	if cfg.promptly == 0 {
		cfg.promptly = promptly
	}
	a := &Agent{
		cfg: cfg, log: cfg.Log.With("executor", cfg.ID), nonce: newNonce(), now: cfg.now,
		wake: make(chan struct{}, 1), changed: make(chan struct{}),
		ledger: newLedger(cfg.ID, cfg.TombstoneAge), workers: map[identity]*worker{},
		starting: map[identity]*start{}, room: cfg.Starts, held: map[identity]Exit{},
	}
	a.ledger.nonce = a.nonce
	// Held throughout, so that the end of an adopted worker waits for its entry.
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
		var kept []tombstone
		if a.journal, kept, err = openJournal(a.cfg.Dir); err != nil {
			return err
		}
		now := a.now()
		for _, t := range kept {
			t.At = aged(t.At, now)
			a.ledger.bury(t)
		}
	}
	var err error
	if a.secret, a.keptSecret, err = openSecret(a.cfg); err != nil {
		return err
	}
	adopted, err := a.cfg.Driver.Adopt(func(s Spec, x Exit) { a.ended(s.identity(), x) })
	if err != nil {
		return err
	}
	for _, w := range adopted {
		state := model.WorkerRunning
		if w.Stopping {
			state = model.WorkerEvicting
		}
		a.ledger.adopt(w.Spec.identity(), w.Spec.UID, state, w.Since)
		a.workers[w.Spec.identity()] = &worker{w.Handle, w.Spec.Grace}
		a.log.Info("adopted a worker", "worker", w.Spec.Worker, "epoch", w.Spec.Epoch)
	}
	// Where there is no room their ends are held back until there is.
	if err := a.journal.reserve(a.ledger.living, a.ledger.buried); err != nil {
		a.log.Warn("no room for the ends of adopted workers", "error", err)
	}
	return nil
}

// aged is when something happened, as seen from now: with now's monotonic
// reading, so that a step of the clock does not age it from here on, and never
// in the future, where a clock that was set back would have it.
func aged(at, now time.Time) time.Time { return now.Add(-max(0, now.Sub(at))) }

// tell wakes whoever waits for a change, and the report. The lock is held.
func (a *Agent) tell() {
	close(a.changed)
	a.changed = make(chan struct{})
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// StopWorkers stops every worker, those that are just being started too, each
// within its own grace, and returns when the last one is gone. What waits to be
// started is not begun. From then on no worker is started.
func (a *Agent) StopWorkers(ctx context.Context) error {
	a.mu.Lock()
	a.ending = true
	a.clearLine()
	a.mu.Unlock()
	for {
		a.mu.Lock()
		left, changed := 0, a.changed
		told := map[identity]*worker{}
		for id, e := range a.ledger.entries {
			if e.state.Terminal() {
				continue
			}
			left++
			if w := a.workers[id]; w != nil && e.state == model.WorkerRunning {
				told[id] = w
			}
		}
		a.mu.Unlock()
		if left == 0 {
			return nil
		}
		if len(told) > 0 {
			if err := a.stop(told); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("agent %s: %d workers still live: %w", a.cfg.ID, left, ctx.Err())
		}
	}
}

func (a *Agent) stopAll() error {
	a.mu.Lock()
	live := a.live()
	a.mu.Unlock()
	return a.stop(live)
}

func (a *Agent) stop(workers map[identity]*worker) error {
	var errs []error
	for id, w := range workers {
		errs = append(errs, a.order(id, w, w.grace))
	}
	return errors.Join(errs...)
}

// live answers the workers that have not ended. The lock is held.
func (a *Agent) live() map[identity]*worker {
	live := map[identity]*worker{}
	for id, w := range a.workers {
		if e := a.ledger.entries[id]; e != nil && !e.state.Terminal() {
			live[id] = w
		}
	}
	return live
}

// Close waits for the orders and starts under way, closes the driver and lets go
// of the directory. What waits to be started is not begun. The workers go on,
// for the next agent to adopt: StopWorkers before it ends them. End Run first.
func (a *Agent) Close() error {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil
	}
	a.closed = true
	a.clearLine()
	if a.again != nil {
		a.again.Stop()
	}
	a.mu.Unlock()
	a.orders.Wait()
	err := a.cfg.Driver.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	err = errors.Join(err, a.journal.close())
	if a.lock != nil {
		err = errors.Join(err, a.lock.Close())
	}
	return err
}

// lockDir makes sure that one agent holds the directory. The lock ends with the
// process, however that ends.
func lockDir(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is held by another agent: %w", dir, err), file.Close())
	}
	return file, nil
}
