package inventory

import (
	"math"
	"slices"

	"berth.dev/pkg/model"
)

// A request to disable that goes by attributes may hold for the whole fleet, and
// to take an executor out of allocation, or to put it back, takes some
// microseconds. A leader does that in steps, before a request begins and after it
// has ended:
//
//	asked ──▶ executors are taken out ──▶ decided, durable, answered
//	ended ──▶ decided, durable, answered ──▶ executors are put back
//
// So whoever a request holds for is out of allocation, at every revision and in
// every answer, and for a moment longer on either side. What registers meanwhile
// is placed by the requests of its cohort as they are by then.
const (
	// sweepWork bounds how many cohorts and executors a step looks at for that.
	// One that is moved counts for workOfMove.
	sweepWork  = 1 << 14
	workOfMove = 16
)

// sweep is a walk through the cohorts and their executors, in pieces, that puts
// each executor where the requests of its cohort have it.
type sweep struct {
	// cohort is the last that was entered, and host the last of its executors
	// that was looked at; nil before the first. Inside says that there may be more
	// of them.
	cohort *cohort
	host   *host
	inside bool
	// busy says that an executor that was looked at holds workers.
	busy bool
}

// goOn walks on while there is work left to be done, and says whether it has come
// to the end. Each cohort is entered; its executors are looked at if enter says so.
func (w *sweep) goOn(c *Core, left *int, enter func(*cohort) bool) bool {
	at := following(&c.disables.inOrder, w.cohort)
	for *left > 0 {
		if w.inside {
			w.settle(c, left)
			continue
		}
		k, ok := at.item()
		if !ok {
			return true
		}
		at.next()
		*left--
		w.cohort, w.host, w.inside = k, nil, enter(k)
	}
	return false
}

func (w *sweep) settle(c *Core, left *int) {
	at := following(&w.cohort.hosts, w.host)
	for *left > 0 {
		h, ok := at.item()
		if !ok {
			w.inside = false
			return
		}
		at.next()
		*left--
		w.host = h
		w.busy = w.busy || h.hold.workers > 0
		if h.shut != h.closed() {
			c.unplace(h)
			c.place(h)
			*left -= workOfMove
		}
	}
}

// following is a cursor at the first item after the last one; nil for none yet.
func following[T any](s *ordered[*T], last *T) cursor[*T] {
	if last == nil {
		return cursor[*T]{set: s}
	}
	return s.after(last)
}

// shutting is a request that goes by attributes, from when it is asked for until
// it is durable: a step that was cut, or a decision that was taken back, is gone on
// from here.
type shutting struct {
	request    *model.Disable
	attributes []attribute
	sweep      sweep
	// executors counts those that were selected.
	executors int
	// late: it was not decided in the step in which it was asked for. Decided says
	// that it is now.
	late, done, decided bool
	// tokens are of the calls that it answers.
	tokens []uint64
}

// enter has the request hold for a cohort that it selects.
func (s *shutting) enter(k *cohort) bool {
	if !k.selects(s.attributes) {
		return false
	}
	if !k.holds(s.request.ID) {
		k.requests = insertID(k.requests, s.request.ID)
	}
	s.executors += k.hosts.len()
	return true
}

// shuttingOf answers what is known of a request that is not durable; nil for nothing.
func (s *disables) shuttingOf(id string) *shutting {
	for _, asked := range s.shutting {
		if asked.request.ID == id {
			return asked
		}
	}
	return nil
}

// forget drops what is known of a request that is not durable: it is by now, or is
// asked for again if it is taken back.
func (s *disables) forget(id string) {
	s.shutting = slices.DeleteFunc(s.shutting, func(asked *shutting) bool { return asked.request.ID == id && asked.decided })
}

// sweeping says whether executors are to be taken out of allocation or put back.
func (s *disables) sweeping() bool {
	return s.reopening != nil || slices.ContainsFunc(s.shutting, func(asked *shutting) bool { return !asked.decided })
}

// shut takes what a request selects out of allocation, and then decides it and
// answers the call. A repeat is answered with it.
func (c *Core) shut(token uint64, d *model.Disable) {
	s := c.disables.shuttingOf(d.ID)
	asked := s == nil
	if asked {
		s = &shutting{request: d, attributes: attributesOf(d.Attributes)}
		c.disables.shutting = append(c.disables.shutting, s)
		c.disables.byKind[d.ID] = s.attributes
	}
	if !slices.Contains(s.tokens, token) {
		s.tokens = append(s.tokens, token)
	}
	c.sweep()
	if !asked {
		return // calls of before wait, and are answered again if this is taken back
	}
	if s.late = !s.decided; !s.late {
		c.disables.forget(d.ID)
	}
}

// sweep takes executors out of allocation, and puts others back, as far as a step
// should.
func (c *Core) sweep() {
	left := c.limits.sweep
	for _, s := range c.disables.shutting {
		if s.done = s.done || s.sweep.goOn(c, &left, s.enter); !s.done {
			return
		}
		if !s.decided {
			c.begin(s)
		}
	}
	c.reopen(&left)
}

// begin decides a request, all of whose executors are out of allocation. What
// registered since it was asked for may hold workers whose jobs are to be told.
func (c *Core) begin(s *shutting) {
	s.decided = true
	d := *s.request
	d.ToldAll = !s.sweep.busy && !s.late
	c.decide(model.Effect{Puts: []model.Record{&d}})
	for _, token := range s.tokens {
		c.reply(token, Disabled{RequestID: d.ID, Executors: s.executors}, nil)
	}
}

// reopen puts executors back that requests which have ended held for.
func (c *Core) reopen(left *int) {
	for c.disables.reopening != nil {
		if !c.disables.reopening.goOn(c, left, c.disables.dropEnded) {
			return
		}
		c.disables.reopening = nil
		if c.disables.again {
			c.disables.reopening, c.disables.again = &sweep{}, false
		}
	}
}

// dropEnded takes the requests that do not hold for it any more off a cohort, and
// says whether its executors are to be put back.
func (s *disables) dropEnded(k *cohort) bool {
	held := len(k.requests) > 0
	k.requests = slices.DeleteFunc(k.requests, func(id string) bool {
		attributes, holds := s.byKind[id]
		return !holds || !k.selects(attributes)
	})
	return held && len(k.requests) == 0
}

// holdByKind has a request that goes by attributes hold from now on, or no more. A
// request that the view tells of, or whose end is taken back, holds at once.
func (c *Core) holdByKind(was, is *model.Disable) {
	switch {
	case holdsByKind(is):
		asked := c.disables.shuttingOf(is.ID)
		if c.disables.byKind[is.ID] != nil && asked != nil && asked.done {
			return
		}
		told := shutting{request: is, attributes: attributesOf(is.Attributes)}
		c.disables.byKind[is.ID] = told.attributes
		all := math.MaxInt
		told.sweep.goOn(c, &all, told.enter)
	case holdsByKind(was) && (is != nil || c.disables.shuttingOf(was.ID) == nil):
		delete(c.disables.byKind, was.ID)
		if c.disables.again = c.disables.reopening != nil; !c.disables.again {
			c.disables.reopening = &sweep{}
		}
		if c.term == 0 {
			all := math.MaxInt
			c.reopen(&all)
		}
	}
}

func holdsByKind(d *model.Disable) bool { return d != nil && d.Holds() && len(d.Attributes) > 0 }
