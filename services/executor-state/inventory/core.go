package inventory

import (
	"cmp"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
	"berth.dev/services/executor-state/usage"
)

// Core is the inventory. It is a [model.Core]; nothing of it may be called
// from two goroutines at once.
type Core struct {
	cfg Config
	now time.Time

	// term is the term of this leader, 0 on a standby; electedAt restarts the
	// clocks of absent executors.
	term      int64
	electedAt time.Time
	// revision is what the view has reached: every change up to it was told.
	revision int64
	// leaders holds the term of each service that the view told of, 0 where
	// nobody leads.
	leaders map[string]int64
	// presences is as Presences answers it.
	presences uint64

	// records is what is known, tentative decisions included; set writes it,
	// and with it every index below.
	records      map[model.Ref]*held
	reservations map[string]*held
	tasks        map[string]*task
	leases       map[string]*lease
	hosts        map[string]*host
	byID         core.Ordered[*host]
	holds        map[uint32]*hold
	// ordinals are those of holds, the highest first, and lastOrdinal is that one.
	ordinals    core.Ordered[uint32]
	lastOrdinal uint32
	// newPaid is the time that new executors have used up: see admitNew.
	newPaid time.Time
	index   *match.Index
	usage   *usage.Tally
	absent  core.Ordered[*host]
	states  [5]int
	// over holds more than it has, stranded is LOST and holds workers.
	over, stranded map[string]*host
	// superseded are those on which workers of a superseded agent live; intruders
	// are the registrations refused for another secret, by executor.
	superseded map[string]*host
	intruders  map[string]intruder
	// intrudersUntil is when the first of them is to be forgotten.
	intrudersUntil time.Time
	disables       disables
	// late came under requests of which its jobs are still to be told.
	late core.Ordered[*host]
	// past are LOST, and nothing names them; forgotten is of those before them.
	past      core.Ordered[*host]
	forgotten model.Forgotten
	pools     map[string]*pool
	ready     *held
	// aside is what is left alone; subject what the step decides about by itself.
	aside   aside
	subject model.Ref
	// journal holds the decisions that are not durable, oldest first.
	journal []decision
	// waiting are cycles whose leases are not durable.
	waiting []waiting
	// cycle is the highest cycle number seen of the registry's term cycleTerm. Both
	// are lost with the leader: a grant's compares guard what they would have.
	cycleTerm, cycle int64
	// refused are the candidates of the last cycle that did not fit, by UID.
	refused map[string]*refused

	todo  todo
	fresh []freshLease
	// lostAt is when the next absent executor is due, unless absentChanged
	// says that this must be looked at again; mass are those held back.
	lostAt        time.Time
	absentChanged bool
	mass          map[string]massLoss
	held          map[*host]bool // those held back when it was last looked at
	counts        counts

	actions []model.Action
	// answerLimit is answerBytes, but in tests.
	answerLimit int
}

var _ model.Core = (*Core)(nil)

// New makes the core of a standby that knows of nothing yet.
func New(cfg Config) *Core {
	c := &Core{
		cfg:          cfg,
		leaders:      map[string]int64{},
		records:      map[model.Ref]*held{},
		reservations: map[string]*held{},
		tasks:        map[string]*task{},
		leases:       map[string]*lease{},
		hosts:        map[string]*host{},
		byID:         core.NewOrdered(compareIDs),
		holds:        map[uint32]*hold{},
		ordinals:     core.NewOrdered(func(a, b uint32) int { return cmp.Compare(b, a) }),
		absent:       core.NewOrdered(compareGone),
		over:         map[string]*host{},
		stranded:     map[string]*host{},
		superseded:   map[string]*host{},
		intruders:    map[string]intruder{},
		late:         core.NewOrdered(compareIDs),
		past:         core.NewOrdered(comparePast),
		disables:     newDisables(),
		pools:        map[string]*pool{},
		aside:        aside{uids: map[string]bool{}, executors: map[string]bool{}, presences: map[string]bool{}, pools: map[string]bool{}, leases: map[string]bool{}},
		answerLimit:  answerBytes,
	}
	c.index = match.New(owner{c})
	c.usage = usage.New(c.index, owner{c}.PoolsOf)
	return c
}

// owner tells the index what it does not know by itself. It implements [match.Owner].
type owner struct{ *Core }

// Executor implements [match.Owner].
func (o owner) Executor(id string) *match.Executor {
	if h := o.hosts[id]; h != nil {
		return &h.Executor
	}
	return nil
}

// hostAt is where a host with an ID would be in order of ID.
func hostAt(id string) *host {
	h := &host{}
	h.ID = id
	return h
}

// Step implements [model.Core]. Its events are those of package model; an
// [model.Input] carries a request of this package: [Register], [Announce], [Cycle]
// and others. Duties that follow
// from records are done at the end of a batch of changes (Progress) or when
// time passes (nil), so that many workers that end share one write.
//
// After Abandoned every input that was not answered must be given again.
func (c *Core) Step(now time.Time, event model.Event) []model.Action {
	c.now = now
	c.actions, c.subject = nil, model.Ref{}
	switch event := event.(type) {
	case model.Changed:
		c.changed(event)
	case model.Held:
		c.leave(event.Ref)
	case model.Leads:
		if event.Term > c.revision {
			c.setLeader(event.Service, event.Term)
		}
	case model.Progress:
		c.progress(event.Revision)
		c.work()
	case model.Elected:
		c.elected(event)
		c.work()
	case model.Committed:
		c.committed(event)
	case model.Abandoned:
		c.abandoned()
	case model.Input:
		c.input(event)
	case nil:
		c.work()
	}
	return c.actions
}

// NextDeadline implements [model.Core].
func (c *Core) NextDeadline() time.Time {
	switch {
	case c.term == 0:
		return time.Time{}
	case c.todo.len() > 0 || c.absentChanged || c.disables.untold.Len()+c.late.Len() > 0:
		return c.now
	}
	return earliest(earliest(earliest(c.lostAt, c.forgetAt()), c.disables.next()), earliest(c.supersededUntil(), c.intrudersUntil))
}

// earliest is the earlier of two times of which zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (c *Core) elected(e model.Elected) {
	c.term, c.electedAt = e.Term, c.now
	c.absentChanged = true
	c.skipOrdinals()
	for uid := range c.aside.leases {
		c.isolate(uid)
	}
	c.markAll()
	c.progress(e.Revision)
}

// progress notes how far the view is. Leases granted up to there can now be
// judged: if their reservation is not in the view, it is gone.
func (c *Core) progress(revision int64) {
	c.revision = max(c.revision, revision)
	for len(c.fresh) > 0 && c.fresh[0].create <= c.revision {
		c.mark(c.fresh[0].uid, wholeLease)
		c.fresh = c.fresh[1:]
	}
}

func (c *Core) input(in model.Input) {
	switch request := in.Request.(type) {
	case Register:
		value, err := c.register(request)
		c.reply(in.Token, value, err)
	case Announce:
		value, err := c.announce(request)
		c.reply(in.Token, value, err)
	case Depart:
		c.depart(request)
		c.reply(in.Token, Departed{}, nil)
	case model.Cycle:
		c.takeCycle(in.Token, request)
	case Disable:
		c.disable(in.Token, request)
	case Enable:
		value, err := c.enable(request)
		c.reply(in.Token, value, err)
	case Drain:
		value, err := c.drain(request)
		c.reply(in.Token, value, err)
	case Claim:
		value, err := c.claim(request)
		c.reply(in.Token, value, err)
	case PutPool:
		value, err := c.putPool(request)
		c.reply(in.Token, value, err)
	case DeletePool:
		value, err := c.deletePool(request)
		c.reply(in.Token, value, err)
	case PutSKU:
		value, err := c.putSKU(request)
		c.reply(in.Token, value, err)
	case DeleteSKU:
		value, err := c.deleteSKU(request)
		c.reply(in.Token, value, err)
	default:
		c.reply(in.Token, nil, fault.New(fault.Internal, fault.ReasonInternal, "executor-state does not know requests of type %T", request))
	}
}

func (c *Core) reply(token uint64, value any, err error) {
	if err != nil {
		value = nil
	}
	c.actions = append(c.actions, model.Reply{Token: token, Value: value, Err: err})
}

// work does what follows from the records, as far as one step should.
func (c *Core) work() {
	if c.term == 0 {
		return
	}
	c.settleLeases()
	c.endDisables()
	c.tellDisabled()
	c.loseAbsent()
	c.endSuperseded()
	c.forgetIntruders()
	c.forgetPast()
}
