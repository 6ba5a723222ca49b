package loop_test

import (
	"cmp"
	"fmt"
	"time"

	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
)

// service is the service of the toy. Its records are executors, presences and leases.
const service = model.ServiceExecutorState

var space = keyspace.New("test")

// These are the requests of a toy, and its action.
type (
	// put stores a record. If then is set, another record is stored once the first one is
	// durable.
	put struct {
		record model.Record
		// If gate is set, the put requires that this header of another service does not exist.
		gate string
		// events is the number of job events that are written with the record. job is their job,
		// by default j. then is stored after the record is durable.
		events int
		job    string
		then   model.Record
		// If before is set, it is stored first by a separate effect.
		before model.Record
	}
	// get returns the record, or nil.
	get struct{ ref model.Ref }
	// slowRequest is a request that is decided only later.
	slowRequest struct{}
	// ping makes the core return an action.
	ping struct{ n int }
)

// toy is a minimal core that uses all features of a driver. It has tentative records, and
// replies that wait until an effect is durable. It also has effects that follow from
// effects, and compares of other services' records.
type toy struct {
	records  map[model.Ref]model.Record
	journal  []pending
	term     int64
	next     time.Time
	received []string
	out      []model.Action
	// If blind is set, the core ignores changes.
	blind bool
	// If strike is set, it is called before each step and may panic. It may also set the
	// subject of the step.
	strike  func(c *toy, event model.Event)
	subject model.Ref
}

type pending struct {
	ref    model.Ref
	before model.Record
	token  uint64
	then   model.Record
}

func newToy() *toy { return &toy{records: map[model.Ref]model.Record{}} }

// Subject and CanMiss implement model.QuarantineCore. A toy can work without gates.
func (c *toy) Subject() model.Ref         { return c.subject }
func (c *toy) CanMiss(ref model.Ref) bool { return ref.Kind == model.KindTaskHeader }

func (c *toy) NextDeadline() time.Time { return c.next }

func (c *toy) Step(now time.Time, event model.Event) []model.Action {
	c.out, c.subject = nil, model.Ref{}
	if c.strike != nil {
		c.strike(c, event)
	}
	switch e := event.(type) {
	case nil:
		c.note("nil")
		if !c.next.IsZero() && !now.Before(c.next) {
			c.next = time.Time{}
		}
	case model.Changed:
		c.note("changed %s", name(e.Ref))
		if !c.blind {
			c.set(e.Ref, e.Record)
		}
	case model.Quarantined:
		c.note("held %s", name(e.Ref))
	case model.Progress:
	case model.LeaderTerm:
		c.note("leads %s %d", e.Service, e.Term)
	case model.Elected:
		c.note("elected")
		c.term = e.Term
	case model.Committed:
		c.note("committed %d", e.Effects)
		done := c.journal[:e.Effects]
		c.journal = c.journal[e.Effects:]
		for _, p := range done {
			if p.token != 0 {
				c.out = append(c.out, model.Reply{Token: p.token, Value: e.Revision})
			}
			if p.then != nil {
				c.decide(put{record: p.then}, 0)
			}
		}
	case model.Abandoned:
		c.note("abandoned")
		for i := len(c.journal) - 1; i >= 0; i-- {
			c.set(c.journal[i].ref, c.journal[i].before)
		}
		c.journal = nil
	case model.Input:
		c.input(e)
	case ping:
		c.note("pong %d", e.n)
	default:
		panic(fmt.Sprintf("%T", event))
	}
	return c.out
}

func (c *toy) input(e model.Input) {
	switch r := e.Request.(type) {
	case put:
		c.note("put %s", name(r.record.Ref()))
		if r.gate != "" && c.records[gate(r.gate)] != nil {
			c.out = append(c.out, model.Reply{Token: e.Token, Value: "shut"})
			return
		}
		if r.before != nil {
			c.decide(put{record: r.before}, 0)
		}
		c.decide(r, e.Token)
	case get:
		c.note("get %s", name(r.ref))
		c.out = append(c.out, model.Reply{Token: e.Token, Value: c.records[r.ref]})
	case call:
		c.note("call %d", r.term)
		c.out = append(c.out, model.Reply{Token: e.Token, Value: true})
	case slowRequest:
		c.note("mull")
	case ping:
		c.note("ping %d", r.n)
		c.out = append(c.out, r, model.Reply{Token: e.Token, Value: r.n})
	}
}

func (c *toy) decide(r put, token uint64) {
	ref := r.record.Ref()
	c.journal = append(c.journal, pending{ref, c.records[ref], token, r.then})
	c.set(ref, r.record)
	effect := model.Effect{Puts: []model.Record{r.record}}
	if r.gate != "" {
		effect.Expect = []model.Expect{{Ref: gate(r.gate), Absent: true}}
	}
	for range r.events {
		effect.Events = append(effect.Events, model.JobEvent{Kind: model.EventReservationAssigned,
			Key: model.Key{Job: cmp.Or(r.job, "j"), Stage: "s", Name: "main"}})
	}
	c.out = append(c.out, effect)
}

func (c *toy) set(ref model.Ref, record model.Record) {
	if record == nil {
		delete(c.records, ref)
		return
	}
	c.records[ref] = record
}

func (c *toy) note(format string, args ...any) {
	c.received = append(c.received, fmt.Sprintf(format, args...))
}

// gate returns the reference of the header with which another service closes a gate.
func gate(name string) model.Ref { return model.Ref{Kind: model.KindTaskHeader, ID: name} }

func name(ref model.Ref) string {
	switch ref.Kind {
	case model.KindLeader:
		return "leader"
	case model.KindTaskHeader:
		return "gate " + ref.ID
	}
	return ref.ID
}

func executor(id string) *model.Executor { return &model.Executor{ID: id, Ordinal: 1} }
