package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// gated is a driver in which each start waits for a result from the test. If the result is
// nil, the worker runs.
type gated struct {
	Simulated
	mu    sync.Mutex
	begun []int32
	words map[int32]chan error
}

func newGated() *gated { return &gated{words: map[int32]chan error{}} }

func (g *gated) word(index int32) chan error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.words[index] == nil {
		g.words[index] = make(chan error, 1)
	}
	return g.words[index]
}

func (g *gated) Start(spec Spec, ended func(Exit)) (Handle, error) {
	g.mu.Lock()
	g.begun = append(g.begun, spec.Worker.ID.Index)
	g.mu.Unlock()
	if err := <-g.word(spec.Worker.ID.Index); err != nil {
		return nil, err
	}
	return g.Simulated.Start(spec, ended)
}

func (g *gated) order() []int32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.begun)
}

// unregistered returns an agent that accepts requests for incarnation 1 without a control
// plane.
func unregistered(t *testing.T, cfg Config) *Agent {
	t.Helper()
	cfg.ID, cfg.Conn, cfg.Log = "host", (*grpc.ClientConn)(nil), quiet()
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	a.ledger.begin(1, 0)
	a.mu.Unlock()
	return a
}

// states returns the states that the agent would report, by worker index.
func states(a *Agent) map[int32]berthv1.Assignment_State {
	a.mu.Lock()
	defer a.mu.Unlock()
	got := map[int32]berthv1.Assignment_State{}
	for _, w := range a.ledger.report(complete).Workers {
		got[w.Index] = w.State
	}
	return got
}

// Two hundred workers of one batch are requested. The number of starts in progress stays
// within its limit, and the starts begin in order. Each request gets an answer within a
// second, and the result of the start is reported.
func TestStartsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, room = 200, 5
		driver := newGated()
		a := unregistered(t, Config{Driver: driver, Starts: room})
		began := time.Now()
		var wg sync.WaitGroup
		answers := make([]*controlv1.SubmitTaskAnswer, workers)
		for i := range int32(workers) {
			wg.Go(func() {
				var err error
				if answers[i], err = trySubmit(t.Context(), a, submit(i, 1, "")); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // keeps the order of the requests
		}
		wg.Wait()
		if took := time.Since(began); took > startWait {
			t.Errorf("answered after %v", took)
		}
		sequences := map[int64]bool{}
		for _, answer := range answers {
			if answer.Worker.State != berthv1.Assignment_STARTING {
				t.Fatal(answer)
			}
			sequences[answer.Sequence] = true
		}
		if len(sequences) != workers {
			t.Errorf("%d sequences", len(sequences))
		}
		for i := range int32(workers) {
			synctest.Wait()
			if begun := len(driver.order()); begun != min(int(i)+room, workers) {
				t.Fatalf("%d begun after %d were let", begun, i)
			}
			if i%10 == 9 {
				driver.word(i) <- startFailed("no luck")
			} else {
				driver.word(i) <- nil
			}
		}
		synctest.Wait()
		if !slices.IsSorted(driver.order()) {
			t.Error("out of order: ", driver.order())
		}
		for i, state := range states(a) {
			want := berthv1.Assignment_RUNNING
			if i%10 == 9 {
				want = berthv1.Assignment_FAILED // The answer was STARTING, so the failure is reported.
			}
			if state != want {
				t.Errorf("%d is %v", i, state)
			}
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A start that hangs delays the other starts by at most the start timeout.
func TestStartThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := newGated()
		a := unregistered(t, Config{Driver: driver, Starts: 1, StartTimeout: time.Minute})
		driver.word(1) <- nil
		driver.word(2) <- nil
		for i := range int32(3) {
			mustSubmit(t, a, submit(i, 1, ""))
		}
		if got := driver.order(); !slices.Equal(got, []int32{0}) {
			t.Errorf("begun %v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := driver.order(); !slices.Equal(got, []int32{0, 1, 2}) {
			t.Errorf("begun %v", got)
		}
		if s := states(a); s[0] != berthv1.Assignment_STARTING || s[1] != berthv1.Assignment_RUNNING ||
			s[2] != berthv1.Assignment_RUNNING {
			t.Error(s)
		}
		// The start that hung does not free its place a second time.
		driver.word(0) <- nil
		synctest.Wait()
		a.mu.Lock()
		if a.freeStarts != 1 {
			t.Errorf("%d starts may begin", a.freeStarts)
		}
		a.mu.Unlock()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Stopping a queued worker takes effect at once. The worker never starts, whether its
// request was answered or not.
func TestStopOfAQueuedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := newGated()
		a := unregistered(t, Config{Driver: driver, Starts: 1, StartTimeout: time.Hour})
		mustSubmit(t, a, submit(0, 1, ""))
		mustSubmit(t, a, submit(1, 1, "")) // the answer is STARTING
		waits := make(chan error, 1)
		go func() {
			_, err := trySubmit(t.Context(), a, submit(2, 1, ""))
			waits <- err
		}()
		synctest.Wait()
		began := time.Now()
		for i := range int32(2) {
			answer, err := tryStop(t.Context(), a, stopOf(submit(1+i, 1, ""), time.Minute))
			if err != nil || answer.Worker.State != berthv1.Assignment_EVICTED || !answer.Worker.NeverStarted {
				t.Error(answer, err)
			}
			if _, err := trySubmit(t.Context(), a, submit(1+i, 1, "")); !fault.Is(err, fault.ReasonStopped) {
				t.Error(err)
			}
		}
		if err := <-waits; !fault.Is(err, fault.ReasonStopped) {
			t.Error(err)
		}
		if time.Since(began) > 0 {
			t.Error("a stop waited")
		}
		// A stop waits for a start that has begun. A later epoch replaces a queued start.
		driver.word(0) <- nil
		driver.word(3) <- nil
		synctest.Wait()
		if got := driver.order(); !slices.Equal(got, []int32{0}) {
			t.Errorf("begun %v", got)
		}
		mustSubmit(t, a, submit(3, 1, ""))
		if s := states(a); s[0] != berthv1.Assignment_RUNNING || s[3] != berthv1.Assignment_RUNNING {
			t.Error(s)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A start request with a later epoch replaces a queued start of the same worker name.
func TestLaterEpochReplacesAQueuedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := newGated()
		a := unregistered(t, Config{Driver: driver, Starts: 1, StartTimeout: time.Hour})
		mustSubmit(t, a, submit(0, 1, ""))
		mustSubmit(t, a, submit(1, 1, ""))
		later := submit(1, 1, "")
		later.Worker.Epoch++
		for range 2 { // The first attempt ends the queued start.
			if _, err := trySubmit(t.Context(), a, later); err != nil && !fault.Is(err, fault.ReasonUnavailable) {
				t.Fatal(err)
			}
		}
		driver.word(0) <- nil
		driver.word(1) <- nil
		synctest.Wait()
		if got := driver.order(); !slices.Equal(got, []int32{0, 1}) {
			t.Errorf("begun %v", got)
		}
		if answer := mustSubmit(t, a, later); answer.Worker.State != berthv1.Assignment_RUNNING ||
			answer.Worker.Epoch != 101 {
			t.Error(answer)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// An agent that is shutting down begins no start. It refuses queued requests. If a queued
// request was already acknowledged, the agent reports the worker as stopped.
func TestCloseWithQueuedStarts(t *testing.T) {
	for _, stops := range []bool{true, false} {
		t.Run(fmt.Sprintf("stops=%v", stops), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				driver := newGated()
				a := unregistered(t, Config{Driver: driver, Starts: 1, StartTimeout: time.Hour})
				mustSubmit(t, a, submit(0, 1, ""))
				mustSubmit(t, a, submit(1, 1, ""))
				waits := make(chan error, 1)
				go func() {
					_, err := trySubmit(t.Context(), a, submit(2, 1, ""))
					waits <- err
				}()
				synctest.Wait()
				over := make(chan error, 1)
				go func() {
					if stops {
						over <- a.StopWorkers(t.Context())
					} else {
						over <- a.Close()
					}
				}()
				if err := <-waits; !fault.Is(err, fault.ReasonUnavailable) {
					t.Error(err)
				}
				driver.word(0) <- nil
				if err := <-over; err != nil {
					t.Error(err)
				}
				if got := driver.order(); !slices.Equal(got, []int32{0}) {
					t.Errorf("begun %v", got)
				}
				if s := states(a); stops && (s[0] != berthv1.Assignment_EVICTED || s[1] != berthv1.Assignment_EVICTED ||
					len(s) != 2) {
					t.Error(s)
				}
				if err := a.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// checked is a driver that implements Check.
type checked struct{ *gated }

func (checked) Check(spec Spec) error {
	if spec.Command == "no" {
		return fault.New(fault.Precondition, fault.ReasonNotAllowed, "no")
	}
	return nil
}

// If Check refuses a worker, its request is not queued.
func TestRefusalsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := newGated()
		a := unregistered(t, Config{Driver: checked{driver}, Starts: 1, StartTimeout: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), startWait/2)
		defer cancel()
		if _, err := trySubmit(ctx, a, submit(0, 1, "yes")); !fault.Is(err, fault.ReasonUnavailable) {
			t.Error(err)
		}
		before := time.Now()
		if _, err := trySubmit(t.Context(), a, submit(1, 1, "no")); !fault.Is(err, fault.ReasonNotAllowed) {
			t.Error(err)
		}
		if time.Since(before) > 0 {
			t.Error("it waited")
		}
		driver.word(0) <- nil
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}
