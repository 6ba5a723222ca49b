package relay

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The agents of a replica that died are told one after the other, unless they may wait
// for an answer or have something more to say, and all of them within the time.
func TestAgentsAreToldOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = 100
		r, gone, began := newRelay(nil), errors.New("gone"), time.Now()
		var mu sync.Mutex
		told := map[*agent]time.Duration{}
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(told)
		}
		join := func() *agent {
			a := &agent{relay: r, sent: make(chan struct{}, 1)}
			a.end = func(err error) {
				mu.Lock()
				defer mu.Unlock()
				if _, again := told[a]; !again && err == gone {
					told[a] = time.Since(began)
				}
			}
			if !r.add(a) {
				t.Fatal("a relay that carries takes an agent")
			}
			return a
		}
		toldAtOnce := func(a *agent) bool {
			mu.Lock()
			defer mu.Unlock()
			at, done := told[a]
			return done && at == 0
		}
		for range idle {
			join()
		}
		waits, says, beats := join(), join(), join()
		r.request(waits, nil)
		r.beat(waits)

		life, stop := context.WithCancel(t.Context())
		defer stop()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			r.close(life, gone)
		}()
		synctest.Wait()
		if n := count(); n > 1+idle/10 || !toldAtOnce(waits) {
			t.Errorf("at once %d were told, of them who waits: %v", n, toldAtOnce(waits))
		}
		r.request(says, nil)
		r.beat(beats)
		if !toldAtOnce(says) || !toldAtOnce(beats) {
			t.Error("who says something more has to wait")
		}
		if r.add(&agent{}) {
			t.Error("it takes an agent")
		}

		time.Sleep(endWithin / 2)
		synctest.Wait()
		if half := count(); half < idle/3 || half > idle*3/4 {
			t.Errorf("half-way %d of %d were told", half, idle+3)
		}
		stop() // then nobody has to wait
		synctest.Wait()
		<-closed
		if n := count(); n != idle+3 || time.Since(began) != endWithin/2 {
			t.Errorf("%d of %d were told after %v", n, idle+3, time.Since(began))
		}
	})
}

// However many they are.
func TestAllAgentsAreToldInTime(t *testing.T) {
	for _, agents := range []int{0, 1, 20, 21, 39, 59, 119, 1000} {
		synctest.Test(t, func(t *testing.T) {
			r, told, began := newRelay(nil), 0, time.Now()
			for range agents {
				r.add(&agent{relay: r, end: func(error) { told++ }})
			}
			r.close(t.Context(), errors.New("gone"))
			if took := time.Since(began); told != agents || took > endWithin {
				t.Errorf("%d of %d were told after %v", told, agents, took)
			}
		})
	}
}
