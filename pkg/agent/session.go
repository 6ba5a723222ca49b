package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
)

const (
	// defaultEvery is the time between heartbeats if the control plane does not set it: a
	// third of the default time to live of an executor's presence.
	defaultEvery = 5 * time.Second
	// The shortest and the longest time between heartbeats that the agent accepts from the
	// control plane. The shortest prevents a flood of heartbeats. The longest prevents that
	// an agent is silent for longer than any time to live of a presence.
	shortestEvery, longestEvery = time.Millisecond, time.Hour
	// maxUnanswered is the number of unanswered heartbeats after which the agent closes a
	// stream. A broken connection ends the stream earlier; this limit is for a connection
	// over which no answers arrive.
	maxUnanswered = 3
	// maxPatience is how many times the agent doubles its wait for the first answer while it
	// closes streams without an answer. Otherwise thousands of agents would reconnect to an
	// overloaded control plane at once.
	maxPatience = 2
	// returnWithin divides the time between heartbeats. Within this fraction an agent
	// without unconfirmed changes reconnects after its stream broke. The random wait spreads
	// the reconnects: a replica that exits breaks the streams of very many agents at once,
	// while other replicas take over its work.
	returnWithin = 5
	// registerTimeout is the timeout of one attempt to register.
	registerTimeout = 10 * time.Second
	// window is the flow-control window for bytes from the gateway to an agent. The window
	// is fixed, because otherwise gRPC would estimate the window, and the gateway would send
	// a ping for each answer.
	window = 256 << 10
)

// DialOptions returns the options for the connection to the gateway. After an outage gRPC
// redials within milliseconds, and later at least once a second. The caller must add
// transport credentials.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 2 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
	}
}

// Run registers the executor and sends heartbeats for it until the context ends. It
// retries during any outage of the control plane. It returns the context's error. If
// another agent has taken the ID, it returns ErrSuperseded once the workers of this agent
// have ended. If the control plane belongs to another cluster than the directory, it returns
// an error at once, and the workers keep running.
func (a *Agent) Run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	var leaving sync.WaitGroup
	defer func() {
		a.mu.Lock()
		a.leave = nil
		a.broadcast()
		a.mu.Unlock()
		end(nil)
		leaving.Wait()
	}()
	a.mu.Lock()
	a.leave = func() { leaving.Go(func() { a.stopAndLeave(ctx, end) }) }
	a.mu.Unlock()
	// Every answer resets the timer.
	isolated := time.AfterFunc(a.cfg.StopWhenIsolatedAfter, func() {
		a.log.Warn("isolated from the control plane: stopping all workers", "after", a.cfg.StopWhenIsolatedAfter)
		_ = a.stopUpTo(model.WorkerEvicting) // stopWorker logs each failure
	})
	defer isolated.Stop()
	var (
		every time.Duration
		delay = pause{first: 2 * time.Millisecond, last: time.Second}
		// registerDelay slows down an agent that repeatedly loses its executor, or that is
		// refused because another agent has the ID.
		registerDelay = pause{first: 10 * time.Millisecond, last: 30 * time.Second}
		// unanswered is the number of consecutive streams that the agent closed without an
		// answer.
		unanswered int
		// refused is the text of the last refusal, which the agent has logged.
		refused string
	)
	for ctx.Err() == nil {
		if superseded, registered := a.isSuperseded(); every == 0 && superseded {
			if !registered {
				// Without an incarnation the agent cannot report. stopAndLeave ends the context once
				// the workers have ended.
				<-ctx.Done()
				continue
			}
			// The agent reports the remaining changes with its last incarnation.
			every = defaultEvery
		}
		if every == 0 {
			var err error
			every, err = a.register(ctx)
			reason := reasonOf(err)
			switch {
			case reason == fault.ReasonOtherCluster && a.leaveForeign():
				return a.otherCluster(err)
			case reason == fault.ReasonOtherAgent && a.owned():
				a.supersede()
				continue
			case refusedFor[reason] != "" || refusedForGood(err):
				if text := status.Convert(err).Message(); text != refused {
					if refused != "" {
						// If two reasons alternate, the agent does not retry more often.
						registerDelay.next = min(registerDelay.next, delay.last)
					}
					a.log.Error(cmp.Or(refusedFor[reason], "the registration is refused"), "error", err)
					refused = text
				}
				a.registerFailed(err)
				registerDelay.wait(ctx)
				continue
			case err != nil:
				a.registerFailed(err)
				a.log.Debug("not registered", "error", err)
				delay.wait(ctx)
				continue
			}
			refused = ""
		}
		began := time.Now()
		answered, err := a.session(ctx, every, maxUnanswered*every<<min(unanswered, maxPatience), isolated)
		unanswered++
		if answered || !errors.Is(err, errSilent) {
			unanswered = 0
		}
		if answered && time.Since(began) > delay.last {
			delay.reset()
		}
		if mustRegister(err) {
			a.log.Warn("registration lost: registering again", "error", err)
			if time.Since(began) > registerDelay.last {
				registerDelay.reset()
			}
			every = 0
			registerDelay.wait(ctx)
			continue
		}
		a.log.Info("heartbeat stream ended", "error", err)
		delay.wait(ctx)
		if answered && !errors.Is(err, errSilent) && !a.hasUnconfirmed() {
			// A change ends this wait, and the next stream reports the change.
			sleep(ctx, mathrand.N(every/returnWithin+1), a.wake) //nolint:gosec // a pause is not a secret
		}
	}
	if errors.Is(context.Cause(ctx), ErrSuperseded) {
		return ErrSuperseded
	}
	return ctx.Err()
}

// refusedForGood reports whether the control plane refuses a registration because of its content
// or its sender, so that an attempt soon after it fails too.
func refusedForGood(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated:
		return true
	}
	return reasonOf(err) == fault.ReasonPoison // until an operator repairs the record
}

// refusedFor has the log lines for refused registrations.
var refusedFor = map[fault.Reason]string{
	fault.ReasonOtherAgent:       "the ID belongs to another agent, so this agent is refused until the executor is LOST; stop the wrong agent",
	fault.ReasonOtherIncarnation: ErrSuperseded.Message,
	fault.ReasonOtherCluster:     "the gateways belong to another cluster than the executor, so this agent is refused and its workers keep running; correct the addresses of the gateways",
}

// leaveForeign reports whether Run must return because the control plane belongs to another
// cluster than the directory. An agent that was registered in this process retries instead: an
// address of a gateway may lead to another cluster for a while.
func (a *Agent) leaveForeign() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.foreign = a.ledger.incarnation == 0
	return a.foreign
}

// owned reports whether the executor belonged to this agent. Either this process
// registered it, or an earlier agent left its secret and running workers in the
// directory. Any other agent waits until the executor is LOST.
func (a *Agent) owned() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.incarnation != 0 || a.keptSecret && a.ledger.live() > 0
}

// isSuperseded reports whether another agent has the ID, and whether this agent was
// registered before.
func (a *Agent) isSuperseded() (superseded, registered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.superseded, a.ledger.incarnation != 0
}

// supersede makes the agent stop its workers and end Run, because another agent has the
// ID.
func (a *Agent) supersede() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.superseded && a.leave != nil {
		a.superseded = true
		a.log.Error(ErrSuperseded.Message)
		a.leave()
	}
}

// stopAndLeave stops all workers. Then it waits until the control plane has answered a
// report about their ends, and ends Run. If no answer arrives, it waits for at most twice
// defaultEvery.
func (a *Agent) stopAndLeave(ctx context.Context, end context.CancelCauseFunc) {
	delay := pause{first: time.Second, last: 10 * time.Second}
	for a.StopWorkers(ctx) != nil {
		if ctx.Err() != nil {
			return
		}
		delay.wait(ctx) // stopWorker logged the failure
	}
	// The first answer from now on may belong to an earlier report, so it waits for two
	// answers.
	for range 2 {
		a.awaitNotice(ctx)
	}
	end(ErrSuperseded)
}

// awaitNotice sends a complete report and waits at most defaultEvery for an answer that
// says that the agent is superseded.
func (a *Agent) awaitNotice(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, defaultEvery)
	defer cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.completeDue = true
	a.notify()
	before := a.notices
	a.awaitWhile(ctx, func() bool { return a.ledger.incarnation != 0 && a.notices == before })
}

// hasUnconfirmed reports whether there is a change that no answer has confirmed.
func (a *Agent) hasUnconfirmed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.hasUnconfirmed()
}

// register registers the executor and returns the time between heartbeats.
func (a *Agent) register(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	answer, err := controlv1.NewAgentsClient(a.cfg.Conn).Register(ctx, &controlv1.RegisterRequest{
		Id: a.cfg.ID, Address: a.cfg.Address, Sku: a.cfg.SKU, Host: a.cfg.Host,
		Attributes: a.cfg.Attributes, Resources: a.cfg.Resources, Reserved: wire.Shares(a.cfg.Reserved),
		Generation: a.cfg.Generation, Nonce: a.ledger.nonce, Secret: a.secret,
		Kind: wire.ExecutorKind(a.cfg.Cell != nil), NeedsCommand: needsCommand(a.cfg.Driver),
		AllowLists: allowLists(a.cfg.Driver),
		Cluster:    a.ownCluster(),
	}, grpc.WaitForReady(true))
	if err != nil {
		return 0, err
	}
	every, err := checkRegistered(answer)
	if err != nil {
		return 0, err
	}
	a.mu.Lock()
	a.ledger.begin(answer.GetIncarnation(), answer.GetAssignerTerm())
	a.keepCluster(answer.GetCluster())
	a.offers.registered()
	a.counts.registrations++
	a.counts.failure = nil
	a.counts.cluster = answer.GetCluster()
	a.mu.Unlock()
	a.log.Info("registered", "incarnation", answer.GetIncarnation())
	return every, nil
}

// checkRegistered checks the answer to a registration and returns the time between
// heartbeats.
func checkRegistered(answer *controlv1.RegisterAnswer) (every time.Duration, err error) {
	every = cmp.Or(answer.GetHeartbeatEvery().AsDuration(), defaultEvery)
	switch {
	case answer.GetIncarnation() <= 0:
		return 0, fault.BadField(fault.ReasonInvalid, "incarnation", "must be positive, got %d", answer.GetIncarnation())
	case answer.GetAssignerTerm() < 0:
		return 0, fault.BadField(fault.ReasonInvalid, "assigner_term", "must not be negative, got %d",
			answer.GetAssignerTerm())
	case every < shortestEvery || every > longestEvery:
		return 0, fault.BadField(fault.ReasonInvalid, "heartbeat_every", "must be between %v and %v, got %v", shortestEvery,
			longestEvery, every)
	}
	return every, nil
}

// errSilent is the cause when the agent closes a stream because no answers arrive.
var errSilent = errors.New("the gateway does not answer the heartbeats")

// session runs one heartbeat stream until it breaks, until its first answer takes longer
// than patience, or until maxUnanswered heartbeats have no answer. It reports whether it
// received an answer.
func (a *Agent) session(ctx context.Context, every, patience time.Duration, isolated *time.Timer) (answered bool,
	err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(patience, func() { cancel(errSilent) })
	defer silent.Stop()
	stream, err := controlv1.NewHeartbeatsClient(a.cfg.Conn).Heartbeat(ctx, grpc.WaitForReady(true))
	if err != nil {
		return false, cmp.Or(context.Cause(ctx), err)
	}
	defer a.streamEnded()
	a.beginOffers(every)
	broken := make(chan error, 1)
	go func() {
		for {
			answer, err := stream.Recv()
			if err != nil {
				broken <- err
				return
			}
			answered = true
			silent.Reset(maxUnanswered * every)
			isolated.Reset(a.cfg.StopWhenIsolatedAfter)
			a.answered(answer)
		}
	}()
	// The first heartbeat identifies the agent.
	a.heartbeat(stream, complete, a.ledger.nonce)
	next := time.NewTimer(heartbeatDelay(time.Now(), every))
	defer next.Stop()
	for {
		select {
		case err := <-broken:
			return answered, cmp.Or(context.Cause(ctx), err)
		case <-a.wake:
			a.heartbeat(stream, changes, "")
		case <-next.C:
			a.heartbeat(stream, unconfirmed, "")
			next.Reset(heartbeatDelay(time.Now(), every))
		}
	}
}

// heartbeat sends a heartbeat with a report of the scope, or with a complete report if
// one is due, and with a list of the volumes if one is due. With scope changes it sends
// nothing if there is no change to report. It ignores errors of Send, because Recv returns
// them too. nonce is set in the first heartbeat of a stream.
func (a *Agent) heartbeat(stream controlv1.Heartbeats_HeartbeatClient, s scope, nonce string) {
	a.mu.Lock()
	if a.completeDue {
		s, a.completeDue = complete, false
	}
	if nonce != "" {
		// The list is sent even if it is empty and the agent never had a volume: only a list shows
		// that a volume is lost, and an agent whose disk was wiped does not know that it had any.
		a.ledger.volumesDue = true
	}
	req := &controlv1.HeartbeatRequest{Id: a.cfg.ID, Incarnation: a.ledger.incarnation, Nonce: nonce,
		Report: a.ledger.report(s), Volumes: a.ledger.listVolumes()}
	if req.Report != nil {
		req.Report.Sent = timestamppb.New(a.cfg.now())
	}
	a.addAnswers(req)
	a.mu.Unlock()
	if req.Report != nil || req.Volumes != nil || req.Answers != nil || req.Freed || s != changes {
		_ = stream.Send(req)
	}
}

// answered processes the answer to a heartbeat without trusting it. The answer can only
// raise the term that the agent knows. The agent forgets an acknowledged end only if the
// worker has ended on this host.
func (a *Agent) answered(answer *controlv1.HeartbeatAnswer) {
	if answer.GetSuperseded() {
		a.supersede()
	}
	a.mu.Lock()
	a.answering()
	if answer.GetSuperseded() {
		a.notices++
		a.broadcast()
	}
	a.ledger.raise(answer.GetAssignerTerm())
	if a.ledger.listReceived(answer.GetVolumesSequence()); a.ledger.volumesDue {
		a.notify()
	}
	if answer.GetEverything() {
		a.completeDue = true
		a.notify()
	}
	var forgotten []*worker
	acknowledged := a.ledger.answered(answer.GetReport())
	a.keepAcknowledged(acknowledged)
	for _, id := range acknowledged {
		if w := a.workers[id]; w != nil {
			forgotten = append(forgotten, w)
			delete(a.workers, id)
		}
	}
	if len(acknowledged) > 0 {
		a.broadcast()
	}
	a.mu.Unlock()
	for _, w := range forgotten {
		w.handle.Forget()
	}
	if answer.GetOffers() != nil && a.cfg.Cell != nil {
		a.offered(answer.GetOffers())
	}
}

// mustRegister reports whether the error says that the executor is unknown, or has
// another incarnation or another agent.
func mustRegister(err error) bool {
	reason := reasonOf(err)
	return reason == fault.ReasonOtherIncarnation || reason == fault.ReasonOtherAgent || reason == fault.ReasonNotFound ||
		status.Code(err) == codes.NotFound
}

// reasonOf returns the reason in an error of a call, or "".
func reasonOf(err error) fault.Reason {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return fault.Reason(info.GetReason())
		}
	}
	return ""
}

// newNonce returns a random value that distinguishes this process of an agent from every
// other process.
func newNonce() string { return rand.Text() }

// heartbeatDelay returns the time from now to the next heartbeat, a little less than
// every. Random jitter subtracts up to a tenth, so that agents that started together do
// not stay synchronized. Then heartbeatDelay rounds down to one of fifty instants in each
// interval, by the clock of the host. Thousands of agents then wake the gateway only
// fifty times in an interval, which uses a fraction of the processor time of thousands of
// wakeups. If the clocks of hosts differ, their heartbeats arrive separately.
func heartbeatDelay(now time.Time, every time.Duration) time.Duration {
	after := every - mathrand.N(every/10+1) //nolint:gosec // a pause is not a secret
	if instants := int64(every / 50); instants > 0 {
		after -= time.Duration(now.Add(after).UnixNano() % instants)
	}
	return after
}
