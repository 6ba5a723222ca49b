package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"berth.dev/testkit/porttest"
)

// monitored is a member monitor. The test chooses which of its members answer.
type monitored struct {
	*memberMonitor
	silent []string
	asked  int
	uses   []string // every set of members that was used
}

func newMonitored(t *testing.T, members ...string) *monitored {
	d := &monitored{memberMonitor: &memberMonitor{all: members, exclusion: make(chan struct{})}}
	d.ctx, d.stop = context.WithCancel(t.Context())
	d.use = func(endpoints ...string) { d.uses = append(d.uses, fmt.Sprint(endpoints)) }
	d.probe = func(ctx context.Context, endpoint string) error {
		d.mu.Lock()
		d.asked++
		silent := slices.Contains(d.silent, endpoint)
		d.mu.Unlock()
		if !silent {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	t.Cleanup(d.close)
	return d
}

func (d *monitored) now(t *testing.T, uses ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(d.uses, uses) {
		t.Errorf("used are %v and not %v", d.uses, uses)
	}
	d.uses = nil
}

func (d *monitored) fallSilent(members ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = members
}

// probeInterval is the longest time from the start of a probe to the start of the next one.
const probeInterval = probeTimeout + settleTime + probeEvery

// If a member does not answer after a suspicious call, it is excluded until it answers.
func TestSilentMemberIsExcluded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newMonitored(t, "a", "b", "c")
		d.fallSilent("b")
		d.now(t)
		d.suspect()
		d.suspect() // one probe is enough for all suspicious calls
		first := d.excluded()
		time.Sleep(probeTimeout + settleTime)
		d.now(t, "[a c]")
		<-first // a second signal follows, for watches that reached the same member again
		<-d.excluded()
		time.Sleep(10 * probeInterval)
		d.now(t)
		d.fallSilent("c")
		time.Sleep(2 * probeInterval)
		d.now(t, "[a b]")
		d.fallSilent()
		time.Sleep(2 * probeInterval)
		d.now(t, "[a b c]")

		time.Sleep(probeInterval)
		asked := d.asked
		time.Sleep(time.Hour)
		if synctest.Wait(); d.asked != asked {
			t.Errorf("%d probes although all members answer", d.asked-asked)
		}
	})
}

// A read that gets no answer in time is suspicious. A read that fails with any other error
// is not.
func TestPatrolSuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newMonitored(t, "a", "b")
		d.fallSilent("b")
		var hangs atomic.Bool
		d.read = func(ctx context.Context) error {
			if hangs.Load() {
				<-ctx.Done()
			}
			return context.Canceled
		}
		d.owned.Go(d.patrol)
		time.Sleep(10 * probeInterval)
		d.now(t)
		hangs.Store(true)
		time.Sleep(2*readEvery + probeInterval)
		d.now(t, "[a]")
		hangs.Store(false)
		d.fallSilent()
		time.Sleep(2 * probeInterval)
		d.now(t, "[a b]")
	})
}

// If no member answers, no member is excluded, because the cause may be elsewhere.
func TestNoMemberIsExcludedIfNoneAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newMonitored(t, "a", "b")
		d.fallSilent("a", "b")
		d.suspect()
		time.Sleep(2 * probeInterval)
		d.now(t)
		// The next call makes the members suspicious again. This time, one of them answers.
		d.fallSilent("a")
		d.suspect()
		time.Sleep(probeTimeout + settleTime)
		d.now(t, "[b]")
		d.fallSilent("a", "b")
		time.Sleep(2 * probeInterval)
		d.now(t, "[a b]")
	})
}

// If etcd or this process is slow as a whole, no member is suspicious, not even the
// slowest.
func TestUniformlySlowMembersAreNotSuspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newMonitored(t, "a", "b", "c")
		r := rand.New(rand.NewPCG(1, 2))
		d.probe = func(ctx context.Context, _ string) error {
			d.mu.Lock()
			took := fastAnswer + time.Duration(r.Int64N(int64(2*probeTimeout)))
			d.mu.Unlock()
			return Sleep(ctx, took)
		}
		for range 100 {
			d.suspect()
			time.Sleep(probeInterval)
		}
		d.now(t)
	})
}

// If there is only one member, it is used even if it does not answer.
func TestOnlyMemberIsNotSuspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newMonitored(t, "a")
		d.suspect()
		time.Sleep(time.Minute)
		if synctest.Wait(); d.asked != 0 {
			t.Errorf("%d probes, want none", d.asked)
		}
	})
}

// The monitor ends even if a member does not answer.
func TestSteerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newMonitored(t, "a", "b")
		d.fallSilent("b")
		d.suspect()
		synctest.Wait()
		began := time.Now()
		d.close()
		if time.Since(began) > 0 {
			t.Errorf("after %v", time.Since(began))
		}
		d.suspect() // a call that ends at the same time
	})
}

// A stream that is silent until its deadline is as suspicious as a call.
func TestSilentStreamIsSuspected(t *testing.T) {
	address := porttest.Hold(t)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	silent := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		<-stream.Context().Done()
		return stream.Context().Err()
	}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = silent.Serve(listener) })
	t.Cleanup(func() { silent.Stop(); serving.Wait() })
	e, err := Dial(DialConfig{Endpoints: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	d, suspected := newMonitored(t, "a", "b"), make(chan struct{}, 2)
	d.probe = func(context.Context, string) error { suspected <- struct{}{}; return nil }
	e.members = d.memberMonitor
	if _, err := e.Stream(t.Context(), PageRequest{From: "a", To: "b"}, func([]KV) {}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("a silent stream: %v", err)
	}
	<-suspected
}
