package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"

	"berth.dev/api/fault"
	"berth.dev/pkg/leader"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// replica is a node of any service.
type replica interface {
	turn()
	crash()
	// ask hands a request to the node. The node calls answer once. If the node crashes
	// before, or handles the request after its deadline, it never calls answer. A node
	// that does not lead answers NOT_LEADER immediately.
	ask(request any, until time.Time, answer func(any, error))
	leads() bool
	// behind, asked and due report what the node has to do. A blind round does not read
	// the view. An interleaving chooses whether a round is blind.
	behind() bool
	asked() bool
	due() time.Time
	round(onOldView bool)
	renew()
	// serves returns the handlers of its shell.
	serves() endpoint
	// down ends the process until up starts it again.
	down()
	up()
}

// node is one replica. It has the real driver and core and its own view. Its election is
// simplified, because the real election needs clocks and goroutines.
type node[C model.Core] struct {
	w        *World
	name     string
	service  string
	core     func() C
	perform  func(n term, core C, action model.Action)
	endpoint endpoint

	downUntil time.Time
	driver    *loop.Driver[C]
	view      *store.View
	lease     int64
	renewed   time.Time
	// term is set while the node believes that it leads.
	term    int64
	won     int64 // the term that the node has won but whose revision its view has not reached
	born    int   // counts processes, so that events for an earlier process are dropped
	waiting map[uint64]func(any, error)
	token   uint64
	inbox   []item
}

// item is a request that waits for a node, with an optional deadline.
type item struct {
	model.Event
	until time.Time
}

// term is one term of one process of a node. perform uses it to post the outcomes of calls.
type term struct {
	number int64
	post   func(event model.Event)
	lives  func() bool
}

func newNode[C model.Core](w *World, service string, i int, core func() C, perform func(term, C, model.Action),
	serve func(grpc.ServiceRegistrar, loop.Owner[C])) *node[C] {
	n := &node[C]{w: w, name: fmt.Sprintf("%s-%d", service, i), service: service, core: core, perform: perform,
		endpoint: endpoint{}}
	serve(n.endpoint, n)
	n.start()
	return n
}

func (n *node[C]) start() {
	n.born++
	n.driver = loop.NewDriver(n.core(), n.service, n.w.space, loop.DefaultEventLimits(),
		func() time.Time { return n.w.now })
	if n.view != nil {
		n.view.Close()
	}
	n.view = store.OpenView(n.w.store, n.w.space.Prefix(), n.w.space.Events())
	n.term, n.won, n.lease, n.inbox, n.waiting = 0, 0, 0, nil, map[uint64]func(any, error){}
}

// crash ends the process. The process restarts some time later.
func (n *node[C]) crash() {
	n.w.logf("%s: crashes (term %d)", n.name, n.term)
	n.start()
	n.downUntil = n.w.now.Add(time.Duration(n.w.rng.IntN(2*int(n.w.pause.Milliseconds()))) * time.Millisecond)
}

// never is longer than any run.
const never = 1000 * time.Hour

func (n *node[C]) down() {
	n.w.logf("%s: is stopped (term %d)", n.name, n.term)
	n.start()
	n.downUntil = n.w.now.Add(never)
}

func (n *node[C]) up() { n.downUntil = n.w.now }

func (n *node[C]) serves() endpoint { return n.endpoint }

func (n *node[C]) leads() bool { return n.term != 0 && !n.w.now.Before(n.downUntil) }

func (n *node[C]) ask(request any, until time.Time, answer func(any, error)) {
	if !n.leads() {
		answer(nil, fault.New(fault.Precondition, fault.ReasonNotLeader, "%s does not lead", n.name))
		return
	}
	first, err := loop.CheckClaims(request, n.driver.Revision(), func(service string) int64 {
		_, term := n.driver.Leader(service)
		return term
	}, n.w.readLeader)
	if err != nil {
		answer(nil, err)
		return
	}
	if first != nil {
		n.inbox = append(n.inbox, item{Event: first})
	}
	n.token++
	came, term, deposed := n.w.store.Revision(), n.term, !n.w.leads(n.key(), n.term)
	n.waiting[n.token] = func(value any, err error) {
		n.w.checkFull(request, came, err)
		if deposed && !fault.Is(err, fault.ReasonUnavailable) {
			n.w.fail("%s answers a %T in term %d, which ended before the request: %v", n.name, request, term, err)
		}
		answer(value, err)
	}
	n.inbox = append(n.inbox, item{model.Input{Token: n.token, Request: request}, until})
}

// turn runs one round of the node's loop.
func (n *node[C]) turn() { n.round(false) }

// behind reports whether the store has revisions after the node's view.
func (n *node[C]) behind() bool { return n.driver.Revision() < n.w.store.Revision() }

// asked reports whether the node leads and has a request or a deadline to handle.
func (n *node[C]) asked() bool {
	d := n.due()
	return n.leads() && (len(n.inbox) > 0 || !d.IsZero() && !d.After(n.w.now))
}

// retries reports whether the node retries a write that a full store refused. Until then it handles no
// deadline of its core.
func (n *node[C]) retries() bool { return !n.driver.NextDeadline().Equal(n.driver.Core.NextDeadline()) }

// due returns the next deadline of the core, or zero if the node does not lead or has no
// deadline.
func (n *node[C]) due() time.Time {
	if !n.leads() {
		return time.Time{}
	}
	return n.driver.NextDeadline()
}

// round runs a round. On an old view it does not read new revisions.
func (n *node[C]) round(onOldView bool) {
	if n.w.now.Before(n.downUntil) {
		return
	}
	if n.term == 0 {
		n.follow()
		return
	}
	n.renew()
	if _, leads := n.driver.Leader(n.service); n.w.faultsStopped && leads != n.term && !n.behind() {
		// A real leader watches its key. Faults may delay that watch for any time.
		n.end(leader.ErrDeposed)
		return
	}
	n.inbox = slices.DeleteFunc(n.inbox, func(it item) bool { return !it.until.IsZero() && !n.w.now.Before(it.until) })
	if n.asked() {
		n.sendWithRogue()
	}
	var events []model.Event
	for !onOldView && (n.w.faultsStopped || n.w.rng.IntN(4) > 0) { // the view may lag
		b, ok := n.view.TryNext()
		if !ok {
			break
		}
		next, err := n.driver.Events(b)
		if err != nil {
			n.end(err)
			return
		}
		events = append(events, next...)
	}
	for _, it := range n.inbox {
		events = append(events, it.Event)
	}
	n.inbox = nil
	if d := n.driver.NextDeadline(); !d.IsZero() && !d.After(n.w.now) {
		events = append(events, nil)
	}
	if len(events) == 0 {
		return
	}
	actions, err := n.driver.Round(context.Background(), events)
	n.carryOut(actions)
	if err != nil {
		n.end(err)
	}
}

// end ends the term and restarts the core.
func (n *node[C]) end(err error) {
	n.w.logf("%s: term %d ends: %v", n.name, n.term, err)
	waiting, lease := n.waiting, n.lease
	n.start()
	if lease != 0 {
		n.w.store.Revoke(context.Background(), lease) //nolint:errcheck // after an error the lease expires
	}
	for token := uint64(1); token <= n.token; token++ {
		if answer, ok := waiting[token]; ok {
			answer(nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "leadership ended"))
		}
	}
}

func (n *node[C]) carryOut(actions []model.Action) {
	for _, action := range actions {
		if reply, ok := action.(model.Reply); ok {
			if answer, ok := n.waiting[reply.Token]; ok {
				delete(n.waiting, reply.Token)
				answer(reply.Value, reply.Err)
			}
			continue
		}
		born := n.born
		number := n.term
		lives := func() bool { return n.born == born && n.term == number }
		n.perform(term{number: number, lives: lives, post: func(event model.Event) {
			if lives() {
				n.inbox = append(n.inbox, item{Event: event})
			}
		}}, n.driver.Core, action)
	}
}

// follow is a standby's round: it follows the view and tries to become the leader.
func (n *node[C]) follow() {
	for n.w.faultsStopped || n.w.rng.IntN(4) > 0 {
		b, ok := n.view.TryNext()
		if !ok {
			break
		}
		if b.Reset && n.driver.Revision() > 0 {
			n.driver = loop.NewDriver(n.core(), n.service, n.w.space, loop.DefaultEventLimits(),
				func() time.Time { return n.w.now })
		}
		if err := n.driver.Follow(b); err != nil {
			n.w.fail("%s: %v", n.name, err)
			return
		}
	}
	if n.driver.Revision() == 0 {
		return
	}
	if n.won == 0 {
		n.campaign()
	}
	if n.won != 0 && n.driver.CaughtUp(n.won) {
		n.lead()
	}
}

func (n *node[C]) key() string { return n.w.space.Key(model.LeaderRef(n.service)) }

func (n *node[C]) campaign() {
	// A current view has the same answer as the store and costs less.
	if leader, _ := n.driver.Leader(n.service); leader != nil && leader.Replica != n.name && !n.behind() {
		return
	}
	ctx := context.Background()
	if kv, ok, _ := n.w.store.Get(ctx, n.key()); ok {
		// If the answer to the winning transaction was lost, the key shows that the node
		// has won.
		if kv.Lease == n.lease && n.lease != 0 {
			n.won = kv.Create
		}
		return
	}
	if n.lease == 0 || n.w.now.Sub(n.renewed) > leaderTTL/2 {
		lease, err := n.w.store.Grant(ctx, leaderTTL)
		if err != nil {
			return
		}
		n.lease, n.renewed = lease.ID, n.w.now
	}
	value, err := wire.Encode(&model.Leader{Service: n.service, Replica: n.name, Address: n.name, Since: n.w.now})
	if err != nil {
		n.w.fail("%v", err)
		return
	}
	result, err := n.w.store.Txn(ctx, store.Txn{
		If: []store.Compare{store.Absent(n.key())}, Then: []store.Op{{Key: n.key(), Value: value, Lease: n.lease}},
	})
	if err == nil && result.Succeeded {
		n.won = result.Revision
	}
}

func (n *node[C]) lead() {
	n.term = n.won
	n.w.logf("%s: leads, term %d", n.name, n.term)
	n.checkWin()
	committer := store.NewCommitter(n.w.store, store.CommitterConfig{
		LeaderKey: n.key(), Term: n.term, ChainKey: n.w.space.Key(model.Ref{Kind: model.KindChain, ID: n.service}),
		Chain: n.driver.Chain(),
		Wait: func(context.Context, int) error {
			if n.w.fault(25) {
				return errors.New("the process resigns")
			}
			if n.w.isFull() {
				n.w.pass(100 * time.Millisecond) // the outcome is unknown until the store has space
			}
			return nil
		},
	})
	actions, err := n.driver.Lead(context.Background(), loop.Leading{
		Term: n.term, Log: committer, Source: n, Confirm: n.confirm,
		Grant: n.w.grant, Revoke: n.w.store.Revoke,
	})
	n.carryOut(actions)
	if err != nil {
		n.end(err)
	}
}

// checkWin checks that a new leader knows the last writes of the previous leader. It
// checks nothing if the new leader is already deposed.
func (n *node[C]) checkWin() {
	ctx := context.Background()
	key, _, _ := n.w.store.Get(ctx, n.key())
	chain, _, err := n.w.store.Get(ctx, n.w.space.Key(model.Ref{Kind: model.KindChain, ID: n.service}))
	if err == nil && key.Create == n.term && !bytes.Equal(chain.Value, n.driver.Chain()) {
		n.w.fail("%s serves in term %d without the last writes of the previous leader", n.name, n.term)
	}
}

// CatchUp implements loop.Source.
func (n *node[C]) CatchUp(_ context.Context, revision int64) ([]store.Batch, error) {
	var batches []store.Batch
	for reached := n.driver.Revision(); reached < revision; {
		n.view.Want(revision)
		b, ok := n.view.TryNext()
		if !ok {
			return nil, fmt.Errorf("the view is at %d, want %d", reached, revision)
		}
		reached = max(reached, b.Revision)
		batches = append(batches, b)
	}
	return batches, nil
}

// confirm implements loop.Leading.
func (n *node[C]) confirm(ctx context.Context) error {
	if kv, ok, _ := n.w.store.Get(ctx, n.key()); !ok || kv.Create != n.term {
		return store.ErrFenced
	}
	return nil
}

// renew renews the etcd lease. A node that has no round for a long time does not detect
// that its lease has expired, and continues. Only the fence then rejects its writes.
func (n *node[C]) renew() {
	if n.w.now.Sub(n.renewed) < leaderTTL/6 || n.w.fault(3) {
		return
	}
	if _, err := n.w.store.KeepAlive(context.Background(), n.lease); err == nil {
		n.renewed = n.w.now
	}
}

// readLeader implements loop.ReadLeader.
func (w *World) readLeader(service string) (term, revision int64, err error) {
	kv, _, err := w.store.Get(context.Background(), w.space.Key(model.LeaderRef(service)))
	return kv.Create, w.store.Revision(), err
}

// leaderTerm returns the term of a service's leader, or zero if there is no leader.
func (w *World) leaderTerm(service string) int64 {
	kv, present, err := w.store.Get(context.Background(), w.space.Key(model.LeaderRef(service)))
	if err != nil || !present {
		return 0
	}
	return kv.Create
}

// evict deletes the leader's key of a service.
func (w *World) evict(service string) {
	w.store.Txn(context.Background(), store.Txn{Then: []store.Op{store.Delete(w.space.Key(model.LeaderRef(service)))}}) //nolint:errcheck // the call may be lost
}

// call sends a request to the leader of a service until the outcome is definite or the
// caller ends.
func (w *World) call(what, service string, lives func() bool, request any, done func(any, error)) {
	w.callUntil(what, service, time.Time{}, lives, request, done)
}

// callUntil does the same as call, with a deadline for all copies of the call. If the
// deadline is zero and the registry's memory is short, each attempt has its own deadline.
func (w *World) callUntil(what, service string, deadline time.Time, lives func() bool, request any,
	done func(any, error)) {
	answered := false
	var attempt func()
	attempt = func() {
		if answered || !lives() {
			return
		}
		until := deadline
		if until.IsZero() && w.retention > 0 {
			until = w.now.Add(w.retention)
		}
		arrive := func() {
			leader := w.leader(service)
			if leader == nil {
				return
			}
			leader.ask(request, until, func(value any, err error) {
				w.send("answer to "+what, func() {
					if answered || !lives() {
						return
					}
					if err != nil {
						if f := fault.Of(err); f.Kind == fault.Unavailable || f.Reason == fault.ReasonNotLeader {
							return
						}
					}
					answered = true
					done(value, err)
				})
			})
		}
		w.send(what, arrive)
		if w.fault(12) {
			// A call that may be repeated may also arrive twice, because the gateway
			// repeats it. Start and stop requests are sent once, over one connection.
			w.releaseLateMessages(what, 2*time.Second, arrive)
		}
		w.later(500*time.Millisecond, attempt)
	}
	attempt()
}

// timer is the description of the messages that later sends.
const timer = "timer"

// later calls fn after a while. Unlike other messages, this message is never lost.
func (w *World) later(d time.Duration, fn func()) {
	w.sequence++
	w.network = append(w.network, &message{at: w.now.Add(d), seq: w.sequence, what: timer, deliver: fn})
}

// leader returns a random node of those that believe that they lead, or nil if there is
// none.
func (w *World) leader(service string) replica {
	var leading []replica
	for _, r := range w.replicas[service] {
		if r.leads() {
			leading = append(leading, r)
		}
	}
	if len(leading) == 0 {
		return nil
	}
	return leading[w.rng.IntN(len(leading))]
}
