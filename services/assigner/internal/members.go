package internal

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/dispatch"
)

// The limits of listing the members of gangs.
const (
	// maxWaiting is the maximum number of calls that wait for a change. Each takes at most 25 KiB.
	maxWaiting = 50_000
	// memberRate is the maximum number of members in the answers of calls that have waited, in
	// a second. One change of a large gang wakes a call of each of its executors.
	memberRate = 2 << 20
	// answerWithin is how long before the deadline of its caller a call ends its wait, at most a
	// fifth of the time to the deadline.
	answerWithin = time.Second
)

// Members lists the members of gangs.
type Members struct {
	loop loop.Owner[*dispatch.Core]
	// watches is nil if calls never wait.
	watches *watches
	rate    *rate.Limiter
}

// NewMembers returns the lists of members of the core that the loop owns. If agents is nil,
// calls never wait for a change.
func NewMembers(l loop.Owner[*dispatch.Core], agents *Sender) *Members {
	m := &Members{loop: l, rate: rate.NewLimiter(memberRate, memberRate)}
	if agents != nil {
		m.watches = &agents.watches
	}
	return m
}

// list returns a page of the members that a request selects. If the request has the cursor
// of the list, list waits for a change. may, if set, returns an error if the caller may not
// list the members.
func (m *Members) list(ctx context.Context, req *berthv1.ListMembersRequest,
	may func(*dispatch.Core, model.Key) error) (*berthv1.ListMembersAnswer, error) {
	key, after, err := wire.CheckListMembers(req)
	if err != nil {
		return nil, err
	}
	wait := waitOf(ctx, req)
	r := &listing{Members: m, key: key, cursor: req.GetCursor(), own: req.GetOwn(), may: may}
	err = r.read(ctx, false)
	if err == nil && r.members.Cursor == r.cursor && wait > 0 && after < 0 && m.watches != nil {
		err = r.wait(ctx, wait)
	}
	if err != nil {
		return nil, err
	}
	return r.page(after, int(cmp.Or(req.GetPageSize(), wire.MaxMembersPage))), nil
}

// waitOf returns the maximum time that a call waits: it ends before the deadline of its
// caller, so that the caller gets the answer.
func waitOf(ctx context.Context, req *berthv1.ListMembersRequest) time.Duration {
	seconds := int32(wire.MaxMembersWait)
	if req.WaitSeconds != nil {
		seconds = req.GetWaitSeconds()
	}
	wait := time.Duration(seconds) * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		wait = min(wait, left-min(answerWithin, left/5))
	}
	return wait
}

// listing is one call of list.
type listing struct {
	*Members
	key    model.Key
	cursor string
	own    bool
	may    func(*dispatch.Core, model.Key) error

	members  *model.Members
	revision int64
}

// read reads the members. If watch is set and they are those of the cursor, the core reports
// the next change.
func (l *listing) read(ctx context.Context, watch bool) error {
	// The core is read after the revision, so the list is never older than the revision.
	l.revision = l.loop.Status().Revision
	var denied error
	err := l.loop.Read(ctx, false, func(c *dispatch.Core) {
		if l.may != nil {
			if denied = l.may(c, l.key); denied != nil {
				return
			}
		}
		if l.members = c.Members(l.key); !l.own {
			l.members = c.GangMembers(l.key)
		}
		if watch && l.members.Cursor == l.cursor {
			c.Watch(l.key, l.watches.waits)
		}
	})
	return cmp.Or(err, denied)
}

// set sets the members of a gang of the parent.
func (m *Members) set(ctx context.Context, req *berthv1.SetMembersRequest) (*berthv1.SetMembersAnswer, error) {
	key, members, err := wire.CheckSetMembers(req)
	if err != nil {
		return nil, err
	}
	var known bool
	var refused error
	if err := m.loop.Read(ctx, true, func(c *dispatch.Core) {
		known, refused = c.SetMembers(key, req.GetVersion(), members)
	}); err != nil {
		return nil, err
	}
	if refused == nil && members != nil && m.watches != nil {
		m.watches.wake(key)
	}
	return &berthv1.SetMembersAnswer{Known: known}, refused
}

// wait reads the members until they differ from those of the cursor, at most for a time.
func (l *listing) wait(ctx context.Context, most time.Duration) error {
	if !l.watches.enter(l.key) {
		return fault.New(fault.Unavailable, fault.ReasonOverloaded,
			"%d calls wait for the members of gangs, the maximum: repeat the call later", maxWaiting)
	}
	defer l.watches.leave(l.key)
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		// Taken before the read, so that no change between the read and the wait is missed.
		ended, changed := l.loop.Status().Ended, l.watches.changed(l.key)
		if err := l.read(ctx, true); err != nil || l.members.Cursor != l.cursor {
			return err
		}
		var pause <-chan time.Time
		for changed != nil || pause != nil {
			select {
			case <-changed:
				changed = nil
				pause = time.After(l.rate.ReserveN(time.Now(), max(1, len(l.members.List))).Delay())
			case <-pause:
				pause = nil
			case <-timer.C:
				return nil
			case <-ended:
				return fault.New(fault.Precondition, fault.ReasonNotLeader, "the leadership ended while the call waited")
			case <-ctx.Done():
				return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the call ended while it waited").Because(ctx.Err())
			}
		}
	}
}

// page returns the members after an index, at most limit of them.
func (l *listing) page(after int32, limit int) *berthv1.ListMembersAnswer {
	answer := &berthv1.ListMembersAnswer{Revision: l.revision, Cursor: l.members.Cursor, Workers: int32(l.members.Workers)}
	from, _ := slices.BinarySearchFunc(l.members.List, after+1, func(m model.Member, index int32) int {
		return cmp.Compare(m.ID.Index, index)
	})
	list := l.members.List[from:]
	if len(list) > limit {
		list = list[:limit]
		answer.NextPageToken = strconv.Itoa(int(list[limit-1].ID.Index))
	}
	if after < 0 {
		answer.Waiting, answer.Ended = wire.IndexRanges(l.members.Waiting), wire.IndexRanges(l.members.Ended)
		answer.GaveUp = wire.IndexRanges(l.members.GaveUp)
	}
	answer.Members = make([]*berthv1.Member, len(list))
	for i, m := range list {
		answer.Members[i] = &berthv1.Member{Index: m.ID.Index, Number: m.ID.Number, Executor: m.Executor, Host: m.Host}
	}
	return answer
}

// Gangs serves control.v1.Gangs.
type Gangs struct {
	controlv1.UnimplementedGangsServer
	members *Members
}

// NewGangs returns a service that lists members.
func NewGangs(m *Members) *Gangs { return &Gangs{members: m} }

// ListMembers implements control.v1.Gangs.
func (s *Gangs) ListMembers(ctx context.Context, req *controlv1.GangMembersRequest) (*berthv1.ListMembersAnswer,
	error) {
	if req.GetId() == "" {
		return nil, fault.BadField(fault.ReasonRequired, "id", "is required")
	}
	return s.members.list(ctx, req.GetRequest(), func(c *dispatch.Core, key model.Key) error {
		if members := c.GangMembers(key); len(members.List) == 0 && members.Workers > wire.MaxGang {
			return fault.New(fault.Precondition, fault.ReasonUnsupported, "gangs of more than %d workers have no members", wire.MaxGang)
		}
		return c.MayListMembers(req.GetId(), req.GetIncarnation(), dispatch.Nonce(req.GetNonce()), key)
	})
}

// watches has the calls that wait for a change of the members of a reservation. Its zero
// value is ready to use.
type watches struct {
	mu     sync.Mutex
	calls  int
	byKeys map[model.Key]*watch
}

type watch struct {
	calls   int
	changed chan struct{} // closed at the next change
}

// enter adds a call. It returns false if there are too many.
func (w *watches) enter(key model.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == maxWaiting {
		return false
	}
	if w.byKeys == nil {
		w.byKeys = map[model.Key]*watch{}
	}
	if w.byKeys[key] == nil {
		w.byKeys[key] = &watch{changed: make(chan struct{})}
	}
	w.calls++
	w.byKeys[key].calls++
	return true
}

// leave removes a call.
func (w *watches) leave(key model.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls--
	if w.byKeys[key].calls--; w.byKeys[key].calls == 0 {
		delete(w.byKeys, key)
	}
}

// changed returns a channel that is closed at the next change. The caller must have entered.
func (w *watches) changed(key model.Key) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byKeys[key].changed
}

// waits reports whether a call waits for a change.
func (w *watches) waits(key model.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byKeys[key] != nil
}

// wake wakes the calls that wait for a change.
func (w *watches) wake(key model.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.byKeys[key]; one != nil {
		close(one.changed)
		one.changed = make(chan struct{})
	}
}
