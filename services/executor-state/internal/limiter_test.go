package internal

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/services/executor-state/inventory"
)

// busy is a loop whose round ends only when the test allows it.
type busy struct {
	loop.Owner[*inventory.Core]
	round chan struct{}

	mu      sync.Mutex
	waiting int
}

func (b *busy) Do(context.Context, any) (any, error) {
	b.mu.Lock()
	b.waiting++
	b.mu.Unlock()
	<-b.round
	return inventory.Registered{Incarnation: 1}, nil
}

// Ten thousand agents that register at once do not fill the loop. Each registration
// succeeds or fails at its deadline.
func TestRegistrationsDoNotFillTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents, patient = 10_000, 9_000
		b := &busy{round: make(chan struct{})}
		s := NewAgents(b, "default")
		answers := make(chan error, agents)
		for i := range agents {
			timeout := time.Minute
			if i >= patient {
				timeout = time.Second
			}
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				_, err := s.Register(ctx, &controlv1.RegisterRequest{Id: fmt.Sprint(i)})
				answers <- err
			}()
			if i == patient-1 {
				synctest.Wait() // the earlier calls are queued before the others
			}
		}
		synctest.Wait()
		if b.waiting != maxLoopCalls {
			t.Errorf("%d agents call the loop, want %d", b.waiting, maxLoopCalls)
		}
		time.Sleep(2 * time.Second)
		for range agents - patient {
			if err := <-answers; !fault.Is(err, fault.ReasonOverloaded) {
				t.Fatalf("an agent past its deadline gets %v", err)
			}
		}
		close(b.round)
		for range patient {
			if err := <-answers; err != nil {
				t.Fatalf("an agent that waited gets %v", err)
			}
		}
		if b.waiting != patient {
			t.Errorf("the loop was called %d times", b.waiting)
		}
	})
}
