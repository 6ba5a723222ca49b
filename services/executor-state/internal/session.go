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

// reportBacklog is how many reports of an agent may be pending, and reportBytes how many
// bytes of them. Pending reports of changes are merged, up to mergedWorkers workers.
const (
	reportBacklog = 64
	reportBytes   = 8 << 20
	mergedWorkers = 1024
)

// agentStream sends to an agent. Its methods do not wait, and may be called after the stream
// has ended.
type agentStream interface {
	answer(*controlv1.HeartbeatAnswer)
	// end ends the stream with an error.
	end(error)
}

// session is the stream of one agent, and the presence of its executor on this replica. It
// forwards reports and renews presence concurrently, so that a slow report does not delay
// presence.
type session struct {
	h           *Heartbeats
	ctx         context.Context // ends with the stream
	stream      agentStream
	id          string
	incarnation int64
	nonce       string // of the agent's registration, as its hello says
	workers     *reportedWorkers
	last        time.Time // of the last message; used only while handling messages
	// admitted is closed once the agent is known to be the one that registered the
	// executor. None of its reports is forwarded before.
	admitted  chan struct{}
	admitOnce sync.Once

	mu sync.Mutex
	// renewing: a heartbeat is queued or handled; renewAgain: another one came meanwhile.
	renewing, renewAgain bool
	left                 bool
	// freshUntil is the time until which a heartbeat would change nothing.
	freshUntil time.Time
	// reports are pending behind the one that is being forwarded.
	reports backlog[*controlv1.ExecutorReport]
	// undecoded are the requests that are pending to be decoded; begun is set with the
	// first decoded request of the stream.
	undecoded backlog[[]byte]
	begun     bool

	presence // used by the heartbeat that is handled, or by leave
}

// presence is how an executor is kept present.
type presence struct {
	// address is where the agent listens; empty while unknown.
	address string
	// lease is the etcd lease of the executor; 0 while unknown.
	lease int64
	// renewed is when the last successful renewal of lease began.
	renewed time.Time
	// returning: the executor was LOST, is back, and had workers from before. orphans: it
	// was announced with orphaned workers.
	returning, orphans bool
	// registration is the agent's registration as far as this replica has seen.
	registration registration
	// term is the assigner's until the agent has received it; leading is the newest one
	// that this replica has seen.
	term, leading int64
	// seen is what the fields above were last derived from.
	seen observation
}

// registration is the relation of an agent to the executor that its stream names.
type registration uint8

const (
	// unseen: this replica has not seen its registration yet.
	unseen registration = iota
	// registered: the agent registered the executor last.
	registered
	// outdated: the executor was registered again since.
	outdated
	// superseded: another agent registered the executor since, and is present.
	superseded
	// otherAgent: another agent registered the executor with this incarnation.
	otherAgent
)

// observation identifies a state of a core's presences, and an etcd lease in it.
type observation struct {
	core      *inventory.Core
	presences uint64 // of the core then
	lease     int64
}

// noNonce is announced for an agent whose hello contains no nonce.
const noNonce = "none"

// errOtherAgent ends the stream of an agent that did not register the executor.
var errOtherAgent = fault.New(fault.Precondition, fault.ReasonOtherAgent,
	"the nonce is not that of the executor's registration")

// begin begins the session of an agent with its first request.
func (h *Heartbeats) begin(ctx context.Context, first *controlv1.HeartbeatRequest, stream agentStream) *session {
	h.streams.add(1)
	return &session{
		h: h, ctx: ctx, stream: stream, id: first.GetId(), incarnation: first.GetIncarnation(),
		nonce:   cmp.Or(first.GetNonce(), noNonce),
		workers: newReportedWorkers(&h.shared), admitted: make(chan struct{}),
	}
}

// handle handles a message of the agent; nil for a heartbeat without content.
func (s *session) handle(m *controlv1.HeartbeatRequest) {
	s.guard(func() {
		if err := s.process(m); err != nil {
			s.stream.end(err)
		}
	})
}

// guard calls fn, and ends the stream if it panics. It reports whether fn returned.
func (s *session) guard(fn func()) bool {
	if s.h.loop.Guard("executor "+s.id, fn) {
		return true
	}
	s.stream.end(fault.New(fault.Internal, fault.ReasonInternal, "the replica failed to handle the heartbeat"))
	return false
}

// async runs a step of a heartbeat that waits for calls. The step finishes the heartbeat.
func (s *session) async(fn func()) {
	go func() {
		if !s.guard(fn) {
			s.finish()
		}
	}()
}

func (s *session) process(m *controlv1.HeartbeatRequest) error {
	now := time.Now()
	if s.last.IsZero() {
		if err := wire.CheckExecutor("id", s.id, "incarnation", s.incarnation); err != nil {
			return err
		}
	}
	if m != nil && (m.GetId() != s.id || m.GetIncarnation() != s.incarnation) {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "a stream must name only one executor and incarnation")
	}
	if !s.last.IsZero() {
		s.h.streams.heartbeat(now.Sub(s.last))
	}
	s.last = now
	r := m.GetReport()
	if r != nil {
		r.Executor, r.Incarnation = s.id, s.incarnation
		if err := wire.CheckReport(r); err != nil {
			return err
		}
		if !s.workers.reported(r) {
			return fault.New(fault.Exhausted, fault.ReasonOverloaded,
				"too many workers are reported: at most %d of an executor, and %d of all above %d each",
				wire.MaxReportedWorkers, maxSharedWorkers, freeWorkers)
		}
		if !s.forward(r) {
			return tooManyReports()
		}
	}
	s.heartbeat(now, r != nil)
	return nil
}

// heartbeat queues the session for its presence to be renewed. Heartbeats that come while
// that is under way share one more renewal. The answer to a report suffices as the answer to
// a heartbeat that would change nothing.
func (s *session) heartbeat(now time.Time, reported bool) {
	s.mu.Lock()
	start := !s.renewing && !s.left && !(reported && now.Before(s.freshUntil))
	s.renewAgain = s.renewing
	s.renewing = s.renewing || start
	s.mu.Unlock()
	if start {
		s.h.queue.add(s)
	}
}

// respond answers a heartbeat and finishes it.
func (s *session) respond(present bool) {
	answer := &controlv1.HeartbeatAnswer{Present: present, AssignerTerm: s.term,
		Everything: s.workers.needFullReport(s.leading)}
	s.term = 0
	s.stream.answer(answer)
	s.finish()
}

// fail ends the stream with an error and finishes the heartbeat.
func (s *session) fail(err error) {
	s.stream.end(err)
	s.finish()
}

// finish finishes a heartbeat.
func (s *session) finish() {
	s.mu.Lock()
	again, left := s.renewAgain && !s.left, s.left
	s.renewAgain, s.renewing = false, again
	if s.freshUntil = (time.Time{}); s.lease != 0 && !s.returning && !s.orphans {
		s.freshUntil = s.renewed.Add(renewInterval)
	}
	s.mu.Unlock()
	switch {
	case left:
		s.probe()
	case again:
		s.h.queue.add(s)
	}
}

// leave ends the session after its stream has ended.
func (s *session) leave() {
	s.h.streams.add(-1)
	s.workers.close()
	s.mu.Lock()
	s.left = true
	renewing := s.renewing
	s.mu.Unlock()
	if !renewing {
		s.probe()
	}
}

// probe queues a liveness probe of an agent whose stream has ended, for whatever reason. Its
// address is usually known, so that very many streams may end at once. It is looked up if the
// stream ended before this replica saw the registration. If this replica stops, the end of a
// stream says nothing about the agent.
func (s *session) probe() {
	select {
	case <-s.h.loop.Ended():
		return
	default:
	}
	switch {
	case s.lease == 0:
	case s.address != "":
		s.h.prober.Probe(brokenStream{id: s.id, address: s.address, incarnation: s.incarnation, lease: s.lease})
	default:
		go s.guard(func() {
			ctx, cancel := context.WithTimeout(context.Background(), peekTimeout)
			defer cancel()
			_ = s.h.peek(ctx, func(c *inventory.Core) { s.observe(c) }) // without an answer the TTL decides
			if s.address != "" {
				s.probe()
			}
		})
	}
}

// observe updates the presence from the core: the agent's address, which never changes for an
// incarnation; whether the executor is back from LOST with workers from before; whether it has
// orphaned workers; and the term of the assigner. It returns the presence of the incarnation,
// nil for none.
func (s *session) observe(c *inventory.Core) *model.Live {
	s.leading = c.AssignerTerm()
	p, _ := c.Presence(s.id)
	s.registration = s.registrationIn(p)
	switch s.registration {
	case registered:
		s.admit()
		s.address, s.returning, s.orphans = p.Executor.Address, p.Executor.Returning, p.Executor.Orphans
	case otherAgent:
		return nil
	}
	if p.Live == nil || p.Live.Incarnation != s.incarnation {
		return nil
	}
	return p.Live
}

// registrationIn returns the agent's registration according to the records of an executor.
func (s *session) registrationIn(p inventory.Presence) registration {
	e := p.Executor
	switch {
	case e == nil || e.Incarnation < s.incarnation:
		return unseen
	case e.Incarnation == s.incarnation && e.Proves(s.nonce):
		return registered
	case e.Incarnation == s.incarnation:
		return otherAgent
	case slices.Contains(e.Former, s.nonce) && p.Live != nil && p.Live.Incarnation == e.Incarnation:
		return superseded
	}
	return outdated
}

// look returns the agent's registration; unseen if this replica's core does not answer in
// time.
func (s *session) look(ctx context.Context) (r registration) {
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	_ = s.h.peek(ctx, func(c *inventory.Core) {
		p, _ := c.Presence(s.id)
		r = s.registrationIn(p)
	})
	return r
}

// admit allows the agent's reports to be forwarded.
func (s *session) admit() { s.admitOnce.Do(func() { close(s.admitted) }) }

// forward queues a report for the assigner, which receives the reports of an agent one after
// the other. It reports whether there was space.
func (s *session) forward(r *controlv1.ExecutorReport) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.reports.items); n > 0 && merge(s.reports.items[n-1], r) {
		return true
	}
	start, ok := s.reports.push(r, proto.Size(r))
	if start {
		go s.guard(s.forwardAll)
	}
	return ok
}

// merge adds a report to the pending one before it, and reports whether it did. The merged
// report contains every change in order, so one call replaces many. A change that is only
// repeated, because it has no answer yet, is added once. Complete reports are not merged: the
// assigner evaluates missing workers by the time of the report.
func merge(pending, r *controlv1.ExecutorReport) bool {
	if pending.GetComplete() || r.GetComplete() || len(pending.GetWorkers())+len(r.GetWorkers()) > mergedWorkers ||
		proto.Size(pending)+proto.Size(r) > reportCallBytes {
		return false
	}
	for _, w := range r.GetWorkers() {
		if last := newest(pending.GetWorkers(), w); last == nil || !proto.Equal(last, w) {
			pending.Workers = append(pending.Workers, w)
		}
	}
	pending.Sequence = r.GetSequence()
	return true
}

// newest returns the last report of the same worker; nil for none.
func newest(reported []*controlv1.WorkerReport, w *controlv1.WorkerReport) *controlv1.WorkerReport {
	for _, t := range slices.Backward(reported) {
		if t.GetIndex() == w.GetIndex() && t.GetNumber() == w.GetNumber() && t.GetStage() == w.GetStage() &&
			t.GetJob() == w.GetJob() {
			return t
		}
	}
	return nil
}

// forwardAll forwards reports until there are none.
func (s *session) forwardAll() {
	if err := s.awaitAdmission(); err != nil {
		s.stream.end(err)
		return
	}
	for {
		s.mu.Lock()
		r, ok := s.reports.pop(func(r *controlv1.ExecutorReport) int { return proto.Size(r) })
		s.mu.Unlock()
		if !ok {
			return
		}
		answer, err := s.h.reports.Forward(s.ctx, r)
		if err != nil {
			// The next stream of the agent begins with a complete report.
			s.stream.end(err)
			return
		}
		if s.workers.answered(r.GetComplete(), answer) {
			s.heartbeat(time.Now(), false) // which announces the executor again
		}
		s.stream.answer(&controlv1.HeartbeatAnswer{Present: true, Report: answer,
			Everything: s.workers.needFullReport(answer.GetTerm())})
	}
}
