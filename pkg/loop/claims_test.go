package loop_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// call is a request that the registry's leader sends.
type call struct{ term, known int64 }

func (c call) From() (string, int64) { return model.ServiceRegistry, c.term }
func (c call) Known() int64          { return c.known }

// A request may name a term or a revision that the view has not reached yet. If the store
// has reached it, the request counts. If not, the request is refused before the core
// receives it.
func TestTermOfARequestIsCheckedInTheStore(t *testing.T) {
	leads := model.LeaderTerm{Service: model.ServiceRegistry, Term: 120}
	for _, c := range []struct {
		name    string
		request any
		first   model.Event
		reason  fault.Reason
		reads   int
	}{
		{"no call of a leader", put{}, nil, "", 0},
		{"in the view", call{90, 100}, nil, "", 0},
		{"past in the view", call{80, 100}, nil, "", 0}, // refused by the core
		{"ahead of the view", call{120, 110}, leads, "", 1},
		{"a revision ahead of the view", call{90, 130}, nil, "", 1},
		{"the highest term", call{math.MaxInt64, 0}, nil, fault.ReasonLowerTerm, 1},
		{"a term that is none", call{121, 0}, nil, fault.ReasonLowerTerm, 1},
		{"the highest revision", call{90, math.MaxInt64}, nil, fault.ReasonInvalid, 1},
		{"a term ahead and the highest revision", call{120, math.MaxInt64}, nil, fault.ReasonInvalid, 1},
	} {
		reads := 0
		first, err := loop.CheckClaims(c.request, 100, func(string) int64 { return 90 },
			func(service string) (int64, int64, error) {
				reads++
				if service != model.ServiceRegistry {
					t.Errorf("%s: reads the leader of %q", c.name, service)
				}
				return 120, 130, nil
			})
		if first != c.first || reads != c.reads || (c.reason == "") != (err == nil) || c.reason != "" &&
			!fault.Is(err, c.reason) {
			t.Errorf("%s: %v, %v, %d reads", c.name, first, err, reads)
		}
	}
	if _, err := loop.CheckClaims(call{120, 0}, 100, func(string) int64 { return 90 }, func(string) (int64, int64, error) {
		return 0, 0, store.ErrAmbiguous
	}); fault.Of(err).Kind != fault.Unavailable {
		t.Errorf("unread: %v", err)
	}
}

// counted counts the reads of the registry's leader key. Each read waits until the test
// lets it continue.
type counted struct {
	*watched
	pages atomic.Int64
	turn  chan struct{}
}

func (s *counted) Page(ctx context.Context, req store.PageRequest) (store.Page, error) {
	if req.From == space.Key(model.LeaderRef(model.ServiceRegistry)) {
		s.pages.Add(1)
		<-s.turn
	}
	return s.watched.Page(ctx, req)
}

// However many callers invent terms, the leader sends one read of the registry's leader key
// at a time. The true term is accepted even if the view does not show it yet.
func TestInventedTermsAreReadOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newStore()
		s := &counted{watched: w, turn: make(chan struct{})}
		r := run(t, s, "a", nil)
		r.awaitLead(t, true)
		w.stalled.Store(true) // from here on the view receives no changes
		put := store.Put(space.Key(model.LeaderRef(model.ServiceRegistry)), nil)
		res, err := w.Txn(t.Context(), store.Txn{Then: []store.Op{put}})
		if err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		var refused, other atomic.Int64
		for range 500 {
			callers.Go(func() {
				if _, err := r.Do(t.Context(), call{math.MaxInt64, 0}); fault.Is(err, fault.ReasonLowerTerm) {
					refused.Add(1)
				} else {
					other.Add(1)
				}
			})
		}
		synctest.Wait()
		s.turn <- struct{}{}
		synctest.Wait()
		close(s.turn)
		callers.Wait()
		if refused.Load() != 500 || other.Load() != 0 || s.pages.Load() > 2 {
			t.Errorf("%d refused, %d not, %d reads; want 500 in at most 2", refused.Load(), other.Load(), s.pages.Load())
		}
		if _, err := r.Do(t.Context(), call{res.Revision, res.Revision}); err != nil {
			t.Errorf("the true term: %v", err)
		}
	})
}
