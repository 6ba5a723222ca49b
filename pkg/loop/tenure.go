package loop

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/leader"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// tenure is the life of one core: from an empty view to the end of a term.
type tenure[C model.Core] struct {
	l       *Loop[C]
	driver  *Driver[C]
	view    *store.View
	batches chan store.Batch

	leadership *leader.Leadership
	term       *Term
	waiting    map[uint64]item[C]
	lastToken  uint64
	reads      []item[C] // of the round under way
	resigning  []item[C] // who asked for the end of the term
	owned      sync.WaitGroup
	turned     atomic.Pointer[time.Time] // the loop's last turn
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
	d.Guard(Guard{Replica: l.cfg.Replica, Version: l.cfg.Version, Met: l.met})
	d.steps = l.turns
	return d
}

func (t *tenure[C]) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	t.view = store.OpenView(t.l.cfg.Store, t.l.cfg.Space.Prefix(), t.l.cfg.Space.Events())
	defer t.view.Close() // last: who pulls a closed view opens it again
	defer t.owned.Wait()
	defer stop(nil)

	t.owned.Go(func() {
		for {
			b, err := t.view.Next(ctx)
			if err != nil {
				stop(err)
				return
			}
			select {
			case t.batches <- b:
			case <-ctx.Done():
				return
			}
		}
	})

	won := make(chan *leader.Leadership, 1)
	campaigning := false
	stand := func() {
		campaigning = true
		t.owned.Go(func() {
			leadership, err := t.l.cfg.Election.Campaign(ctx)
			if err != nil {
				stop(err)
			}
			won <- leadership
		})
	}
	for {
		t.publish(false)
		t.l.waits()
		select {
		case <-ctx.Done():
			t.giveUp(won, campaigning)
			return context.Cause(ctx)
		case b := <-t.batches:
			t.l.turns()
			if err := t.follow(ctx, b); err != nil {
				stop(err)
				t.giveUp(won, campaigning)
				return err
			}
			if !campaigning {
				// A replica that does not know what is stored does not stand.
				stand()
			}
		case it := <-t.l.inbox:
			t.l.turns()
			if it.anywhere && t.driver.Revision() > 0 {
				it.view(t.driver.Core)
				continue
			}
			it.answer(nil, t.notLeader())
		case t.leadership = <-won:
			if t.leadership == nil {
				return context.Cause(ctx)
			}
			err := t.lead(ctx)
			if !t.driver.leads && errors.Is(err, context.Canceled) && ctx.Err() == nil {
				// The term was over before the core was told of it. To read everything
				// again would be no help to an etcd that was too slow.
				t.l.cfg.Log.Warn("a term ended before it began", "term", t.leadership.Term(), "error", t.leadership.Err())
				t.leadership, t.resigning = nil, nil
				stand()
				continue
			}
			stop(err)
			return err
		}
	}
}

// giveUp resigns what a campaign under way may still win.
func (t *tenure[C]) giveUp(won <-chan *leader.Leadership, campaigning bool) {
	if !campaigning {
		return
	}
	if leadership := <-won; leadership != nil {
		resign(leadership)
	}
}

func resign(leadership *leader.Leadership) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = leadership.Resign(ctx) // its etcd lease ends it otherwise
}

func (t *tenure[C]) follow(ctx context.Context, b store.Batch) error {
	if b.Reset && t.driver.Revision() > 0 {
		t.driver = t.l.newDriver()
	}
	if err := t.driver.Follow(b); err != nil || !b.Reset {
		return err
	}
	t.l.reading.Do(func() { close(t.l.followed) })
	kept := t.driver.Kept()
	t.owned.Go(func() {
		for n := 1; kept.Count(ctx, t.l.cfg.Store) != nil && store.Sleep(ctx, store.Backoff(n)) == nil; n++ {
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
	t.l.status.Store(&state{view: t.view, leadership: t.leadership, serving: serving, revision: t.driver.Revision(), terms: t.driver.terms, kept: t.driver.Kept(), aside: t.driver.Aside()})
}
