package internal

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
)

// reportBacklog is how many reports of an agent may wait for the one under way, and
// reportBytes how many bytes of them. Those of changes wait as one, of joinedWorkers at
// most.
const (
	reportBacklog = 64
	reportBytes   = 8 << 20
	joinedWorkers = 1024
)

// line is the way back to an agent. Neither method waits, and both may be called
// when the stream has ended.
type line interface {
	answer(*controlv1.HeartbeatAnswer)
	// end ends the stream with an error.
	end(error)
}

// session is the stream of one agent, and the presence of its executor as this
// replica keeps it. Presence must not wait for a report under way: the two go on
// beside each other.
type session struct {
	h           *Heartbeats
	ctx         context.Context // ends with the stream
	line        line
	id          string
	incarnation int64
	nonce       string // of the agent's registration, as its hello says
	workers     *living
	last        time.Time // the last message came; of who takes them
	// admitted is closed once the agent is known to be the one that registered the
	// executor: nothing that it reports goes further before.
	admitted  chan struct{}
	admitOnce sync.Once

	mu sync.Mutex
	// beating: a beat waits or is under way; again: another one came meanwhile.
	beating, again bool
	left           bool
	// stands is until when a beat would change nothing.
	stands time.Time
	// reports wait for the one that is being forwarded; bytes is their size.
	reports    []*controlv1.ExecutorReport
	bytes      int
	forwarding bool
	inbox      inbox

	presence // of the beat under way, or of who leaves
}

// presence is how an executor is kept present.
type presence struct {
	// address is where the agent listens, empty while it is not known.
	address string
	// lease is the etcd lease that presence stands on, 0 while it is not known.
	lease int64
	// renewed is when the last renewal of lease that succeeded began.
	renewed time.Time
	// returning: it was given up, is back, and had workers of before. strays: it
	// was announced with workers that it should not have.
	returning, strays bool
	// standing is what the agent is to the executor, as far as this replica has seen.
	standing standing
	// term is the assigner's, until the agent is told; leading is the one that leads
	// as far as this replica has seen.
	term, leading int64
	// seen is what all this was last found in.
	seen sight
}

// standing is what an agent is to the executor that its stream names.
type standing uint8

const (
	// unseen: this replica has not seen its registration yet.
	unseen standing = iota
	// registrant: it is the agent that registered the executor last.
	registrant
	// outdated: it was registered again since.
	outdated
	// superseded: by another agent, which is present.
	superseded
	// stranger: it only knows the incarnation.
	stranger
)

// sight is a look at what a core knows of an executor and its etcd lease.
type sight struct {
	core      *inventory.Core
	presences uint64 // of the core then
	lease     int64
}

// noNonce is announced for an agent whose hello gives no nonce.
const noNonce = "none"

// errStranger ends the stream of an agent that is not the one which registered.
var errStranger = fault.New(fault.Precondition, fault.ReasonOtherAgent, "the nonce is not that of the executor's registration")

// begin begins the session of the agent that has sent first.
func (h *Heartbeats) begin(ctx context.Context, first *controlv1.HeartbeatRequest, back line) *session {
	h.pulse.begin()
	return &session{
		h: h, ctx: ctx, line: back, id: first.GetId(), incarnation: first.GetIncarnation(), nonce: cmp.Or(first.GetNonce(), noNonce),
		workers: newLiving(&h.crowd), admitted: make(chan struct{}),
	}
}

// take takes in what the agent has sent: nil for the same once more.
func (s *session) take(m *controlv1.HeartbeatRequest) {
	s.guard(func() { s.received(m) })
}

// guard calls fn, and ends the stream if it panics. It reports whether fn returned.
func (s *session) guard(fn func()) bool {
	if s.h.loop.Guard("executor "+s.id, fn) {
		return true
	}
	s.line.end(fault.New(fault.Internal, fault.ReasonInternal, "the replica failed to handle the heartbeat"))
	return false
}

// aside runs what a beat takes beside the keepers, which ends with the beat.
func (s *session) aside(fn func()) {
	go func() {
		if !s.guard(fn) {
			s.rest()
		}
	}()
}

func (s *session) received(m *controlv1.HeartbeatRequest) {
	if s.last.IsZero() {
		if err := wire.CheckExecutor("id", s.id, "incarnation", s.incarnation); err != nil {
			s.line.end(err)
			return
		}
	}
	if m != nil && (m.GetId() != s.id || m.GetIncarnation() != s.incarnation) {
		s.line.end(fault.New(fault.Invalid, fault.ReasonInvalid, "one stream is for one executor and incarnation"))
		return
	}
	now := time.Now()
	if !s.last.IsZero() {
		s.h.pulse.beat(now.Sub(s.last))
	}
	s.last = now
	r := m.GetReport()
	if r != nil {
		r.Executor, r.Incarnation = s.id, s.incarnation
		if err := wire.CheckReport(r); err != nil {
			s.line.end(err)
			return
		}
		if !s.workers.reported(r) {
			s.line.end(fault.New(fault.Exhausted, fault.ReasonOverloaded, "too many workers are reported: at most %d of an executor, and %d of all above %d each",
				wire.MaxReportedWorkers, crowdLimit, freeWorkers))
			return
		}
		if !s.forward(r) {
			s.line.end(tooManyReports())
			return
		}
	}
	s.beat(now, r != nil)
}

// beat has presence kept, once for the beats that come while that is under way.
// One that brought a report is answered with the report where it changes nothing
// else.
func (s *session) beat(now time.Time, reported bool) {
	s.mu.Lock()
	wanted := !s.beating && !s.left && !(reported && now.Before(s.stands))
	s.again = s.beating
	s.beating = s.beating || wanted
	s.mu.Unlock()
	if wanted {
		s.h.due.add(s)
	}
}

// kept ends a beat with its answer.
func (s *session) kept(present bool) {
	answer := &controlv1.HeartbeatAnswer{Present: present, AssignerTerm: s.term, Everything: s.workers.lacks(s.leading)}
	s.term = 0
	s.line.answer(answer)
	s.rest()
}

// rest ends a beat.
func (s *session) rest() {
	s.mu.Lock()
	again, left := s.again && !s.left, s.left
	s.again, s.beating = false, again
	if s.stands = (time.Time{}); s.lease != 0 && !s.returning && !s.strays {
		s.stands = s.renewed.Add(renewEvery)
	}
	s.mu.Unlock()
	switch {
	case left:
		s.suspect()
	case again:
		s.h.due.add(s)
	}
}

// leave ends the session when its stream has ended.
func (s *session) leave() {
	s.h.pulse.end()
	s.workers.forget()
	s.mu.Lock()
	s.left = true
	beating := s.beating
	s.mu.Unlock()
	if !beating {
		s.suspect()
	}
}

// suspect has the agent looked after whose stream has ended, whatever ended it.
// What that takes is known by then, for very many may end at once; but for one
// that ended so soon that its registration had not been seen here. Streams of a
// replica that stops say nothing of their agents.
func (s *session) suspect() {
	select {
	case <-s.h.loop.Ended():
		return
	default:
	}
	switch {
	case s.lease == 0:
	case s.address != "":
		s.h.gone.Suspect(departure{id: s.id, address: s.address, incarnation: s.incarnation, lease: s.lease})
	default:
		go s.guard(func() {
			ctx, cancel := context.WithTimeout(context.Background(), peekTimeout)
			defer cancel()
			_ = s.h.peek(ctx, func(c *inventory.Core) { s.locate(c) }) // without an answer its etcd lease tells
			if s.address != "" {
				s.suspect()
			}
		})
	}
}

// locate notes the agent's address, which an incarnation keeps for good, whether it
// is back from LOST with workers of before, and whether it has strays; and who leads
// the assigner. It answers the presence of the incarnation, nil for none.
func (s *session) locate(c *inventory.Core) *model.Live {
	s.leading = c.AssignerTerm()
	p, _ := c.Presence(s.id)
	s.standing = s.standingIn(p)
	switch s.standing {
	case registrant:
		s.admit()
		s.address, s.returning, s.strays = p.Executor.Address, p.Executor.Returning, p.Executor.Strays
	case stranger:
		return nil
	}
	if p.Live == nil || p.Live.Incarnation != s.incarnation {
		return nil
	}
	return p.Live
}

// standingIn answers what the agent is by the records of an executor.
func (s *session) standingIn(p inventory.Presence) standing {
	e := p.Executor
	switch {
	case e == nil || e.Incarnation < s.incarnation:
		return unseen
	case e.Incarnation == s.incarnation && e.Proves(s.nonce):
		return registrant
	case e.Incarnation == s.incarnation:
		return stranger
	case slices.Contains(e.Former, s.nonce) && p.Live != nil && p.Live.Incarnation == e.Incarnation:
		return superseded
	}
	return outdated
}

// look returns what the agent is now: unseen if this replica's view does not answer.
func (s *session) look(ctx context.Context) standing {
	is := unseen
	_ = s.h.peek(ctx, func(c *inventory.Core) {
		p, _ := c.Presence(s.id)
		is = s.standingIn(p)
	})
	return is
}

// admit lets the agent's reports through.
func (s *session) admit() { s.admitOnce.Do(func() { close(s.admitted) }) }

// awaitAdmission waits until the agent is known to be the one that registered the
// executor: its first beat finds that out, unless this replica has yet to see the
// registration. It answers an error if the agent is another one.
func (s *session) awaitAdmission() error {
	for pause := admitPause; ; pause = min(2*pause, beatTimeout) {
		wait := time.NewTimer(pause)
		select {
		case <-s.admitted:
			wait.Stop()
			return nil
		case <-s.ctx.Done():
			wait.Stop()
			return context.Cause(s.ctx)
		case <-wait.C:
		}
		ctx, cancel := context.WithTimeout(s.ctx, peekTimeout)
		is := s.look(ctx)
		cancel()
		switch is {
		case registrant:
			s.admit()
		case stranger:
			return errStranger
		}
	}
}

// forward has a report brought to the assigner, those of an agent one after the
// other. It says whether there was room for it.
func (s *session) forward(r *controlv1.ExecutorReport) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.reports); n > 0 && join(s.reports[n-1], r) {
		return true
	}
	bytes := proto.Size(r)
	if len(s.reports) > 0 && (len(s.reports) >= reportBacklog || s.bytes+bytes > reportBytes) {
		return false
	}
	s.reports, s.bytes = append(s.reports, r), s.bytes+bytes
	if !s.forwarding {
		s.forwarding = true
		go s.guard(s.forwardAll)
	}
	return true
}

// join adds what a report tells to the one that waits before it, in order, and says
// whether it has: each change is told, in one call in place of many. What a beat only
// repeats, as long as it is not answered, is told once. A complete one stays as it
// is, since what it does not list is judged by when it was made.
func join(waiting, r *controlv1.ExecutorReport) bool {
	if waiting.GetComplete() || r.GetComplete() || len(waiting.GetWorkers())+len(r.GetWorkers()) > joinedWorkers ||
		proto.Size(waiting)+proto.Size(r) > reportCallBytes {
		return false
	}
	for _, w := range r.GetWorkers() {
		if last := newest(waiting.GetWorkers(), w); last == nil || !proto.Equal(last, w) {
			waiting.Workers = append(waiting.Workers, w)
		}
	}
	waiting.Sequence = r.GetSequence()
	return true
}

// newest is the last that is told of the same worker; nil for nothing.
func newest(told []*controlv1.WorkerReport, w *controlv1.WorkerReport) *controlv1.WorkerReport {
	for _, t := range slices.Backward(told) {
		if t.GetIndex() == w.GetIndex() && t.GetNumber() == w.GetNumber() && t.GetStage() == w.GetStage() && t.GetJob() == w.GetJob() {
			return t
		}
	}
	return nil
}

func (s *session) forwardAll() {
	if err := s.awaitAdmission(); err != nil {
		s.line.end(err)
		return
	}
	for {
		s.mu.Lock()
		if len(s.reports) == 0 {
			s.reports, s.bytes, s.forwarding = nil, 0, false
			s.mu.Unlock()
			return
		}
		r := s.reports[0]
		s.reports, s.bytes = s.reports[1:], max(0, s.bytes-proto.Size(r)) // joined ones were not added
		s.mu.Unlock()
		answer, err := s.h.reports.Forward(s.ctx, r)
		if err != nil {
			// The agent brings everything again on its next stream.
			s.line.end(err)
			return
		}
		if s.workers.judge(r.GetComplete(), answer) {
			s.beat(time.Now(), false) // it is to be announced
		}
		s.line.answer(&controlv1.HeartbeatAnswer{Present: true, Report: answer, Everything: s.workers.lacks(answer.GetTerm())})
	}
}
