package internal

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/store"
)

// slow is a client of the leader that handles one announcement at a time.
type slow struct {
	controlv1.AgentsClient
	agents *Agents
	turn   limiter
}

func (s *slow) Announce(ctx context.Context, req *controlv1.AnnounceRequest,
	_ ...grpc.CallOption) (*controlv1.AnnounceAnswer, error) {
	var answer *controlv1.AnnounceAnswer
	err := s.turn.do(ctx, func() (err error) {
		if err = store.Sleep(ctx, 10*time.Millisecond); err == nil {
			answer, err = s.agents.Announce(ctx, req)
		}
		return err
	})
	return answer, err
}

// grants counts the etcd leases that are granted to executors, but not those of leaders.
type grants struct {
	store.Store
	mu sync.Mutex
	n  int
}

func (g *grants) Grant(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	if ttl == PresenceTTL {
		g.mu.Lock()
		g.n++
		g.mu.Unlock()
	}
	return g.Store.Grant(ctx, ttl)
}

// If so many executors join at once that their announcements take longer than
// heartbeatTimeout, each of them is granted one etcd lease and uses it.
func TestManyJoinsGetThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 800
		db := &grants{Store: store.NewFake(store.FakeConfig{})}
		l := start(t, db)
		agents := NewAgents(l, "default")
		h := run(t, NewHeartbeats(l, db, &renewals{db: db}, nil, nil, &slow{agents: agents, turn: newLimiter(1)},
			slog.New(slog.DiscardHandler)))
		var joining sync.WaitGroup
		for i := range n {
			id := fmt.Sprint("e", i)
			s := beating(t, h, id, register(t, agents, id, "n").GetIncarnation())
			joining.Go(func() {
				for {
					if answer, err := s.sends(nil); err != nil {
						t.Error(err)
						return
					} else if answer.GetPresent() {
						return
					}
				}
			})
		}
		joining.Wait()
		if got := db.n; got > n {
			t.Errorf("%d etcd leases were granted to %d executors", got, n)
		}
	})
}

// An agent is granted no etcd lease if the executor is not registered, or if another agent
// registered it.
func TestUnregisteredAgentsAreGrantedNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &grants{Store: store.NewFake(store.FakeConfig{})}
		l := start(t, db)
		agents := NewAgents(l, "default")
		h := run(t, NewHeartbeats(l, db, &renewals{db: db}, nil, nil, direct{agents: agents}, slog.New(slog.DiscardHandler)))
		incarnation := register(t, agents, "e", "n").GetIncarnation()
		for _, test := range []struct {
			id          string
			incarnation int64
			reason      fault.Reason
		}{
			{"nobody", 1, fault.ReasonNotFound},
			{"e", incarnation - 1, fault.ReasonOtherIncarnation},
			{"e", incarnation + 1, fault.ReasonNotFound},
		} {
			if _, err := beating(t, h, test.id, test.incarnation).sends(nil); !fault.Is(err, test.reason) {
				t.Errorf("%+v: %v", test, err)
			}
		}
		if db.n != 0 {
			t.Errorf("%d etcd leases were granted", db.n)
		}
	})
}

// Even the largest fleet must not fill etcd, so the size of a registration is limited.
func TestRegistrationSizeIsLimited(t *testing.T) {
	agents := NewAgents(start(t, store.NewFake(store.FakeConfig{})), "default")
	register := func(share string) error {
		_, err := agents.Register(t.Context(), &controlv1.RegisterRequest{
			Id: "a", Address: "127.0.0.1:1", Nonce: "n", Resources: map[string]int64{"slots": 4},
			Reserved: map[string]*berthv1.ResourceShare{"batch": {Resources: map[string]int64{share: 0}}},
		})
		return err
	}
	if err := register(strings.Repeat("x", maxRegistration)); !fault.Is(err, fault.ReasonTooLarge) {
		t.Errorf("a registration of more than %d bytes: %v", maxRegistration, err)
	}
	if err := register("slots"); err != nil {
		t.Error(err)
	}
}
