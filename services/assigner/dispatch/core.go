package dispatch

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Core is the assigner's machine. It implements model.Core.
type Core struct {
	cfg     Config
	now     time.Time
	leading bool
	term    int64
	// revision is what the view has reached.
	revision int64
	// registryTerm is the term of the registry's leader, 0 while nobody leads.
	registryTerm int64

	// What other services decided.
	reservations map[string]reservation
	leases       map[string]lease
	hosts        map[uint32]*host
	ordinals     map[string]uint32
	live         map[string]bool
	// refusals are the executors that refuse this service, by id: its own records.
	refusals map[string]*model.Refusal
	// ready: the registry is, and what no record wants may be swept.
	ready bool

	// aside is what is left alone; subject what the step decides about by itself.
	aside   aside
	subject model.Ref

	// What this service decided, with the journal of what is not durable yet.
	tasks            map[string]*task
	uids             []string
	journal          []undo
	emitted, durable int

	// What is to be looked at: kept by set, so that a rollback marks it again.
	dirtyTasks map[string]struct{}
	dirtyHosts map[uint32]struct{}
	// dirtyRefusals are the executors whose refusal may be over.
	dirtyRefusals map[string]struct{}

	// What is under way, in memory alone.
	asked  []*asked
	orders map[orderKey]*order
	// namesakes are the orders to stop strays, by the name of the worker.
	namesakes map[model.Worker][]*order
	// strayOrders is how many orders to stop strays there are.
	strayOrders int
	due         queue
	held        queue // orders to stop strays, until the registry is ready
	barred      queue // orders to submit a worker of whose name one runs that should not
	flights     map[flightKey]*flight
	flown       []*flight
	sequence    uint64
	// answers are those of executors that effects not durable yet rest on;
	// redo are those to be taken again, because their effects were abandoned.
	answers []answer
	redo    []model.Event

	// What was counted, and what is to be once it is durable.
	figures Figures
	pending []pending

	// What this step has made so far.
	drafts map[string]*draft
	out    []model.Action
}

// New makes a core that knows nothing yet.
func New(cfg Config) *Core {
	return &Core{
		cfg:          cfg.orDefault(),
		reservations: map[string]reservation{},
		leases:       map[string]lease{},
		hosts:        map[uint32]*host{},
		ordinals:     map[string]uint32{},
		live:         map[string]bool{},
		tasks:        map[string]*task{},
		dirtyTasks:   map[string]struct{}{},
		dirtyHosts:   map[uint32]struct{}{},
		refusals:     map[string]*model.Refusal{}, dirtyRefusals: map[string]struct{}{},
		orders:    map[orderKey]*order{},
		namesakes: map[model.Worker][]*order{},
		flights:   map[flightKey]*flight{},
		drafts:    map[string]*draft{},
		aside:     aside{uids: map[string]bool{}},
		figures:   newFigures(),
	}
}

// Step implements model.Core. Records of the view are only taken in; what
// follows from them is decided with the Progress that closes their batch, so
// that a decision sees one revision.
func (c *Core) Step(now time.Time, event model.Event) []model.Action {
	c.now = now
	c.aboutNone()
	switch e := event.(type) {
	case model.Changed:
		c.changed(e)
		return nil
	case model.Held:
		c.hold(e.Ref)
		return nil
	case model.Leads:
		if e.Service == model.ServiceRegistry && e.Term > c.revision {
			c.registryTerm = e.Term
		}
		return nil
	case model.Committed:
		c.committed(e.Effects)
		return nil
	case model.Abandoned:
		c.abandoned()
		return nil
	case model.Progress:
		c.revision = max(c.revision, e.Revision)
	case model.Elected:
		c.elected(e)
	}
	if !c.leading {
		return nil
	}
	c.redoAnswers()
	switch e := event.(type) {
	case model.Input:
		c.input(e)
	case SubmitDone, SubmitsDone, StopDone:
		c.answered(e)
	}
	c.expireFlights()
	c.review()
	c.create()
	c.review()
	c.sendDue()
	actions := c.out
	c.out = nil
	return actions
}

// NextDeadline implements model.Core.
func (c *Core) NextDeadline() time.Time {
	if !c.leading {
		return time.Time{}
	}
	if len(c.dirtyTasks)+len(c.dirtyHosts)+len(c.dirtyRefusals)+len(c.redo) > 0 {
		return c.now
	}
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if len(c.due) > 0 && len(c.flights) < c.cfg.InFlight {
		sooner(c.due[0].due)
	}
	if len(c.flown) > 0 {
		sooner(c.flown[0].until)
	}
	for _, a := range c.asked {
		if !a.answered {
			sooner(a.until)
		}
	}
	return next
}

func (c *Core) elected(e model.Elected) {
	c.leading = true
	c.term = e.Term
	c.revision = max(c.revision, e.Revision)
	for _, uid := range c.uids {
		c.refitAll(c.tasks[uid])
	}
	c.lookAtAll()
}

func (c *Core) input(e model.Input) {
	switch request := e.Request.(type) {
	case model.Dispatch:
		c.ask(e.Token, request)
	case Report:
		reported, err := c.report(request)
		c.respond(e.Token, reported, err)
	case Reports:
		results := make([]ReportResult, len(request))
		for i, r := range request {
			results[i].Reported, results[i].Err = c.report(r)
		}
		c.respond(e.Token, results, nil)
	case Clear:
		cleared, err := c.clear(request)
		c.respond(e.Token, cleared, err)
	default:
		c.reply(e.Token, nil, fault.New(fault.Internal, fault.ReasonInternal, "assigner does not know requests of type %T", request))
	}
}

// respond makes what was drafted durable, and then the reply.
func (c *Core) respond(token uint64, value any, err error) {
	c.flush()
	if err != nil {
		value = nil
	}
	c.reply(token, value, err)
}

func (c *Core) reply(token uint64, value any, err error) {
	c.out = append(c.out, model.Reply{Token: token, Value: value, Err: err})
}

// answer is what an executor said, and the last effect that rests on it.
type answer struct {
	event model.Event
	after int
}

// answered takes in what an executor answered. An answer comes once, so that it
// is kept until what was decided on it is durable.
func (c *Core) answered(event model.Event) {
	before := c.emitted
	switch e := event.(type) {
	case SubmitDone:
		c.submitsDone(e)
	case SubmitsDone:
		c.submitsDone(e...)
	case StopDone:
		c.about(e.UID)
		c.stopDone(e)
	}
	c.aboutNone()
	if c.emitted > before {
		c.answers = append(c.answers, answer{event, c.emitted})
	}
}

// redoAnswers takes in again what was decided on in vain.
func (c *Core) redoAnswers() {
	events := c.redo
	c.redo = nil
	for _, event := range events {
		c.answered(event)
	}
}
