package relay

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// If a replica fails, the streams of its quiet agents end in steps, and all of them end
// within the limit. The stream of an agent that waits for an answer or sends something ends
// at once.
func TestQuietAgentsAreEndedInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = 100
		r, broken, began := newRelay(nil), errors.New("broken"), time.Now()
		var mu sync.Mutex
		ended := map[*agent]time.Duration{}
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(ended)
		}
		join := func() *agent {
			a := &agent{relay: r, sent: make(chan struct{}, 1)}
			a.end = func(err error) {
				mu.Lock()
				defer mu.Unlock()
				if _, again := ended[a]; !again && err == broken {
					ended[a] = time.Since(began)
				}
			}
			if !r.add(a) {
				t.Fatal("an open relay rejects an agent")
			}
			return a
		}
		endedAtOnce := func(a *agent) bool {
			mu.Lock()
			defer mu.Unlock()
			at, done := ended[a]
			return done && at == 0
		}
		for range idle {
			join()
		}
		waiting, requesting, beating := join(), join(), join()
		r.request(waiting, nil)
		r.heartbeat(waiting)

		life, stop := context.WithCancel(t.Context())
		defer stop()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			r.close(life, broken)
		}()
		synctest.Wait()
		if n := count(); n > 1+idle/10 || !endedAtOnce(waiting) {
			t.Errorf("%d streams ended at once; that of the agent that waits: %v", n, endedAtOnce(waiting))
		}
		r.request(requesting, nil)
		r.heartbeat(beating)
		if !endedAtOnce(requesting) || !endedAtOnce(beating) {
			t.Error("the stream of an agent that sends something does not end at once")
		}
		if r.add(&agent{}) {
			t.Error("a closed relay accepts an agent")
		}

		time.Sleep(endWithin / 2)
		synctest.Wait()
		if half := count(); half < idle/3 || half > idle*3/4 {
			t.Errorf("half-way %d of %d streams have ended", half, idle+3)
		}
		stop() // ends the remaining streams at once
		synctest.Wait()
		<-closed
		if n := count(); n != idle+3 || time.Since(began) != endWithin/2 {
			t.Errorf("%d of %d streams ended after %v", n, idle+3, time.Since(began))
		}
	})
}

func TestAllAgentsAreEndedInTime(t *testing.T) {
	for _, agents := range []int{0, 1, 20, 21, 39, 59, 119, 1000} {
		synctest.Test(t, func(t *testing.T) {
			r, ended, began := newRelay(nil), 0, time.Now()
			for range agents {
				r.add(&agent{relay: r, end: func(error) { ended++ }})
			}
			r.close(t.Context(), errors.New("broken"))
			if took := time.Since(began); ended != agents || took > endWithin {
				t.Errorf("%d of %d streams ended after %v", ended, agents, took)
			}
		})
	}
}
