package cell

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/model"
)

const (
	// maxID is the maximum length of the ID of a cell. It is a part of the names of the child's
	// jobs.
	maxID = 63
	// maxHolds is the maximum number of the parent's reservations that a cell keeps at a time.
	maxHolds = model.MaxOffers
	// maxAdopting is the number of calls that Adopt makes at a time.
	maxAdopting = 16
	// maxCalls is the number of calls about the kept reservations that run at a time. If thousands
	// of them ran at once, all would miss their time limit on a busy child, and be repeated.
	maxCalls = 64
	// The defaults of Config.
	defaultTTL, defaultStartWithin, defaultAdoptWithin = 30 * time.Second, time.Minute, time.Minute
)

// Config configures a driver. ID and Child are required.
type Config struct {
	// ID is the ID of the cell in the parent, 1 to 63 of [A-Za-z0-9._-].
	ID string
	// Child is a client of the child, with the role of a job service or an operator. The driver
	// does not close it.
	Child *client.Client
	// DialWatch, if set, returns another client of the child. The driver watches at most
	// maxWatches jobs over each of them, and closes it after the last one. Without it the watches
	// use Child, which is sufficient for a few hundred jobs.
	DialWatch func() (*client.Client, error)
	// IntoCells passes the reservations on to cells of the child, instead of its executors.
	IntoCells bool
	// TTL is how long the child keeps executors for an offer after the parent has confirmed it
	// for the last time, 30 s by default.
	TTL time.Duration
	// StartWithin is the time after the last start of a worker of a reservation after which the
	// driver removes the workers that the parent has not started, 1 min by default.
	StartWithin time.Duration
	// AdoptWithin is how long Adopt waits for the child, 1 min by default.
	AdoptWithin time.Duration
	// Log is slog.Default() by default.
	Log *slog.Logger
}

// Parent is the agent to which a driver gives its answers; *agent.Agent implements it.
type Parent interface {
	AnswerOffers(answers ...*controlv1.OfferAnswer)
	Freed()
	Placed(worker model.Worker, epoch int64, host string)
}

// Driver runs the workers of a cell. It is the agent.Driver and the agent.Cell of its agent.
type Driver struct {
	cfg Config
	log *slog.Logger
	// life ends when Close begins. running counts the goroutines.
	life    context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	parent Parent
	// listed is set once the parent has listed the offers.
	listed  bool
	holds   map[string]*hold // by the parent's UID
	watches map[string]*watch
	// gangs has the members of the parent's gangs that have workers here.
	gangs map[model.Key]*model.Members
	// connections has the clients of the watches. reads has an element for each other stream of
	// events.
	connections []*connection
	reads       chan struct{}
	// places has an element for each call that looks for the places of workers, and calls for each
	// call of Driver.call.
	places, calls chan struct{}
	// refused is set if the child had no capacity for an offer since the last call of Freed.
	// freedAt is the time at which capacity became free last.
	refused bool
	freedAt time.Time
	closed  bool
}

// New returns a driver. The caller must call Attach once it has made the agent.
func New(cfg Config) (*Driver, error) {
	if !model.ValidName(cfg.ID, maxID) {
		return nil, fault.BadField(fault.ReasonBadName, "--id",
			"must be 1 to %d letters, digits, '.', '_' and '-', the first a letter or digit, got %q", maxID, cfg.ID)
	}
	cfg.TTL, cfg.StartWithin = cmp.Or(cfg.TTL, defaultTTL), cmp.Or(cfg.StartWithin, defaultStartWithin)
	cfg.AdoptWithin, cfg.Log = cmp.Or(cfg.AdoptWithin, defaultAdoptWithin), cmp.Or(cfg.Log, slog.Default())
	d := &Driver{cfg: cfg, log: cfg.Log.With("cell", cfg.ID), holds: map[string]*hold{}, watches: map[string]*watch{},
		gangs: map[model.Key]*model.Members{}, reads: make(chan struct{}, maxReads), places: make(chan struct{}, maxPlaces),
		calls: make(chan struct{}, maxCalls)}
	d.life, d.end = context.WithCancel(context.Background())
	return d, nil
}

// Attach sets the agent. Until then the driver answers no offer.
func (d *Driver) Attach(parent Parent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parent = parent
	for _, h := range d.holds {
		h.notify()
	}
}

// Offered implements agent.Cell.
func (d *Driver) Offered(offers []*controlv1.Offer) {
	now := time.Now()
	d.mu.Lock()
	if d.parent == nil || d.closed {
		d.mu.Unlock()
		return
	}
	d.listed = true
	var overloaded []*controlv1.OfferAnswer
	listed := make(map[string]bool, len(offers))
	for _, o := range offers {
		listed[o.GetUid()] = true
		h := d.holds[o.GetUid()]
		switch {
		case h == nil && !wanted(o):
			continue
		case h == nil && len(d.holds) >= maxHolds:
			if o.GetState() == berthv1.CellOffer_PENDING {
				overloaded = append(overloaded, &controlv1.OfferAnswer{Uid: o.GetUid(), Number: o.GetNumber(),
					State: berthv1.CellOffer_REJECTED, Reason: string(fault.ReasonOverloaded),
					Message: fmt.Sprintf("the cell has %d reservations already", maxHolds)})
			}
			continue
		case h == nil:
			h = d.add(o.GetUid())
		}
		h.confirmed = now
		if was := h.offer; was.GetState() != o.GetState() || was.GetNumber() != o.GetNumber() ||
			was.GetHeld() != o.GetHeld() {
			h.offered = now
			h.notify()
		}
		h.offer = o
	}
	for uid, h := range d.holds {
		if !listed[uid] {
			h.offer = nil
			h.notify()
		}
	}
	parent := d.parent
	d.mu.Unlock()
	if len(overloaded) > 0 {
		parent.AnswerOffers(overloaded...)
	}
}

// wanted reports whether the parent wants an answer to an offer, or executors for it.
func wanted(o *controlv1.Offer) bool {
	switch o.GetState() {
	case berthv1.CellOffer_PENDING, berthv1.CellOffer_ACCEPTED, berthv1.CellOffer_BOUND:
		return true
	}
	return false
}

// add adds a hold and starts its goroutine. d.mu must be locked.
func (d *Driver) add(uid string) *hold {
	h := &hold{driver: d, uid: uid, wake: make(chan struct{}, 1), log: d.log.With("uid", uid)}
	d.holds[uid] = h
	d.running.Go(h.run)
	return h
}

// Start implements agent.Driver. The first start of a worker of a reservation binds the child's
// reservation, and all of them wait for the outcome. Start returns before the worker is started
// in the child. If it is interrupted, a bind that fails is the end of the worker.
func (d *Driver) Start(spec agent.Spec, ended func(agent.Exit)) (agent.Handle, error) {
	w, outcome, err := d.start(spec, ended)
	if err != nil {
		return nil, err
	}
	select {
	case <-outcome:
	case <-spec.Interrupted():
	case <-d.life.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	w.returned = true
	return w, nil
}

// start adds a worker. outcome is closed once the outcome of the bind is known.
func (d *Driver) start(spec agent.Spec, ended func(agent.Exit)) (w *worker, outcome <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.holds[spec.UID]
	if h == nil || h.version == nil || d.closed {
		return nil, nil, fault.New(fault.Conflict, fault.ReasonNotHeld, "the cell %s holds no executors for the reservation of %s",
			d.cfg.ID, spec.Worker)
	}
	index := spec.Worker.ID.Index
	switch {
	case !h.origin.workers.Has(spec.Worker.ID):
		return nil, nil, fault.New(fault.Conflict, fault.ReasonNotHeld, "the cell %s holds no executor for %s", d.cfg.ID,
			spec.Worker)
	case h.workers[index] != nil:
		return nil, nil, fault.New(fault.Conflict, fault.ReasonStopped, "%s was started before", spec.Worker)
	}
	w = &worker{hold: h, spec: spec, ready: spec.Ready, ended: ended}
	h.workers[index], h.lastStart = w, time.Now()
	h.notify()
	return w, h.outcome, nil
}

// Close implements agent.Driver. What the child keeps stays as it is.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.end()
	d.running.Wait()
	return nil
}

// call returns the context of a call to the child, whose time begins once few enough others run.
// The caller must call done after the call, and make no other call of this kind before.
func (d *Driver) call() (ctx context.Context, done func()) {
	select {
	case d.calls <- struct{}{}:
	case <-d.life.Done():
		return d.life, func() {}
	}
	ctx, cancel := context.WithTimeout(d.life, callWithin)
	return ctx, func() {
		cancel()
		<-d.calls
	}
}

// answer sends an answer to the parent.
func (d *Driver) answer(a *controlv1.OfferAnswer) {
	d.mu.Lock()
	parent := d.parent
	d.mu.Unlock()
	parent.AnswerOffers(a)
}

// freed records that capacity of the child became free, and reports it if the child had none
// before.
func (d *Driver) freed() {
	d.mu.Lock()
	parent, refused := d.parent, d.refused
	d.freedAt, d.refused = time.Now(), false
	d.mu.Unlock()
	if refused && parent != nil {
		parent.Freed()
	}
}

// Adopt implements agent.Driver: it lists what the child keeps and runs for this cell. The
// caller must be the only agent of the cell.
func (d *Driver) Adopt(ready func(agent.Spec), ended func(agent.Spec, agent.Exit)) ([]agent.Adopted, error) {
	ctx, cancel := context.WithTimeout(d.life, d.cfg.AdoptWithin)
	defer cancel()
	var found []*kept
	for listed, err := range d.cfg.Child.List(ctx, &berthv1.ListReservationsRequest{PageSize: 1000}) {
		if err != nil {
			return nil, fmt.Errorf("list the reservations of the child: %w", err)
		}
		if listed.GetLabels()[labelOffer] == "" || len(listed.GetJob()) <= len(prefixOf(d.cfg.ID)) ||
			listed.GetJob()[:len(prefixOf(d.cfg.ID))] != prefixOf(d.cfg.ID) {
			continue
		}
		o, err := originIn(d.cfg.ID, listed)
		if err != nil {
			d.log.Warn("a reservation of the child is not adopted", "reservation", client.KeyOf(listed), "error", err)
			continue
		}
		if client.Ended(listed.GetState()) && len(listed.GetWorkerCounts()) == 0 {
			continue // it never had a worker
		}
		found = append(found, &kept{origin: o, key: client.KeyOf(listed)})
	}
	jobs, err := d.readKept(ctx, found)
	if err != nil {
		return nil, err
	}
	var adopted []agent.Adopted
	for _, k := range found {
		if k.reservation != nil {
			adopted = append(adopted, d.adopt(k.origin, k.reservation, jobs[k.key.Job], ready, ended)...)
		}
	}
	return adopted, nil
}

// kept is a reservation of the child that an earlier agent made.
type kept struct {
	origin origin
	key    client.Key
	// reservation has the workers. It is nil if the child has deleted the reservation meanwhile.
	reservation *berthv1.Reservation
}

// readKept reads reservations, and returns the state of their jobs.
func (d *Driver) readKept(ctx context.Context, found []*kept) (map[string]*client.Job, error) {
	var names []string
	err := several(ctx, found, func(ctx context.Context, k *kept) error {
		r, err := d.cfg.Child.Get(ctx, k.key)
		if err != nil && !fault.Is(err, fault.ReasonNotFound) {
			return fmt.Errorf("read %s of the child: %w", k.key, err)
		}
		if err == nil {
			k.reservation = r
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, k := range found {
		if k.reservation != nil {
			names = append(names, k.key.Job)
		}
	}
	slices.Sort(names)
	var mu sync.Mutex
	jobs := map[string]*client.Job{}
	return jobs, several(ctx, slices.Compact(names), func(ctx context.Context, name string) error {
		job, err := d.read(ctx, name)
		if err != nil {
			return fmt.Errorf("read the job %s of the child: %w", name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		jobs[name] = job
		return nil
	})
}

// several calls f for each element, for at most maxAdopting of them at a time, and returns the first
// error.
func several[T any](ctx context.Context, list []T, f func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, maxAdopting)
	var calls sync.WaitGroup
	defer calls.Wait()
	for _, one := range list {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		calls.Go(func() {
			defer func() { <-slots }()
			if err := f(ctx, one); err != nil {
				cancel(err)
			}
		})
	}
	calls.Wait()
	return context.Cause(ctx)
}

// read returns the state of a job of the child.
func (d *Driver) read(ctx context.Context, name string) (*client.Job, error) {
	for change, err := range d.cfg.Child.Watch(ctx, name) {
		return change.Job, err
	}
	return nil, cmp.Or(ctx.Err(), context.Canceled)
}

// adopt adds a reservation of the child, and returns its workers if it was bound.
func (d *Driver) adopt(o origin, r *berthv1.Reservation, job *client.Job, ready func(agent.Spec),
	ended func(agent.Spec, agent.Exit)) []agent.Adopted {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.add(o.UID)
	h.keep(o, r)
	h.watch()
	level := slog.LevelInfo
	if client.Ended(r.GetState()) {
		level = slog.LevelDebug // the agent logs the ends that the parent may not know yet
	}
	h.log.Log(d.life, level, "adopted a reservation of the child", "reservation", h.key, "state", r.GetState())
	switch r.GetState() {
	case berthv1.Reservation_QUEUED, berthv1.Reservation_LEASING, berthv1.Reservation_OFFERING, berthv1.Reservation_HELD:
		h.permanent = r.GetState() == berthv1.Reservation_HELD && r.GetExpireAt() == nil
		return nil
	}
	h.bound, h.permanent, h.lastStart = true, true, time.Now()
	close(h.outcome)
	grace := model.DefaultStopGrace
	if r.GetTask().GetStopGrace() != nil {
		grace = r.GetTask().GetStopGrace().AsDuration()
	}
	var adopted []agent.Adopted
	for _, one := range h.childWorkers(job) {
		number, ok := o.workers.Number(one.Index)
		if !ok {
			continue
		}
		id := model.WorkerID{Index: one.Index, Number: number}
		w := &worker{hold: h, returned: true, spec: agent.Spec{
			Executor: d.cfg.ID, Worker: model.Worker{Job: o.Job, Stage: o.Stage, ID: id}, Epoch: o.Epoch, UID: o.UID,
			Reservation: o.Name, Workers: int32(o.workers.Len()), Grace: grace,
		}}
		w.ready, w.ended = func() { ready(w.spec) }, func(x agent.Exit) { ended(w.spec, x) }
		// Without a request of the parent, the reason is another one.
		w.stop = one.Reason == string(fault.ReasonCancelled)
		w.isReady = one.Ended || one.State >= berthv1.Assignment_RUNNING
		h.workers[one.Index] = w
		adopted = append(adopted, agent.Adopted{Spec: w.spec, Handle: w, Since: one.Since, Ready: w.isReady,
			Stopping: w.stop && !one.Ended, Ended: one.Ended})
	}
	slices.SortFunc(adopted, func(a, b agent.Adopted) int { return a.Spec.Worker.ID.Compare(b.Spec.Worker.ID) })
	return adopted
}
