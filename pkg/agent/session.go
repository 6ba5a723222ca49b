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

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/wire"
)

const (
	// defaultEvery is the time between heartbeats when the control plane names
	// none: a third of the presence's time to live.
	defaultEvery = 5 * time.Second
	// The bounds of what the control plane may name: no agent floods it, and none is
	// silent for longer than any TTL of presence.
	shortestEvery, longestEvery = time.Millisecond, time.Hour
	// silentBeats is how many heartbeats may go unanswered before the stream is
	// taken for dead. A broken connection tells itself; this is for one that went
	// silent.
	silentBeats = 3
	// maxPatience bounds how often that time doubles while streams are given up
	// that were never answered: a control plane that is late is not helped by
	// thousands of agents that begin anew.
	maxPatience = 2
	// returnWithin is the part of the time between heartbeats within which an agent
	// that has nothing to tell comes back when its stream broke. A replica that ends
	// breaks the streams of very many at once, while others take over its work.
	returnWithin = 5
	// registerTimeout bounds one attempt to register.
	registerTimeout = 10 * time.Second
)

// window is how many bytes the gateway may have under way to an agent. A fixed one
// spares the gateway the pings that an estimate takes, one for each answer.
const window = 256 << 10

// DialOptions are for the connection to the gateway: after an outage it is tried
// again within milliseconds, then at least once a second. Transport credentials
// are the caller's.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 2 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
	}
}

// Run registers the executor and keeps it present until the context ends, over
// any outage of the control plane. It returns the context's error; or
// ErrSuperseded, once another agent has the ID and the workers here have ended.
func (a *Agent) Run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	var leaving sync.WaitGroup
	defer func() {
		a.mu.Lock()
		a.leave = nil
		a.mu.Unlock()
		end(nil)
		leaving.Wait()
	}()
	a.mu.Lock()
	a.leave = func() { leaving.Go(func() { a.leaveTo(ctx, end) }) }
	a.mu.Unlock()
	isolated := a.watchIsolation()
	defer isolated.Stop()
	var (
		every time.Duration
		delay = pause{first: 2 * time.Millisecond, last: time.Second}
		// again slows down an agent that keeps losing its executor, or that
		// another one of its id has followed.
		again = pause{first: 10 * time.Millisecond, last: 30 * time.Second}
		// unanswered counts the streams in a row that were given up unanswered.
		unanswered int
		// followed: it was said that another agent has the id.
		followed bool
	)
	for ctx.Err() == nil {
		if superseded, registered := a.isSuperseded(); every == 0 && superseded {
			if !registered {
				// Without an incarnation it cannot report: leaveTo ends Run once its workers
				// have ended.
				<-ctx.Done()
				continue
			}
			// What is left to tell is told as the incarnation that it had.
			every = defaultEvery
		}
		if every == 0 {
			var err error
			every, err = a.register(ctx)
			if reasonOf(err) == fault.ReasonOtherAgent {
				if a.owned() {
					a.supersede()
					continue
				}
				if !followed {
					a.log.Error("the id belongs to another agent: this one is refused until the executor is LOST; "+
						"stop the one that is not to have it", "error", err)
				}
				followed = true
				again.wait(ctx)
				continue
			}
			if reasonOf(err) == fault.ReasonOtherIncarnation {
				if !followed {
					a.log.Error("another agent has taken this id: this one takes no orders; stop one of the two, "+
						"and if this one is to stay, start it again", "error", err)
				}
				followed = true
				again.wait(ctx)
				continue
			}
			if err != nil {
				a.log.Info("not registered", "error", err)
				delay.wait(ctx)
				continue
			}
			followed = false
		}
		began := time.Now()
		answered, err := a.session(ctx, every, silentBeats*every<<min(unanswered, maxPatience), isolated)
		unanswered++
		if answered || !errors.Is(err, errSilent) {
			unanswered = 0
		}
		if answered && time.Since(began) > delay.last {
			delay.reset()
		}
		if mustRegister(err) {
			a.log.Warn("to register again", "error", err)
			if time.Since(began) > again.last {
				again.reset()
			}
			every = 0
			again.wait(ctx)
			continue
		}
		a.log.Info("heartbeat stream ended", "error", err)
		delay.wait(ctx)
		if answered && !errors.Is(err, errSilent) && !a.owesNews() {
			a.rest(ctx, mathrand.N(every/returnWithin+1)) //nolint:gosec // a pause is not a secret
		}
	}
	if errors.Is(context.Cause(ctx), ErrSuperseded) {
		return ErrSuperseded
	}
	return ctx.Err()
}

// owned reports whether the executor was this agent's: it was registered by this
// process, or by one before, which left workers and the secret. An agent of which
// neither is so waits for its turn.
func (a *Agent) owned() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.incarnation != 0 || a.keptSecret && len(a.live()) > 0
}

// isSuperseded reports whether another agent has the ID, and whether this one was
// registered before.
func (a *Agent) isSuperseded() (superseded, registered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.superseded, a.ledger.incarnation != 0
}

// supersede has the agent stop its workers and leave: another one has the ID.
func (a *Agent) supersede() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.superseded && a.leave != nil {
		a.superseded = true
		a.log.Error(ErrSuperseded.Message)
		a.leave()
	}
}

// leaveTo stops all workers and ends Run, once it was told that none is left. While
// nobody hears that, it waits no longer than for two heartbeats.
func (a *Agent) leaveTo(ctx context.Context, end context.CancelCauseFunc) {
	delay := pause{first: time.Second, last: 10 * time.Second}
	for a.StopWorkers(ctx) != nil {
		if ctx.Err() != nil {
			return
		}
		delay.wait(ctx) // the failure was logged
	}
	// The first answer from now on may be to what was told before.
	for range 2 {
		a.mu.Lock()
		before := a.notices
		a.asked = true
		a.tell()
		timeout := time.NewTimer(defaultEvery)
		for waiting := a.ledger.incarnation != 0; waiting; {
			changed := a.changed
			a.mu.Unlock()
			select {
			case <-changed:
			case <-timeout.C:
				waiting = false
			case <-ctx.Done():
				waiting = false
			}
			a.mu.Lock()
			waiting = waiting && a.notices == before
		}
		timeout.Stop()
		a.mu.Unlock()
	}
	end(ErrSuperseded)
}

// owesNews says whether something was not told, or not answered as durable.
func (a *Agent) owesNews() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.owes()
}

// rest waits for a time, or until there are news, which the next stream brings.
func (a *Agent) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.wake:
	case <-ctx.Done():
	}
}

// register makes the executor known, and answers the time between heartbeats.
func (a *Agent) register(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	answer, err := controlv1.NewAgentsClient(a.cfg.Conn).Register(ctx, &controlv1.RegisterRequest{
		Id: a.cfg.ID, Address: a.cfg.Address, Sku: a.cfg.SKU, Host: a.cfg.Host,
		Attributes: a.cfg.Attributes, Resources: a.cfg.Resources, Reserved: wire.Shares(a.cfg.Reserved),
		Generation: a.cfg.Generation, Nonce: a.nonce, Secret: a.secret,
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
	a.mu.Unlock()
	a.log.Info("registered", "incarnation", answer.GetIncarnation())
	return every, nil
}

// checkRegistered checks the answer to a registration, and answers the time between
// heartbeats.
func checkRegistered(answer *controlv1.RegisterAnswer) (every time.Duration, err error) {
	every = defaultEvery
	if answer.GetHeartbeatEvery() != nil {
		every = answer.GetHeartbeatEvery().AsDuration()
	}
	switch {
	case answer.GetIncarnation() <= 0:
		return 0, fault.BadField(fault.ReasonInvalid, "incarnation", "must be positive, got %d", answer.GetIncarnation())
	case answer.GetAssignerTerm() < 0:
		return 0, fault.BadField(fault.ReasonInvalid, "assigner_term", "must not be negative, got %d", answer.GetAssignerTerm())
	case every == 0:
		return defaultEvery, nil
	case every < shortestEvery || every > longestEvery:
		return 0, fault.BadField(fault.ReasonInvalid, "heartbeat_every", "must be between %v and %v, got %v", shortestEvery, longestEvery, every)
	}
	return every, nil
}

// errSilent ends a stream that nobody answers.
var errSilent = errors.New("the heartbeats are not answered")

// session holds one heartbeat stream until it breaks, or until its first answer
// takes longer than the patience, and says whether it was ever answered.
func (a *Agent) session(ctx context.Context, every, patience time.Duration, isolated *time.Timer) (answered bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(patience, func() { cancel(errSilent) })
	defer silent.Stop()
	stream, err := controlv1.NewHeartbeatsClient(a.cfg.Conn).Heartbeat(ctx, grpc.WaitForReady(true))
	if err != nil {
		return false, cmp.Or(context.Cause(ctx), err)
	}
	broken := make(chan error, 1)
	go func() {
		for {
			answer, err := stream.Recv()
			if err != nil {
				broken <- err
				return
			}
			answered = true
			silent.Reset(silentBeats * every)
			if a.cfg.StopWhenIsolatedAfter > 0 {
				isolated.Reset(a.cfg.StopWhenIsolatedAfter)
			}
			a.answered(answer)
		}
	}()
	a.hello(stream)
	beat := time.NewTimer(nextBeat(time.Now(), every))
	defer beat.Stop()
	for {
		select {
		case err := <-broken:
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return answered, err
		case <-a.wake:
			a.beat(stream, news)
		case <-beat.C:
			a.beat(stream, untold)
			beat.Reset(nextBeat(time.Now(), every))
		}
	}
}

// hello sends the first heartbeat of a stream, which says who the agent is, and
// everything.
func (a *Agent) hello(stream controlv1.Heartbeats_HeartbeatClient) {
	a.mu.Lock()
	a.asked = false
	req := &controlv1.HeartbeatRequest{Id: a.cfg.ID, Incarnation: a.ledger.incarnation, Nonce: a.nonce, Report: a.ledger.report(everything)}
	a.mu.Unlock()
	_ = stream.Send(req) // a failure shows at the receiving end
}

// beat sends a heartbeat, unless it would only bring news and there are none; the
// next one after everything was asked for brings that. A failure shows at the receiving end of the stream.
func (a *Agent) beat(stream controlv1.Heartbeats_HeartbeatClient, s scope) {
	a.mu.Lock()
	if a.asked {
		s, a.asked = everything, false
	}
	req := &controlv1.HeartbeatRequest{Id: a.cfg.ID, Incarnation: a.ledger.incarnation, Report: a.ledger.report(s)}
	a.mu.Unlock()
	if req.Report != nil || s != news {
		_ = stream.Send(req)
	}
}

// answered takes in the answer to a heartbeat. All of it is read as if anybody had
// sent it: a term never lowers what is known, and an end that is acknowledged is
// forgotten only where the worker has ended here.
func (a *Agent) answered(answer *controlv1.HeartbeatAnswer) {
	if answer.GetSuperseded() {
		a.supersede()
	}
	a.mu.Lock()
	if answer.GetSuperseded() {
		a.notices++
		close(a.changed) // not tell: that is no news to report
		a.changed = make(chan struct{})
	}
	a.ledger.raise(answer.GetAssignerTerm())
	if answer.GetEverything() {
		a.asked = true
		a.tell()
	}
	var forgotten []*worker
	for _, id := range a.ledger.answered(answer.GetReport()) {
		if w := a.workers[id]; w != nil {
			forgotten = append(forgotten, w)
			delete(a.workers, id)
		}
	}
	a.mu.Unlock()
	for _, w := range forgotten {
		w.handle.Forget()
	}
}

// watchIsolation stops the workers when the control plane is silent for too
// long, if so configured. The timer is put off by each answer.
func (a *Agent) watchIsolation() *time.Timer {
	after := a.cfg.StopWhenIsolatedAfter
	if after <= 0 {
		timer := time.NewTimer(time.Hour)
		timer.Stop()
		return timer
	}
	return time.AfterFunc(after, func() {
		a.log.Warn("isolated: the workers are stopped", "after", after)
		_ = a.stopAll() // each failure was logged
	})
}

// mustRegister says whether the control plane knows another incarnation or agent, or
// no such executor.
func mustRegister(err error) bool {
	reason := reasonOf(err)
	return reason == fault.ReasonOtherIncarnation || reason == fault.ReasonOtherAgent || reason == fault.ReasonNotFound || status.Code(err) == codes.NotFound
}

// reasonOf answers the reason that a refusal names, empty without one.
func reasonOf(err error) fault.Reason {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return fault.Reason(info.GetReason())
		}
	}
	return ""
}

// newNonce tells this start of an agent from every other.
func newNonce() string { return rand.Text() }

// nextBeat is how long after now the next heartbeat is sent: a little less than
// every. Up to a tenth is left off, so that agents which started together do not
// beat together for good. And it is sent at one of the fifty instants that the
// clocks of all hosts divide that time into: a gateway that wakes fifty times for
// the heartbeats of thousands takes a part of the processor time that it would wake
// thousands of times with. Where clocks differ, they come one by one.
func nextBeat(now time.Time, every time.Duration) time.Duration {
	after := every - mathrand.N(every/10+1) //nolint:gosec // a pause is not a secret
	if instants := int64(every / 50); instants > 0 {
		after -= time.Duration(now.Add(after).UnixNano() % instants)
	}
	return after
}
