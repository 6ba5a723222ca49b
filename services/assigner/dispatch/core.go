package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
)

// Core is the assigner's state machine. It implements model.Core.
type Core struct {
	cfg Config
	now time.Time
	// revision is the revision that the view has reached.
	revision int64
	records
	leadership

	// subject is the task about which the step decides.
	subject model.Ref
	// The results of this step so far.
	drafts map[string]*draft
	out    []model.Action
}

// records has what follows from the records, including decisions that are not durable.
type records struct {
	// registryTerm is the term of the registry's leader, or 0 without a leader.
	registryTerm int64

	// The records of other services.
	reservations map[string]reservation
	leases       map[string]lease
	volumes      map[model.Ref]*model.VolumeChunk
	volumeIDs    map[string]bool // the volumes in these chunks
	hosts        map[uint32]*host
	ordinals     map[string]uint32
	live         map[string]bool
	// gangs has the versions that count for the members of each reservation. descendants has
	// the number of such versions of which a version is the parent, by its UID.
	// living has the number of versions that are queued or active, and ended those that count after
	// they have ended if others live, by the UID of the version with which their reservation began.
	gangs       map[model.Key]*gang
	descendants map[string]int
	living      map[string]int
	ended       map[string]map[string]struct{}
	// ready is true when the registry is ready. Only then does a missing record prove
	// that no such record exists.
	ready bool

	// The records of this service. The journal has their changes that are not durable.
	tasks    map[string]*task
	uids     core.Ordered[string]
	refusals map[string]*model.Refusal // by executor ID
	journal  core.Journal[change]
	// lifetimes has the ends of the lifetimes of RUNNING workers, except quarantined ones.
	lifetimes core.Ordered[lifetime]

	quarantined quarantined

	// The next review looks at the objects in these sets. The setters add them, so a
	// rollback adds them too.
	dirtyTasks    map[string]struct{}
	dirtyHosts    map[uint32]struct{}
	dirtyRefusals map[string]struct{} // by executor ID
}

// leadership has what only this leader knows: requests, calls, and answers to handle again.
// A new leader starts without it.
type leadership struct {
	leading    bool
	term       int64
	dispatches []*pendingDispatch
	requests   map[workerKey]*request
	// starts has when the starts of STARTING workers began, as their executors report it, or
	// the zero time while a start is queued at its executor.
	starts map[workerKey]time.Time
	// orphansByName has the requests to stop orphaned workers, by the worker's name.
	orphansByName map[model.Worker][]*request
	orphanCount   int
	due           requestQueue
	untilReady    requestQueue // stops of orphaned workers, until the registry is ready
	blocked       requestQueue // starts of workers while an orphan has the same name
	calls         map[callKey]*call
	callsByAge    []*call // oldest first; an ended call is removed when it is the oldest
	lastCall      int64   // the number of the last call
	sequence      uint64
	// redo has the answers of executors that the next step handles again, because the
	// effects of these answers were abandoned.
	redo []model.Event
	// given has the members of gangs of the parent, as the agent of this cell has set them, and
	// givenVersions their versions. They are in memory only.
	given         map[model.Key]*model.Members
	givenVersions map[model.Key]string
	// watched has the reservations for whose members a caller waits. changedGangs are those
	// whose change this step reports.
	watched      map[model.Key]bool
	changedGangs map[model.Key]struct{}
	metrics      Metrics
}

// New returns a core without records.
func New(cfg Config) *Core {
	return &Core{
		cfg: cfg.orDefault(),
		records: records{
			reservations:  map[string]reservation{},
			leases:        map[string]lease{},
			volumes:       map[model.Ref]*model.VolumeChunk{},
			volumeIDs:     map[string]bool{},
			hosts:         map[uint32]*host{},
			ordinals:      map[string]uint32{},
			live:          map[string]bool{},
			gangs:         map[model.Key]*gang{},
			descendants:   map[string]int{},
			living:        map[string]int{},
			ended:         map[string]map[string]struct{}{},
			tasks:         map[string]*task{},
			uids:          core.NewOrdered(cmp.Compare[string]),
			refusals:      map[string]*model.Refusal{},
			lifetimes:     newLifetimes(),
			quarantined:   quarantined{uids: map[string]bool{}, volumes: map[model.Ref]bool{}},
			dirtyTasks:    map[string]struct{}{},
			dirtyHosts:    map[uint32]struct{}{},
			dirtyRefusals: map[string]struct{}{},
		},
		leadership: leadership{
			requests:      map[workerKey]*request{},
			starts:        map[workerKey]time.Time{},
			orphansByName: map[model.Worker][]*request{},
			due:           newRequestQueue(),
			untilReady:    newRequestQueue(),
			blocked:       newRequestQueue(),
			calls:         map[callKey]*call{},
			watched:       map[model.Key]bool{},
			given:         map[model.Key]*model.Members{},
			givenVersions: map[model.Key]string{},
			changedGangs:  map[model.Key]struct{}{},
			metrics:       newMetrics(),
		},
		drafts: map[string]*draft{},
	}
}

// Step implements model.Core. Step stores each record of the view. It decides on records
// only at the Progress that closes their batch, so that a decision sees one revision.
func (c *Core) Step(now time.Time, event model.Event) []model.Action {
	c.now = now
	c.clearSubject()
	switch e := event.(type) {
	case model.Changed:
		c.changed(e)
		return nil
	case model.Quarantined:
		c.quarantine(e.Ref)
		return nil
	case model.LeaderTerm:
		if e.Service == model.ServiceRegistry && e.Term > c.revision {
			c.registryTerm = e.Term
		}
		return nil
	case model.Committed:
		c.journal.Commit(e.Effects)
		return nil
	case model.Abandoned:
		c.journal.Abandon(c.undo)
		return nil
	case model.Progress:
		c.revision = max(c.revision, e.Revision)
	case model.Elected:
		c.elected(e)
	}
	if !c.leading {
		return nil
	}
	c.repeatAnswers()
	switch e := event.(type) {
	case model.Input:
		c.input(e)
	case SubmitDone, SubmitsDone, StopDone, DropDone:
		c.answered(e)
	}
	c.expireCalls()
	c.endLifetimes()
	c.review()
	c.answerDispatches()
	c.review()
	c.sendDue()
	c.reportMembers()
	actions := c.out
	c.out = nil
	return actions
}

// NextDeadline implements model.Core.
func (c *Core) NextDeadline() time.Time {
	if !c.leading {
		return time.Time{}
	}
	if c.dirty() || len(c.redo) > 0 || len(c.changedGangs) > 0 {
		return c.now
	}
	var next time.Time
	atMost := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if first, ok := c.due.First(); ok && len(c.calls) < c.cfg.InFlight {
		atMost(first.due)
	}
	if len(c.callsByAge) > 0 {
		atMost(c.callsByAge[0].until)
	}
	if first, ok := c.lifetimes.First(); ok {
		atMost(first.end)
	}
	for _, d := range c.dispatches {
		if !d.answered {
			atMost(d.until)
		}
	}
	return next
}

func (c *Core) elected(e model.Elected) {
	c.leading = true
	c.term = e.Term
	c.revision = max(c.revision, e.Revision)
	for uid := range c.uids.All() {
		c.updateRequests(c.tasks[uid])
	}
	c.updateAllDrops()
	c.markAll()
}

func (c *Core) input(e model.Input) {
	switch input := e.Request.(type) {
	case model.Dispatch:
		c.addDispatch(e.Token, input)
	case Report:
		reported, err := c.report(input)
		c.respond(e.Token, reported, err)
	case Reports:
		results := make([]ReportResult, len(input))
		for i, r := range input {
			results[i].Reported, results[i].Err = c.report(r)
		}
		c.respond(e.Token, results, nil)
	case Clear:
		cleared, err := c.clearQuarantine(input)
		c.respond(e.Token, cleared, err)
	default:
		c.respond(e.Token, nil, fault.New(fault.Internal, fault.ReasonInternal,
			"the assigner does not handle requests of type %T", input))
	}
}

// respond decides the drafts and adds the reply, which the caller gets once the drafts
// are durable.
func (c *Core) respond(token uint64, value any, err error) {
	c.flush()
	if err != nil {
		value = nil
	}
	c.out = append(c.out, model.Reply{Token: token, Value: value, Err: err})
}

// answered handles the answers of executors. An executor answers only once. If the
// effects of an answer are abandoned, the core therefore handles the answer again.
func (c *Core) answered(event model.Event) {
	before := c.journal.Len()
	switch e := event.(type) {
	case SubmitDone:
		c.submitsDone(e)
	case SubmitsDone:
		c.submitsDone(e...)
	case StopDone:
		c.setSubject(e.UID)
		c.stopDone(e)
	case DropDone:
		c.dropDone(e)
	}
	c.clearSubject()
	if c.journal.Len() == before {
		return
	}
	c.journal.Outcome(func(durable bool) {
		if !durable {
			c.redo = append(c.redo, event)
		}
	})
}

// repeatAnswers handles the answers in redo again.
func (c *Core) repeatAnswers() {
	events := c.redo
	c.redo = nil
	for _, event := range events {
		c.answered(event)
	}
}

// take removes all keys from a set, and returns them in order.
func take[K cmp.Ordered](set map[K]struct{}) []K {
	keys := slices.Sorted(maps.Keys(set))
	clear(set)
	return keys
}
