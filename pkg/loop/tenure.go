package loop

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/leader"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// tenure is the life of one core, from an empty view to the end of a term.
type tenure[C model.Core] struct {
	l       *Loop[C]
	driver  *Driver[C]
	view    *store.View
	batches chan store.Batch

	leadership *leader.Leadership
	term       *Term
	waiting    map[uint64]item[C] // requests without an answer, by token
	lastToken  uint64
	reads      []item[C] // reads of the current round
	resigning  []item[C] // requests to end the term
	background sync.WaitGroup
}

func newTenure[C model.Core](l *Loop[C]) *tenure[C] {
	return &tenure[C]{
		l:       l,
		driver:  l.newDriver(),
		batches: make(chan store.Batch, 64),
		waiting: map[uint64]item[C]{},
	}
}

func (l *Loop[C]) newDriver() *Driver[C] {
	d := NewDriver(l.cfg.New(), l.cfg.Service, l.cfg.Space, l.cfg.Events, time.Now)
	d.Guard(Guard{Replica: l.cfg.Replica, Version: l.cfg.Version, Unstored: l.unstored})
	d.progress = l.progress
	return d
}

// run follows the view, campaigns once the view is complete, and serves one term.
func (t *tenure[C]) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	t.view = store.OpenView(t.l.cfg.Store, t.l.cfg.Space.Prefix(), t.l.cfg.Space.Events())
	defer t.view.Close() // must come last: pull would open a closed view again
	defer t.background.Wait()
	defer stop(nil)

	t.background.Go(func() { stop(t.pull(ctx)) })
	won := make(chan *leader.Leadership)
	campaign := func() {
		t.background.Go(func() {
			if err := t.campaign(ctx, won); err != nil {
				stop(err)
			}
		})
	}
	for {
		t.publish(false)
		t.l.idle()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case b := <-t.batches:
			t.l.progress()
			first := t.driver.Revision() == 0
			if err := t.follow(ctx, b); err != nil {
				return err
			}
			if first {
				campaign() // only now, because a replica without a snapshot cannot serve
			}
		case it := <-t.l.inbox:
			t.l.progress()
			if it.anywhere && t.driver.Revision() > 0 {
				it.view(t.driver.Core)
				continue
			}
			it.answer(nil, t.notLeader())
		case t.leadership = <-won:
			err := t.lead(ctx)
			if !t.driver.leads && errors.Is(err, context.Canceled) && ctx.Err() == nil {
				// The core has not learned of the term, so the core is still valid. To read the whole
				// store again would only add load to a slow etcd.
				t.l.cfg.Log.Warn("the term ended before it began", "term", t.leadership.Term(), "error", t.leadership.Err())
				t.leadership, t.resigning = nil, nil
				campaign()
				continue
			}
			return err
		}
	}
}

// pull moves batches from the view to the loop until ctx ends.
func (t *tenure[C]) pull(ctx context.Context) error {
	for {
		b, err := t.view.Next(ctx)
		if err != nil {
			return err
		}
		select {
		case t.batches <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// campaign waits until this replica wins and sends the leadership to won. If the tenure
// ends first, it resigns.
func (t *tenure[C]) campaign(ctx context.Context, won chan<- *leader.Leadership) error {
	leadership, err := t.l.cfg.Election.Campaign(ctx)
	if err != nil {
		return err
	}
	select {
	case won <- leadership:
		return nil
	case <-ctx.Done():
		resign(leadership)
		return ctx.Err()
	}
}

func resign(leadership *leader.Leadership) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = leadership.Resign(ctx) // if this fails, the etcd lease expires
}

// follow passes a batch to a core that does not lead yet.
func (t *tenure[C]) follow(ctx context.Context, b store.Batch) error {
	if b.Reset && t.driver.Revision() > 0 {
		t.driver = t.l.newDriver()
	}
	if err := t.driver.Follow(b); err != nil || !b.Reset {
		return err
	}
	t.l.followedOnce.Do(func() { close(t.l.followed) })
	events := t.driver.EventIndex()
	t.background.Go(func() {
		for n := 1; events.Count(ctx, t.l.cfg.Store) != nil && store.Sleep(ctx, store.Backoff(n)) == nil; n++ {
		}
	})
	return nil
}

func (t *tenure[C]) notLeader() error {
	err := fault.New(fault.Precondition, fault.ReasonNotLeader, "this replica of %s does not lead", t.l.cfg.Service)
	if leader, term := t.driver.Leader(t.l.cfg.Service); leader != nil {
		err.With("leader", leader.Address).With("term", strconv.FormatInt(term, 10))
	}
	return err
}

func (t *tenure[C]) publish(serving bool) {
	t.l.status.Store(&state{
		view: t.view, leadership: t.leadership, serving: serving, revision: t.driver.Revision(),
		leaders: t.driver.leaders, events: t.driver.EventIndex(), quarantined: t.driver.Quarantined(),
	})
}
