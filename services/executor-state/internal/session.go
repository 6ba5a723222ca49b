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

// reportBacklog is the maximum number of pending reports of an agent, and reportBytes
// their maximum size. Pending reports of changes are merged, up to mergedWorkers workers.
const (
	reportBacklog = 64
	reportBytes   = 8 << 20
	mergedWorkers = 1024
)

// agentStream sends answers to an agent. Its methods do not wait, and may be called after
// the stream has ended.
type agentStream interface {
	answer(*controlv1.HeartbeatAnswer)
	// end ends the stream with an error.
	end(error)
}

// session holds the stream of one agent and the presence of its executor on this replica.
// It forwards reports and renews presence concurrently, so that a slow report does not
// delay presence.
type session struct {
	h           *Heartbeats
	ctx         context.Context // ends with the stream
	stream      agentStream
	id          string
	incarnation int64
	nonce       string // the nonce of the agent's registration, as its first request says
	workers     *reportedWorkers
	volumes     listedVolumes
	offering    offering
	last        time.Time // the time of the last message; used only while handling messages
	// admitted is closed once this replica knows that the agent is the one that registered
	// the executor. No report of the agent is forwarded before.
	admitted  chan struct{}
	admitOnce sync.Once

	mu sync.Mutex
	// renewing reports whether a heartbeat is queued or being handled. renewAgain reports
	// whether another heartbeat arrived in that time.
	renewing, renewAgain bool
	left                 bool
	// freshUntil is the time until which a heartbeat would change nothing.
	freshUntil time.Time
	// reports holds the reports that wait for the report that is being forwarded.
	reports backlog[*controlv1.ExecutorReport]
	// undecoded holds the requests that wait to be decoded. begun is set with the first
	// decoded request of the stream.
	undecoded backlog[[]byte]
	begun     bool

	presence // used by the heartbeat that is being handled, or by leave
}

// presence is the state of an executor's presence on this replica.
type presence struct {
	// address is where the agent accepts connections; empty while unknown.
	address string
	// lease is the etcd lease of the executor; 0 while unknown.
	lease int64
	// renewed is when the last successful renewal of lease began.
	renewed time.Time
	// returning reports whether the executor was LOST, has returned, and had workers from
	// before. orphans reports whether the executor was announced with orphaned workers.
	returning, orphans bool
	// registration is the agent's registration, as far as this replica has seen.
	registration registration
	// term is the term of the assigner until the agent has received it; then it is 0.
	// leading is the newest term of the assigner that this replica has seen.
	term, leading int64
	// seen identifies the state of the core from which the fields above were last derived.
	seen observation
}

// registration is the relation of an agent to the executor that its stream names.
type registration uint8

const (
	// unseen: this replica has not seen the agent's registration yet.
	unseen registration = iota
	// registered: the agent registered the executor last.
	registered
	// outdated: the executor has been registered again since.
	outdated
	// superseded: another agent has registered the executor since, and is present.
	superseded
	// otherAgent: another agent registered the executor with this incarnation.
	otherAgent
)

// observation identifies a state of a core's presences and an etcd lease in that state.
type observation struct {
	core      *inventory.Core
	presences uint64 // Core.Presences at that time
	lease     int64
}

// noNonce is announced for an agent whose first request contains no nonce.
const noNonce = "none"

// errOtherAgent ends the stream of an agent that did not register the executor.
var errOtherAgent = fault.New(fault.Precondition, fault.ReasonOtherAgent,
	"the nonce differs from the nonce of the executor's registration")

// begin begins the session of an agent with its first request.
func (h *Heartbeats) begin(ctx context.Context, first *controlv1.HeartbeatRequest, stream agentStream) *session {
	h.streams.add(1)
	return &session{
		h: h, ctx: ctx, stream: stream, id: first.GetId(), incarnation: first.GetIncarnation(),
		nonce:   cmp.Or(first.GetNonce(), noNonce),
		workers: newReportedWorkers(&h.shared), admitted: make(chan struct{}),
		volumes: listedVolumes{shared: &h.sharedVolumes},
	}
}

// handle handles a message of the agent; nil is a heartbeat without content.
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

// async runs a step of a heartbeat that waits for calls. The step must finish the
// heartbeat.
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
				wire.MaxReportedWorkers, maxSharedItems, freeItems)
		}
		if !s.forward(r) {
			return tooManyReports()
		}
	}
	if list := m.GetVolumes(); list != nil {
		if err := wire.CheckVolumeList(list); err != nil {
			return err
		}
		if !s.volumes.set(list) {
			return tooManyVolumes()
		}
		s.sendLists()
	}
	if err := s.takeAnswers(m); err != nil {
		return err
	}
	s.heartbeat(now, r != nil)
	return nil
}

// heartbeat queues the session for the renewal of its presence. Heartbeats that arrive
// during a renewal share one further renewal. If a heartbeat came with a report and would
// change nothing, the answer to the report suffices.
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
	if present {
		answer.Offers = s.confirmOffers()
	}
	s.term = 0
	s.stream.answer(answer)
	s.finish()
}

// fail ends the stream with an error and finishes the heartbeat.
func (s *session) fail(err error) {
	s.stream.end(err)
	s.finish()
}

// finish finishes a heartbeat. It then queues the next renewal if another heartbeat
// arrived meanwhile, or probes the agent if the stream has ended.
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
	s.volumes.close()
	s.mu.Lock()
	s.left = true
	renewing := s.renewing
	s.mu.Unlock()
	s.h.cells.remove(s)
	if !renewing {
		s.probe()
	}
}

// probe queues a liveness probe of an agent whose stream has ended for any reason.
// Usually the session knows the agent's address, so very many streams may end at once. If
// the stream ended before this replica saw the registration, probe looks the address up.
// If this replica stops, the end of a stream says nothing about the agent, and probe does
// nothing.
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
			_ = s.h.peek(ctx, func(c *inventory.Core) { s.observe(c) }) // if the core does not answer, the TTL decides
			if s.address != "" {
				s.probe()
			}
		})
	}
}

// observe updates the presence from the core. It reads the agent's address, which never
// changes for an incarnation, and the term of the assigner. It also reads whether the
// executor has returned from LOST with workers from before, and whether it has orphaned
// workers. observe returns the presence of the incarnation; nil if there is none.
func (s *session) observe(c *inventory.Core) *model.Live {
	s.leading = c.AssignerTerm()
	p, _ := c.Presence(s.id)
	s.registration = s.registrationIn(p)
	switch s.registration {
	case registered:
		s.admit()
		s.address, s.returning, s.orphans = p.Executor.Address, p.Executor.Returning, p.Executor.Orphans
		s.volumes.observe(c, s.id)
		s.sendLists()
		if p.Executor.Cell {
			s.followOffers()
		}
	case otherAgent:
		return nil
	}
	if p.Live == nil || p.Live.Incarnation != s.incarnation {
		return nil
	}
	return p.Live
}

// registrationIn returns the agent's registration according to the records of an
// executor.
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

// look returns the agent's registration. It returns unseen if this replica's core does
// not answer in time.
func (s *session) look(ctx context.Context) (r registration) {
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	_ = s.h.peek(ctx, func(c *inventory.Core) {
		p, _ := c.Presence(s.id)
		if r = s.registrationIn(p); r == registered && p.Executor.Cell {
			s.followOffers()
		}
	})
	return r
}

// admit allows the agent's reports to be forwarded.
func (s *session) admit() { s.admitOnce.Do(func() { close(s.admitted) }) }

// forward queues a report for the assigner, which receives the reports of an agent one
// after the other. forward reports whether there was space.
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

// merge adds a report to the pending report before it, and reports whether it did. The
// merged report contains every change in order, so one call replaces many. If an agent
// repeats a change because the change has no answer yet, merge adds it once. Complete
// reports are not merged: the assigner evaluates missing workers by the time of the
// report.
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

// newest returns the last report of the same worker; nil if there is none.
func newest(reported []*controlv1.WorkerReport, w *controlv1.WorkerReport) *controlv1.WorkerReport {
	for _, t := range slices.Backward(reported) {
		if t.GetIndex() == w.GetIndex() && t.GetNumber() == w.GetNumber() && t.GetStage() == w.GetStage() &&
			t.GetJob() == w.GetJob() {
			return t
		}
	}
	return nil
}

// forwardAll forwards the pending reports until there are none.
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
			s.heartbeat(time.Now(), false) // the heartbeat announces the executor again
		}
		s.stream.answer(&controlv1.HeartbeatAnswer{Present: true, Report: answer,
			Everything: s.workers.needFullReport(answer.GetTerm())})
	}
}
