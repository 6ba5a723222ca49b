package inventory

import (
	"cmp"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
	"berth.dev/services/executor-state/policy"
	"berth.dev/services/executor-state/usage"
)

// Core is the inventory. It is a [model.Core], so only one goroutine may use it.
type Core struct {
	cfg Config
	now time.Time

	recorded
	leading

	// index, usage, requests and pools follow from the records too.
	index    *match.Index
	usage    *usage.Tally
	requests *policy.Requests
	pools    *policy.Pools

	// quarantined holds what unreadable records are about. subject names the record about
	// which the step is deciding without a request.
	quarantined quarantined
	subject     model.Ref
	actions     []model.Action
	// answerLimit is answerBytes; tests lower it.
	answerLimit int
}

// recorded holds what follows from the records, including tentative decisions. Only
// [Core.set] changes it, except that progress changes revision, and setLeader changes
// leaders and presences.
type recorded struct {
	// revision is the revision up to which the view shows all writes.
	revision int64
	// leaders holds the term of each service's leader in the view; 0 if there is none.
	leaders map[string]int64
	// presences is the result of Presences.
	presences uint64

	records      map[model.Ref]*entry
	reservations map[string]*entry
	tasks        map[string]*task
	leases       map[string]*lease
	// gangs holds the leases of each reservation. leaseChanges numbers their changes.
	gangs        map[model.Key]gang
	leaseChanges uint64
	hosts        map[string]*host
	byID         core.Ordered[*host]
	allocations  map[uint32]*allocation
	// ordinals holds the keys of allocations, the highest first. lastOrdinal is the highest key.
	ordinals    core.Ordered[uint32]
	lastOrdinal uint32
	forgotten   model.Forgotten
	ready       *entry

	// stages holds what volumes need to know about stages, by key without name. volumes holds
	// all volumes by ID, and keeps those that are deleted when their time is over. See
	// volume.go.
	stages  map[model.Key]*stage
	volumes map[string]*volume
	keeps   core.Ordered[*volume]

	offers offers

	// delayed holds the reservations that become pending with time, and delayedUntil their times.
	delayed      core.Ordered[demandLater]
	delayedUntil map[string]time.Time

	states [5]int
	absent core.Ordered[*host]
	// overcommitted holds the executors whose leases use more than their capacity. stranded
	// holds the LOST executors with workers, and returned those that have presence again.
	// superseded holds the executors on which workers of a superseded agent live.
	overcommitted, stranded, returned, superseded map[string]*host
	// expired holds the LOST executors that no record names.
	expired core.Ordered[*host]

	// reviews holds the executors with failed starts. failedOn counts the failures of each
	// reservation by the ordinal of the executor. failingSKUs holds the executors that fail
	// starts, by the folded name of their SKU. See failing.go.
	reviews     core.Ordered[*allocation]
	failedOn    map[model.Key]map[uint32]int
	failingSKUs map[failingGroup]*failingSKU
	// doubted counts the failures of each request that need a proof by the ordinal of the executor.
	// ran has where requests became RUNNING, and ranBefore where they did before ranSince. See
	// elsewhere.go.
	doubted        map[string]map[uint32]int
	ran, ranBefore map[string]ranOn
	ranSince       time.Time
	// silent has the executors that do not answer start requests, and those whose records say so,
	// by ordinal. silentAt is when reviewSilence has something to do.
	silent   map[uint32]*allocation
	silentAt time.Time
}

// leading holds what only this leader knows. A new leader starts without it.
type leading struct {
	// term is the term of this leader; 0 on a standby. The clock of an executor that was
	// absent before the election starts at electedAt.
	term      int64
	electedAt time.Time
	// journal holds the decisions that are not durable, oldest first.
	journal []decision
	// waiting holds the answers to cycles whose leases are not all durable.
	waiting []waiting
	// cycle is the highest cycle number seen in cycleTerm, a term of the registry. Both may
	// be lost, because the compares of a grant guard against the same calls.
	cycleTerm, cycle int64
	// refused holds the candidates of the last cycle that did not fit, by UID.
	refused map[string]*refused
	// stopped holds the groups of the last cycle whose first candidate in order does not fit.
	// Nothing behind that candidate is decided.
	stopped map[string]bool
	// newPaid is the time up to which new executors have used up their rate; see admitNew.
	newPaid time.Time
	// intruders holds the registrations that were rejected because of another secret, by
	// executor, and refusedAgents those that are refused until the agent changes.
	// intrudersUntil is when the first of them is forgotten.
	intruders      map[string]intruder
	refusedAgents  map[string]refusedAgent
	intrudersUntil time.Time

	todo  todo[duty]
	fresh []freshLease
	// volumeTodo holds the chunks of volumes to review. lists holds the latest list of
	// volumes of each executor, by ID. listers holds the executors that list a volume, by ID
	// of the volume, in order.
	volumeTodo todo[model.Ref]
	// offerTodo holds the offers to review, by UID.
	offerTodo todo[string]
	// freed holds the refused offers that are to be deleted, because a cell reported that capacity
	// became free.
	freed   map[string]bool
	lists   map[string]*volumeList
	listers map[string][]string
	// lostAt is when the next absent executor becomes LOST. If absentChanged is set, lostAt
	// must be computed again.
	lostAt        time.Time
	absentChanged bool
	// mass holds the mass losses at the last evaluation, and heldBack their executors.
	mass     map[string]massLoss
	heldBack map[*host]bool
	counts   counts
}

var _ model.Core = (*Core)(nil)

// New returns the core of a standby without records.
func New(cfg Config) *Core {
	c := &Core{
		cfg: cfg,
		recorded: recorded{
			leaders:       map[string]int64{},
			records:       map[model.Ref]*entry{},
			reservations:  map[string]*entry{},
			tasks:         map[string]*task{},
			leases:        map[string]*lease{},
			gangs:         map[model.Key]gang{},
			stages:        map[model.Key]*stage{},
			volumes:       map[string]*volume{},
			keeps:         core.NewOrdered(compareKept),
			offers:        newOffers(),
			delayed:       core.NewOrdered(compareDemand),
			delayedUntil:  map[string]time.Time{},
			hosts:         map[string]*host{},
			byID:          core.NewOrdered(compareIDs),
			allocations:   map[uint32]*allocation{},
			ordinals:      core.NewOrdered(func(a, b uint32) int { return cmp.Compare(b, a) }),
			absent:        core.NewOrdered(compareAbsence),
			overcommitted: map[string]*host{},
			stranded:      map[string]*host{},
			returned:      map[string]*host{},
			superseded:    map[string]*host{},
			expired:       core.NewOrdered(compareExpired),
			reviews:       core.NewOrdered(compareReviews),
			failedOn:      map[model.Key]map[uint32]int{},
			failingSKUs:   map[failingGroup]*failingSKU{},
			doubted:       map[string]map[uint32]int{},
			silent:        map[uint32]*allocation{},
		},
		leading: leading{intruders: map[string]intruder{}, refusedAgents: map[string]refusedAgent{},
			lists: map[string]*volumeList{}, listers: map[string][]string{},
			stopped: map[string]bool{}, freed: map[string]bool{}},
		pools: policy.NewPools(),
		quarantined: quarantined{uids: map[string]bool{}, executors: map[string]bool{}, presences: map[string]bool{},
			leases: map[string]bool{}, volumes: map[model.Ref]bool{}, stages: map[model.Key]bool{}},
		answerLimit: answerBytes,
	}
	c.index = match.New(owner{c})
	c.usage = usage.New(c.index, c.pools.Of, func(r *model.Reservation) map[*match.Executor]int {
		return c.pinned(r.Key, r.UID, r.Spec.Constraints, r.Workers)
	})
	c.requests = policy.NewRequests(c.index, owner{c})
	return c
}

// hostAt returns a host that serves as a key for searches in byID.
func hostAt(id string) *host {
	h := &host{}
	h.ID = id
	return h
}

// Step implements [model.Core]. An [model.Input] carries a [model.Cycle] or a request of
// this package or of package policy. Duties that follow from records are done at the end
// of a batch of changes (Progress) and when time passes (nil). So many workers that end
// at once share one write.
//
// After Abandoned the driver must repeat every input that has no reply.
func (c *Core) Step(now time.Time, event model.Event) []model.Action {
	c.now = now
	c.actions, c.subject = nil, model.Ref{}
	switch event := event.(type) {
	case model.Changed:
		c.changed(event)
	case model.Quarantined:
		c.quarantine(event.Ref)
	case model.LeaderTerm:
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
	case c.todo.len() > 0 || c.volumeTodo.len() > 0 || c.offerTodo.len() > 0 || c.absentChanged || c.requests.Pending():
		return c.now
	}
	return earliest(earliest(earliest(c.lostAt, c.nextDelete()), c.requests.Next()),
		earliest(earliest(earliest(c.supersededUntil(), c.intrudersUntil), c.nextOffer()),
			earliest(earliest(earliest(c.nextReview(), c.silentAt), c.nextKeep()), c.nextDelayed())))
}

// earliest returns the earlier of two times; zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (c *Core) elected(e model.Elected) {
	c.term, c.electedAt = e.Term, c.now
	c.absentChanged = true
	c.usage.StartCooldowns(c.now)
	c.skipOrdinals()
	for uid := range c.quarantined.leases {
		c.isolate(uid)
	}
	c.isolateVolumes()
	c.withholdDemand()
	c.measureOffers()
	c.markAll()
	c.progress(e.Revision)
}

// progress records up to which revision the view shows all writes. Leases that were
// granted up to there can be evaluated now: if the view shows no reservation for such a
// lease, the reservation was deleted.
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
	case policy.Disable:
		value, err := c.requests.Disable(c.now, request)
		c.reply(in.Token, value, err)
	case policy.Enable:
		value, err := c.requests.Enable(c.now, request)
		c.reply(in.Token, value, err)
	case policy.Drain:
		value, err := c.drain(request)
		c.reply(in.Token, value, err)
	case policy.Claim:
		value, err := c.claim(request)
		c.reply(in.Token, value, err)
	case policy.PutPool:
		value, err := c.putPool(request)
		c.reply(in.Token, value, err)
	case policy.DeletePool:
		value, err := c.deletePool(request)
		c.reply(in.Token, value, err)
	case PutSKU:
		value, err := c.putSKU(request)
		c.reply(in.Token, value, err)
	case DeleteSKU:
		value, err := c.deleteSKU(request)
		c.reply(in.Token, value, err)
	case ReportVolumes:
		value, err := c.reportVolumes(request)
		c.reply(in.Token, value, err)
	case DeleteVolumes:
		value, err := c.deleteVolumes(request)
		c.reply(in.Token, value, err)
	case AbandonVolumes:
		value, err := c.abandonVolumes(request)
		c.reply(in.Token, value, err)
	case AnswerOffers:
		value, err := c.answerOffers(request)
		c.reply(in.Token, value, err)
	default:
		c.reply(in.Token, nil, fault.New(fault.Internal, fault.ReasonInternal,
			"executor-state does not handle requests of type %T", request))
	}
}

func (c *Core) reply(token uint64, value any, err error) {
	if err != nil {
		value = nil
	}
	c.actions = append(c.actions, model.Reply{Token: token, Value: value, Err: err})
}

// work performs the duties that follow from the records, up to the limits of one step.
func (c *Core) work() {
	c.endSkips()
	c.passDelays(c.now)
	if c.term == 0 {
		return
	}
	c.settleLeases()
	c.admitReturned()
	c.settleVolumes()
	c.settleOffers()
	c.requests.EndExpired(c.now, c.cfg.StepLimit)
	c.requests.Notify(c.now)
	c.loseAbsent()
	c.reviewSilence()
	c.endSuperseded()
	c.forgetIntruders()
	c.deleteExpired()
}
