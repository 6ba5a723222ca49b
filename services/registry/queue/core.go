package queue

import (
	"strconv"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
)

// maxDerived bounds how many effects one step decides by itself. What is left
// over is done in the next step, which NextDeadline asks for at once.
const maxDerived = 256

// Core is the queue of reservations. It implements model.Core.
type Core struct {
	config Config
	now    time.Time
	out    []model.Action

	// What follows is a function of the records; set alone changes it.
	versions  map[string]*version              // by uid
	keys      core.Ordered[model.Key]          // every key that has a record
	byKey     map[model.Key][]*version         // oldest first
	children  map[string]int                   // versions that came of one, by its uid
	stages    map[model.Key]*model.Stage       // by job and stage
	stageKeys core.Ordered[model.Key]          // the same, in order
	groups    map[string]*group                // queues that are not empty
	leased    core.Ordered[*model.Reservation] // queued, with a lease to dispatch
	executors map[string]uint32                // ordinals, by id
	names     map[uint32]string                // and the other way round
	// spent are the living with workers to be queued again, or that were, by
	// stage and uid: the stage's record tells which.
	spent     map[model.Key]map[string]*version
	deadlines core.Ordered[deadline]  // of what expires or is forgotten
	ended     core.Ordered[deadline]  // those of them that are forgotten
	unsettled map[string]*version     // whose records call for a change
	unnoted   map[string]*version     // whose record is to say that they are ACTIVE
	states    [model.Replaced + 1]int // records by stored state
	stored    usage                   // by all records
	storedOf  map[string]usage        // and by those of a job
	pending   []pending               // effects that are not durable
	pendingOf map[model.Ref]int       // and how many of them touch a record
	ready     *model.Ready            // nil while no registry has begun
	held      held                    // what is left alone

	// subject is what the step decides about by itself.
	subject model.Ref

	// What follows is this leader's alone and may be lost with it.
	term          int64
	revision      int64 // everything durable up to it is known
	viewed        int64 // and everything of other services up to it
	place, serial int64
	due           map[string]*group // whose head may be tried
	cause         WakeCause         // of what becomes due in this step
	causes        [wakeCauses]bool  // of what is due
	counts        Counts
	wakes         int64     // counts the times that all became due
	wakeAt        time.Time // of the debounced wake-up
	retryAt       time.Time // of the timer
	notBefore     time.Time // of the next cycle
	cycles        int64
	plainCycles   int64 // the highest of those that is at most model.HighestJump
	flight        *flight
	dispatching   map[string]int64    // the revisions of what the dispatch in flight holds, by uid; nil without one
	nextDispatch  time.Time           // not before
	noteAt        time.Time           // when what is unnoted is written at the latest
	taken         map[string]*version // taken, the task not seen yet
	granted       map[string]*version // granted, the lease not seen yet
	waiting       map[uint64]*waiter  // cancels to be answered, by token
	freed         []*version          // whose cancel may be answered
}

var _ model.Core = (*Core)(nil)

// New makes a core that knows of nothing.
func New(config Config) *Core {
	c := &Core{
		config:    config.withDefaults(),
		versions:  map[string]*version{},
		keys:      core.NewOrdered(model.Key.Compare),
		byKey:     map[model.Key][]*version{},
		children:  map[string]int{},
		stages:    map[model.Key]*model.Stage{},
		stageKeys: core.NewOrdered(model.Key.Compare),
		groups:    map[string]*group{},
		executors: map[string]uint32{},
		names:     map[uint32]string{},
		spent:     map[model.Key]map[string]*version{},
		deadlines: core.NewOrdered(deadline.compare),
		ended:     core.NewOrdered(deadline.compare),
		unsettled: map[string]*version{},
		unnoted:   map[string]*version{},
		storedOf:  map[string]usage{},
		pendingOf: map[model.Ref]int{},
		due:       map[string]*group{},
		taken:     map[string]*version{},
		granted:   map[string]*version{},
		waiting:   map[uint64]*waiter{},
	}
	c.leased = core.NewOrdered(c.compare)
	return c
}

// Step implements model.Core. Decisions of the core's own are taken only when
// the view is consistent, which is not between the changes of one batch, and
// not while it lags behind what an abandoned effect ran into.
func (c *Core) Step(now time.Time, event model.Event) []model.Action {
	c.now, c.out, c.cause, c.subject = now, nil, causeOf(event), model.Ref{}
	switch e := event.(type) {
	case model.Changed:
		c.changed(e)
		return c.out
	case model.Held:
		c.hold(e.Ref)
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
	case CycleDone:
		c.cycleDone(e)
	case DispatchDone:
		c.dispatchDone(e)
	}
	if c.term != 0 {
		c.cause = WakeChange
		c.getReady()
		c.settle()
		c.note()
		c.answerFreed()
		c.wakeUp()
		c.dispatch()
		c.sendCycle()
	}
	return c.out
}

// NextDeadline implements model.Core.
func (c *Core) NextDeadline() time.Time {
	if c.term == 0 {
		return time.Time{}
	}
	if len(c.unsettled) > 0 || c.tooManyEnded() {
		return c.now
	}
	next := earliest(earliest(earliest(c.wakeAt, c.retryAt), c.readyAt()), c.noteAt)
	if c.deadlines.Len() > 0 {
		next = earliest(next, c.deadlines.At(0).at)
	}
	if c.mayStartCycle() {
		next = earliest(next, c.notBefore)
	}
	if c.mayDispatch() {
		next = earliest(next, c.nextDispatch)
	}
	return next
}

// earliest is the earlier of two times of which zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (c *Core) handle(in model.Input) {
	if err := c.untouchable(in.Request); err != nil {
		c.refuse(in.Token, err)
		return
	}
	switch request := in.Request.(type) {
	case model.Upsert:
		c.upsert(in.Token, request)
	case Cancel:
		c.cancel(in.Token, request)
	case CancelJob:
		c.cancelJob(in.Token, request)
	case Flush:
		c.flush(in.Token, request)
	case MarkReady:
		c.markReady(in.Token)
	case CancelWorkers:
		c.cancelWorkers(in.Token, request)
	default:
		c.refuse(in.Token, fault.New(fault.Internal, fault.ReasonInternal, "the queue knows no request %T", request))
	}
}

func (c *Core) elected(e model.Elected) {
	c.term = e.Term
	c.putAside()
	c.reached(e.Revision)
	c.wake(WakeReady)
}

// reached learns that the view shows everything up to a revision: leases
// granted by then speak for themselves.
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

// changed takes a record from the view. What came before is kept when the
// record that is held is newer: the view then shows what this core replaced.
func (c *Core) changed(e model.Changed) {
	if v := c.versions[e.Ref.ID]; e.Ref.Kind == model.KindReservation && v != nil && v.r != nil && e.Mod < v.r.Mod {
		return
	}
	if c.term != 0 && c.freesCapacity(e) && c.wakeAt.IsZero() {
		c.wakeAt = c.now.Add(c.config.Debounce)
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

// freesCapacity says whether a change of the view may let something fit that
// did not: an executor that came or changed, a lease that holds less, another
// rule of which executors may be used.
func (c *Core) freesCapacity(e model.Changed) bool {
	switch e.Ref.Kind {
	case model.KindExecutor, model.KindLive:
		return e.Record != nil
	case model.KindLeaseChunk:
		v := c.versions[e.Ref.ID]
		return v != nil && v.lease[e.Ref.Chunk] != nil
	case model.KindPool, model.KindSKU, model.KindDisable:
		return true
	}
	return false
}

// newUID names the next version: unique because terms are.
func (c *Core) newUID() string {
	c.serial++
	return strconv.FormatInt(c.term, 36) + "-" + strconv.FormatInt(c.serial, 36)
}

func (c *Core) newPlace() int64 {
	c.place++
	return c.place
}
