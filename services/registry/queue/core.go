package queue

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
	"berth.dev/services/registry/scheduler"
)

// maxDerived bounds how many effects one step decides without a request. The next step
// decides the rest: NextDeadline requests it at once.
const maxDerived = 256

// Core is the queue of reservations. It implements model.Core.
type Core struct {
	config Config
	now    time.Time
	out    []model.Action
	// subject is the reservation about which the step is deciding without a request.
	subject model.Ref

	records
	journal
	leadership
	quarantine quarantine
	scheduler  *scheduler.Scheduler // the pending reservations
}

// records holds the records that the core knows, with indexes over them. Only set and
// update change them.
type records struct {
	versions  map[string]*version              // by UID
	keys      core.Ordered[model.Key]          // every key that has a record
	byKey     map[model.Key][]*version         // oldest first
	children  map[string]int                   // number of versions with this parent
	stages    map[model.Key]*model.Stage       // by job and stage
	stageKeys core.Ordered[model.Key]          // the keys of stages, in order
	leased    core.Ordered[*model.Reservation] // queued, with a lease to dispatch
	executors map[string]uint32                // ordinals by ID
	names     map[uint32]string                // IDs by ordinal
	// returned holds the living versions with workers that the assigner returned to be
	// requeued, by stage and UID. They depend on the record of the stage: its target size may
	// drop requeues.
	returned      map[model.Key]map[string]*version
	clocks        core.Ordered[deadline]  // living versions, by when they enter their queue or expire
	ended         core.Ordered[deadline]  // ended versions, by when to forget them
	unsettled     map[string]*version     // versions whose records call for a change
	unstable      map[string]*version     // versions with a finding about their restarts
	gaps          core.Ordered[gap]       // versions that may have missing workers
	pendingActive map[string]*version     // dispatched versions that are not yet recorded as ACTIVE
	states        [model.Replaced + 1]int // number of records by stored state
	stored        usage                   // what all records use
	storedOf      map[string]usage        // what the records of each job use
	jobs          map[string]job          // the jobs that have a version with a record
	aliveJobs     core.Ordered[string]    // the jobs that have a version that has not ended
	tenants       *model.Tenants          // the tenants of the latest upsert
	storedBy      map[*model.Tenant]usage // what the records of each of them use
	ready         *model.Ready            // nil until a registry waits for readiness
	holds
	place int64 // the highest place that a record has or this core assigned
}

// leadership is the state of the current term. It is lost with the leader.
type leadership struct {
	term         int64               // 0 before the replica leads
	serial       int64               // the serial number in the last UID
	revision     int64               // the core knows every write up to it
	viewed       int64               // the view shows every write up to it
	counts       Counts              // without the counts of the scheduler
	dispatching  map[string]int64    // revisions by UID in the dispatch in flight; nil if none is
	nextDispatch time.Time           // no dispatch starts before
	noteAt       time.Time           // the deadline for recording pendingActive
	accepted     map[string]*version // accepted by the assigner, while the view has no task yet
	granted      map[string]*version // granted by executor-state, while the view has no lease yet
	waiting      map[uint64]*waiter  // unanswered cancels by token
	freed        []*version          // changed versions with waiters
}

var _ model.Core = (*Core)(nil)

// New returns a core that knows no records.
func New(config Config) *Core {
	c := &Core{
		config: config.withDefaults(),
		records: records{
			versions:      map[string]*version{},
			keys:          core.NewOrdered(model.Key.Compare),
			byKey:         map[model.Key][]*version{},
			children:      map[string]int{},
			stages:        map[model.Key]*model.Stage{},
			stageKeys:     core.NewOrdered(model.Key.Compare),
			executors:     map[string]uint32{},
			names:         map[uint32]string{},
			returned:      map[model.Key]map[string]*version{},
			clocks:        core.NewOrdered(deadline.compare),
			unstable:      map[string]*version{},
			gaps:          core.NewOrdered(gap.compare),
			ended:         core.NewOrdered(deadline.compare),
			unsettled:     map[string]*version{},
			pendingActive: map[string]*version{},
			storedOf:      map[string]usage{},
			jobs:          map[string]job{},
			aliveJobs:     core.NewOrdered(strings.Compare),
			holds: holds{held: map[string]*version{}, heldOn: map[uint32]map[*version]int{}, lost: map[uint32]string{},
				programs: map[uint32]bool{}},
		},
		journal: journal{tentative: map[model.Ref]*tentative{}},
		leadership: leadership{accepted: map[string]*version{}, granted: map[string]*version{},
			waiting: map[uint64]*waiter{}},
		quarantine: quarantine{stages: map[model.Key]bool{}, uids: map[string]bool{}},
		scheduler:  scheduler.New(config.Scheduling),
	}
	c.leased = core.NewOrdered(c.scheduler.Compare)
	return c
}

// Step implements model.Core. The core makes its own decisions only when the view is
// consistent. It makes none between the changes of one batch, and none while the view
// lags behind the write that made an effect fail.
func (c *Core) Step(now time.Time, event model.Event) []model.Action {
	c.now, c.out, c.subject = now, nil, model.Ref{}
	c.scheduler.Cause = causeOf(event)
	switch e := event.(type) {
	case model.Changed:
		c.changed(e)
		return c.out
	case model.Quarantined:
		c.quarantineStage(e.Ref)
		return c.out
	case model.Abandoned:
		c.abandoned()
		return c.out
	case model.Progress:
		c.reached(e.Revision)
	case model.Elected:
		c.elected(e)
	case model.Committed:
		c.committed(e)
	case model.Input:
		c.handle(e)
	case scheduler.CycleDone:
		c.scheduler.CycleDone(c.now, e, c.decided)
	case DispatchDone:
		c.dispatchDone(e)
	}
	if c.term != 0 {
		c.scheduler.Cause = scheduler.WakeChange
		c.getReady()
		c.settle()
		c.noteActive()
		c.answerFreed()
		c.wakeUp()
		c.dispatch()
		c.startCycle()
	}
	return c.out
}

// causeOf returns why heads become due while an event is applied.
func causeOf(event model.Event) scheduler.WakeCause {
	switch e := event.(type) {
	case model.Input:
		if _, upsert := e.Request.(model.Upsert); !upsert {
			return scheduler.WakeCancel
		}
	case model.Changed, model.Progress, scheduler.CycleDone:
		return scheduler.WakeSuccess
	}
	return scheduler.WakeChange
}

// NextDeadline implements model.Core.
func (c *Core) NextDeadline() time.Time {
	if c.term == 0 {
		return time.Time{}
	}
	if len(c.unsettled) > 0 || c.tooManyEnded() {
		return c.now
	}
	debounce, timer := c.scheduler.Deadlines()
	deadlines := []time.Time{debounce, timer, c.readyAt(), c.noteAt}
	for _, set := range []*core.Ordered[deadline]{&c.clocks, &c.ended} {
		if first, ok := set.First(); ok {
			deadlines = append(deadlines, first.at)
		}
	}
	if c.maySchedule() {
		deadlines = append(deadlines, c.scheduler.NextCycle())
	}
	if c.mayDispatch() {
		deadlines = append(deadlines, c.nextDispatch)
	}
	var next time.Time // zero means never
	for _, at := range deadlines {
		if next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next
}

func (c *Core) handle(in model.Input) {
	if err := c.carryOut(in.Token, in.Request); err != nil {
		c.once(func() { c.out = append(c.out, model.Reply{Token: in.Token, Err: err}) })
	}
}

// carryOut decides on a request and replies, or returns why the request is rejected.
func (c *Core) carryOut(token uint64, in any) error {
	if err := cmp.Or(request.Validate(in), c.checkQuarantine(in)); err != nil {
		return err
	}
	switch r := in.(type) {
	case model.Upsert:
		return c.upsert(token, request.WithDefaults(r))
	case request.Bind:
		return c.bind(token, r)
	case request.Cancel:
		return c.cancel(token, r)
	case request.CancelJob:
		return c.cancelJob(token, r)
	case request.CancelWorkers:
		return c.cancelWorkers(token, r)
	case request.Flush:
		return c.flush(token, r)
	case MarkReady:
		c.markReady(token)
		return nil
	}
	return fault.New(fault.Internal, fault.ReasonInternal, "the registry does not handle requests of type %T", in)
}

func (c *Core) elected(e model.Elected) {
	c.term = e.Term
	c.scheduler.Lead(e.Term)
	c.applyQuarantine()
	c.reached(e.Revision)
	c.scheduler.Wake(scheduler.WakeReady)
}

// reached records that the view shows every write up to a revision. The view then has
// every lease that was granted up to that revision.
func (c *Core) reached(revision int64) {
	c.revision = max(c.revision, revision)
	c.viewed = max(c.viewed, revision)
	for uid, v := range c.granted {
		if v.granted <= c.viewed {
			delete(c.granted, uid)
			c.update(v, func() { v.granted = 0 })
		}
	}
}

// changed applies a record from the view. It ignores a reservation that is older than the
// known one: the view then shows a record that this core has replaced since.
func (c *Core) changed(e model.Changed) {
	if v := c.versions[e.Ref.ID]; e.Ref.Kind == model.KindReservation && v != nil && v.r != nil && e.Mod < v.r.Mod {
		return
	}
	if c.term != 0 && c.freesCapacity(e) {
		c.scheduler.InventoryChanged(c.now)
	}
	switch r := e.Record.(type) {
	case *model.Reservation:
		known := *r
		known.Epoch, known.Mod = e.Create, e.Mod
		c.set(e.Ref, &known)
	case *model.LeaseChunk:
		known := *r
		known.Create = e.Create
		c.set(e.Ref, &known)
	default:
		c.set(e.Ref, e.Record)
	}
}

// freesCapacity reports whether a change of the view may let a reservation fit that did
// not fit before. It may if an executor joined or changed, a lease shrank, or a volume, pool,
// SKU or disable changed.
func (c *Core) freesCapacity(e model.Changed) bool {
	switch e.Ref.Kind {
	case model.KindExecutor, model.KindLive:
		return e.Record != nil
	case model.KindLeaseChunk:
		v := c.versions[e.Ref.ID]
		return v != nil && v.lease[e.Ref.Chunk] != nil
	case model.KindVolumeChunk, model.KindPool, model.KindSKU, model.KindDisable:
		return true
	}
	return false
}

// maySchedule reports whether the scheduler may start a cycle: the registry must be
// ready, and every decision must be durable, so that every candidate is.
func (c *Core) maySchedule() bool { return c.isReady() && len(c.pending) == 0 }

func (c *Core) startCycle() {
	if !c.maySchedule() {
		return
	}
	if cycle, started := c.scheduler.StartCycle(c.now, c.revision); started {
		c.out = append(c.out, cycle)
	}
}

// decided applies the decision of a cycle about a candidate.
func (c *Core) decided(uid string, o *model.Outcome) {
	v := c.versions[uid]
	switch {
	case o.Result != model.Granted:
		c.reindexUnsettled(v)
	case o.Lease > c.viewed:
		c.granted[uid] = v
		c.update(v, func() { v.granted = o.Lease })
	}
}

// wakeUp runs the scheduler's timers. While the registry is not ready, it stops them
// instead.
func (c *Core) wakeUp() {
	if !c.isReady() {
		c.scheduler.Pause()
		return
	}
	if c.scheduler.Tick(c.now, len(c.accepted) > 0) {
		c.retryAccepted()
	}
}

// newUID returns the UID of the next version, which is unique because terms are.
func (c *Core) newUID() string {
	c.serial++
	return strconv.FormatInt(c.term, 36) + "-" + strconv.FormatInt(c.serial, 36)
}

func (c *Core) newPlace() int64 {
	c.place++
	return c.place
}
