package loop_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// rig is a leading driver on a fake store with the real committer.
type rig struct {
	t      *testing.T
	fake   *store.Fake
	view   *store.View
	core   *toy
	driver *loop.Driver[*toy]
	term   int64
	// event is the etcd lease to which job events are attached.
	event     int64
	grant     error // the answer to a request for an etcd lease
	confirmed int
	deposed   bool
	token     uint64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, fake: store.NewFake(store.FakeConfig{}), core: newToy()}
	leader, err := wire.Encode(&model.Leader{Service: service, Replica: "a"})
	if err != nil {
		t.Fatal(err)
	}
	r.term = r.write(store.Op{Key: space.Key(model.LeaderRef(service)), Value: leader})
	r.view = store.OpenView(r.fake, space.Prefix(), space.Events())
	t.Cleanup(r.view.Close)
	r.driver = loop.NewDriver(r.core, service, space, loop.DefaultEventLimits(), time.Now)
	if err := r.driver.Follow(r.next()); err != nil {
		t.Fatal(err)
	}
	committer := store.NewCommitter(r.fake, store.CommitterConfig{
		LeaderKey: space.Key(model.LeaderRef(service)), Term: r.term,
		ChainKey: space.Key(model.Ref{Kind: model.KindChain, ID: service}),
		Wait:     func(context.Context, int) error { return nil },
	})
	if _, err := r.driver.Lead(t.Context(), loop.Leading{
		Term: r.term, Log: committer, Source: r,
		Grant:  func(context.Context, time.Duration) (int64, error) { return r.event, r.grant },
		Revoke: r.fake.Revoke,
		Confirm: func(context.Context) error {
			if r.confirmed++; r.deposed {
				return store.ErrFenced
			}
			return nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	r.core.received = nil
	return r
}

// CatchUp implements loop.Source.
func (r *rig) CatchUp(_ context.Context, revision int64) ([]store.Batch, error) {
	var batches []store.Batch
	for reached := r.driver.Revision(); reached < revision; {
		r.view.Want(revision)
		b := r.next()
		batches, reached = append(batches, b), max(reached, b.Revision)
	}
	return batches, nil
}

func (r *rig) next() store.Batch {
	b, ok := r.view.TryNext()
	if !ok {
		r.t.Fatal("the view has nothing new")
	}
	return b
}

// write writes records as another service would.
func (r *rig) write(ops ...store.Op) int64 {
	r.t.Helper()
	res, err := r.fake.Txn(context.Background(), store.Txn{Then: ops})
	if err != nil {
		r.t.Fatal(err)
	}
	return res.Revision
}

func (r *rig) shut(name string) {
	value, err := wire.Encode(&model.TaskHeader{UID: name})
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(store.Op{Key: space.Key(gate(name)), Value: value})
}

// round runs a round with the requests and returns the replies in the order in which they
// arrived.
func (r *rig) round(requests ...any) ([]model.Reply, error) {
	var events []model.Event
	for _, request := range requests {
		r.token++
		events = append(events, model.Input{Token: r.token, Request: request})
	}
	actions, err := r.driver.Round(r.t.Context(), events)
	var replies []model.Reply
	for _, a := range actions {
		if reply, ok := a.(model.Reply); ok {
			replies = append(replies, reply)
		}
	}
	return replies, err
}

func (r *rig) stored(record model.Record) bool {
	_, found, err := r.fake.Get(context.Background(), space.Key(record.Ref()))
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

func (r *rig) wantReceived(want ...string) {
	r.t.Helper()
	if !slices.Equal(r.core.received, want) {
		r.t.Errorf("the core got\n  %q, want\n  %q", r.core.received, want)
	}
	r.core.received = nil
}

func TestOneTransactionForARound(t *testing.T) {
	r := newRig(t)
	before := r.fake.Revision()
	replies, err := r.round(put{record: executor("a")}, put{record: executor("b")})
	if err != nil || len(replies) != 2 || replies[0].Value != before+1 || replies[1].Value != before+1 {
		t.Fatalf("replies %v, %v: want both of revision %d", replies, err, before+1)
	}
	r.wantReceived("put a", "put b", "committed 2")
	if r.confirmed != 0 {
		t.Error("the term was confirmed although a write proves it")
	}
}

func TestEffectsOfEffects(t *testing.T) {
	r := newRig(t)
	replies, err := r.round(put{record: executor("a"), then: executor("b")})
	if err != nil || len(replies) != 1 {
		t.Fatal(replies, err)
	}
	r.wantReceived("put a", "committed 1", "committed 1")
	if !r.stored(executor("a")) || !r.stored(executor("b")) {
		t.Error("what follows from a durable effect is not durable")
	}
}

// If a compare fails, the core receives the earlier decision of the other service and
// decides the input again.
func TestConflictIsDecidedAgain(t *testing.T) {
	r := newRig(t)
	r.shut("g")
	replies, err := r.round(put{record: executor("a")}, put{record: executor("b"), gate: "g"}, get{executor("b").Ref()})
	if err != nil {
		t.Fatal(err)
	}
	r.wantReceived("put a", "put b", "get b", "abandoned", "changed gate g", "nil", "put a", "put b", "get b",
		"committed 1")
	if len(replies) != 3 || replies[0].Value != "shut" || replies[1].Value != nil || replies[2].Token != 1 {
		t.Errorf("replies %+v", replies)
	}
	if r.stored(executor("b")) {
		t.Error("what was decided on a stale record is stored")
	}
}

// If a round becomes durable only in part, the inputs that are durable are not repeated.
func TestConflictAfterPartOfARound(t *testing.T) {
	r := newRig(t)
	large := executor("large")
	large.Host = strings.Repeat("x", 300<<10) // too large to share a transaction
	r.shut("g")
	replies, err := r.round(put{record: large}, get{large.Ref()}, put{record: executor("b"), gate: "g"})
	if err != nil {
		t.Fatal(err)
	}
	r.wantReceived("put large", "get large", "put b", "committed 1", "abandoned", "changed gate g", "nil", "put b")
	var tokens []uint64
	for _, reply := range replies {
		tokens = append(tokens, reply.Token)
	}
	slices.Sort(tokens)
	if !slices.Equal(tokens, []uint64{1, 2, 3}) {
		t.Errorf("replies to %v, want one to each", tokens)
	}
}

func TestConflictsWithoutEndEndTheTerm(t *testing.T) {
	r := newRig(t)
	r.shut("g")
	r.core.blind = true
	if _, err := r.round(put{record: executor("a"), gate: "g"}); err == nil ||
		!strings.Contains(err.Error(), "conflicts") {
		t.Errorf("error %v, want one of too many conflicts", err)
	}
}

// If the store refuses a write, only the request that caused it fails.
func TestRefusedWriteFailsItsRequestOnly(t *testing.T) {
	huge := executor("huge")
	huge.Host = strings.Repeat("x", 2<<20)
	for reason, guilty := range map[fault.Reason]model.Record{
		fault.ReasonEtcdLeaseExpired: &model.Live{ID: "gone", Incarnation: 1, EtcdLease: 999},
		fault.ReasonTooLarge:         huge,
	} {
		t.Run(string(reason), func(t *testing.T) {
			r := newRig(t)
			replies, err := r.round(put{record: executor("a")}, put{record: guilty}, put{record: executor("b")})
			if err != nil || len(replies) != 3 {
				t.Fatal(replies, err)
			}
			for _, reply := range replies {
				if (reply.Token == 2) != fault.Is(reply.Err, reason) {
					t.Errorf("reply %+v", reply)
				}
			}
			if !r.stored(executor("a")) || r.stored(guilty) || !r.stored(executor("b")) {
				t.Error("not exactly the innocent are stored")
			}
			if r.core.records[guilty.Ref()] != nil {
				t.Error("the core still believes in what was refused")
			}
		})
	}
}

// Job events depend on an etcd lease that belongs to no input. If it has expired, the term
// ends, but no request fails.
func TestExpiredEventLeaseFailsNoRequest(t *testing.T) {
	r := newRig(t)
	r.event = 999
	replies, err := r.round(put{record: executor("a"), events: 1})
	if len(replies) != 0 || err == nil {
		t.Errorf("replies %+v and %v, want no reply and the end of the term", replies, err)
	}
}

func TestFencedEndsTheTerm(t *testing.T) {
	r := newRig(t)
	r.write(store.Delete(space.Key(model.LeaderRef(service))))
	replies, err := r.round(put{record: executor("a")})
	if !errors.Is(err, store.ErrFenced) || len(replies) != 0 || r.stored(executor("a")) {
		t.Errorf("replies %v, error %v", replies, err)
	}
}

// A round without a write does not prove the term, so the driver confirms it before it
// answers.
func TestAnswerWithoutAWriteConfirmsTheTerm(t *testing.T) {
	r := newRig(t)
	if replies, err := r.round(get{executor("a").Ref()}); err != nil || len(replies) != 1 || r.confirmed != 1 {
		t.Fatalf("replies %v, error %v, confirmed %d times", replies, err, r.confirmed)
	}
	r.deposed = true
	if replies, err := r.round(get{executor("a").Ref()}); !errors.Is(err, store.ErrFenced) || len(replies) != 0 {
		t.Errorf("a deposed leader answered %v, %v", replies, err)
	}
}

// If the writes of a round show that the term has ended, the requests without a write in
// the same round get no answer either.
func TestADeposedLeaderAnswersNothing(t *testing.T) {
	r := newRig(t)
	r.write(store.Delete(space.Key(model.LeaderRef(service))))
	r.deposed = true
	replies, err := r.round(get{executor("a").Ref()}, put{record: executor("b")})
	if !errors.Is(err, store.ErrFenced) || len(replies) != 0 {
		t.Errorf("a deposed leader answered %v, %v", replies, err)
	}
}

// If a full store refuses the writes of a round, the driver confirms the term before it
// answers.
func TestAFullStoreIsNoProofOfTheTerm(t *testing.T) {
	r := newRig(t)
	r.fake.SetHook(func(_ context.Context, call store.Call) store.Outcome {
		if call.Method == store.MethodTxn && len(call.Txn.Then) > 0 {
			return store.Full()
		}
		return store.Outcome{}
	})
	if replies, err := r.round(get{executor("a").Ref()}, put{record: executor("b")}); err != nil || len(replies) != 2 ||
		r.confirmed != 1 {
		t.Fatalf("replies %v, error %v, confirmed %d times", replies, err, r.confirmed)
	}
	r.deposed = true
	if replies, err := r.round(get{executor("a").Ref()}, put{record: executor("b")}); !errors.Is(err, store.ErrFenced) ||
		len(replies) != 0 {
		t.Errorf("a deposed leader answered %v, %v", replies, err)
	}
}

// The core has already applied its own commits and does not receive them. It receives the
// changes of other services, and the deletion of keys whose etcd lease has expired.
func TestCoreDoesNotReceiveOwnCommits(t *testing.T) {
	r := newRig(t)
	lease, err := r.fake.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	live := &model.Live{ID: "live", Incarnation: 1, EtcdLease: lease.ID}
	if _, err := r.round(put{record: live}, put{record: executor("a")}); err != nil {
		t.Fatal(err)
	}
	r.shut("g")
	r.fake.Expire(lease.ID)
	r.core.received = nil
	events, err := r.driver.Events(r.next())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.driver.Round(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	r.wantReceived("changed gate g", "changed live")
	if r.core.records[live.Ref()] != nil {
		t.Error("the core holds a presence that ran out")
	}
}

func TestResetWhileLeadingEndsTheTerm(t *testing.T) {
	r := newRig(t)
	if _, err := r.driver.Events(store.Batch{Reset: true, Revision: 99}); !errors.Is(err, loop.ErrReset) {
		t.Errorf("error %v", err)
	}
}

// If a round is decided again, the changes of its view are not repeated. The core already
// knows later changes, and the old changes would undo them.
func TestOldEventsAreNotRepeated(t *testing.T) {
	r := newRig(t)
	r.shut("h")
	received, err := r.driver.Events(r.next())
	if err != nil {
		t.Fatal(err)
	}
	r.write(store.Delete(space.Key(gate("h"))))
	r.shut("g")
	events := append([]model.Event{model.Input{Token: 1, Request: put{record: executor("b"), gate: "g"}}}, received...)
	if _, err := r.driver.Round(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	if r.core.records[gate("h")] != nil || r.core.records[gate("g")] == nil {
		t.Errorf("the core believes in %v", r.core.records)
	}
}
