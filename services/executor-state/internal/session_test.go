package internal

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/testkit/looptest"
)

// renewals renews etcd leases of the store and records when each renewal began. Each
// renewal takes the time in takes. If err is set, every renewal fails.
type renewals struct {
	db    store.Store
	began []time.Time
	err   error
	takes time.Duration
}

func (r *renewals) Renew(ctx context.Context, leases []int64) []error {
	errs := make([]error, len(leases))
	began := time.Now()
	wait := store.Sleep(ctx, r.takes)
	for i, lease := range leases {
		r.began = append(r.began, began)
		if errs[i] = cmp.Or(wait, r.err); errs[i] == nil {
			_, errs[i] = r.db.KeepAlive(ctx, lease)
		}
	}
	return errs
}

// back is the stream of an agent whose answers the test reads.
type back struct {
	answers chan *controlv1.HeartbeatAnswer
	ended   chan error
}

func newBack() back {
	return back{make(chan *controlv1.HeartbeatAnswer, 16), make(chan error, 16)}
}

func (b back) answer(a *controlv1.HeartbeatAnswer) { b.answers <- a }
func (b back) end(err error)                       { b.ended <- err }

// beating starts the session of a registered agent.
func beating(t *testing.T, h *Heartbeats, id string, incarnation int64) *session {
	return h.begin(t.Context(), &controlv1.HeartbeatRequest{Id: id, Incarnation: incarnation}, newBack())
}

// sends sends a heartbeat of the agent. It returns the answer or the error that ended the
// stream.
func (s *session) sends(m *controlv1.HeartbeatRequest) (*controlv1.HeartbeatAnswer, error) {
	s.handle(m)
	b := s.stream.(back)
	select {
	case answer := <-b.answers:
		return answer, nil
	case err := <-b.ended:
		return nil, err
	}
}

// run runs h until the test ends.
func run(t *testing.T, h *Heartbeats) *Heartbeats {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = h.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return h
}

// play runs the session of one executor with simulated time.
func play(t *testing.T, play func(t *testing.T, s *session, r *renewals, agents *Agents)) {
	synctest.Test(t, func(t *testing.T) {
		db := store.NewFake(store.FakeConfig{})
		l := start(t, db)
		agents, r := NewAgents(l, "default"), &renewals{db: db}
		h := run(t, NewHeartbeats(l, db, r, nil, nil, direct{agents: agents}, slog.New(slog.DiscardHandler)))
		s := beating(t, h, "a", register(t, agents, "a", "first").GetIncarnation())
		if answer, err := s.sends(nil); err != nil || !answer.GetPresent() || s.lease == 0 {
			t.Fatalf("the first heartbeat: %v, %v", answer, err)
		}
		play(t, s, r, agents)
	})
}

// However often an agent sends heartbeats, its etcd lease is renewed at most once per
// renewInterval. At the regular interval, each heartbeat renews the lease.
func TestRenewsOnceInRenewInterval(t *testing.T) {
	play(t, func(t *testing.T, s *session, r *renewals, _ *Agents) {
		granted := time.Now()
		r.takes = 100 * time.Millisecond
		for time.Since(granted) < 4*PresenceTTL {
			time.Sleep(50 * time.Millisecond)
			if answer, err := s.sends(nil); err != nil || !answer.GetPresent() {
				t.Fatalf("a heartbeat: %v, %v", answer, err)
			}
		}
		last := granted
		for _, began := range r.began {
			if gap := began.Sub(last); gap < renewInterval || gap > renewInterval+time.Second {
				t.Errorf("renewed %v after the renewal before", gap)
			}
			last = began
		}
		if n, most := len(r.began), int(4*PresenceTTL/renewInterval); n > most || n < most-2 {
			t.Errorf("%d renewals in %v", n, 4*PresenceTTL)
		}
		for range 3 {
			before := len(r.began)
			time.Sleep(HeartbeatEvery - HeartbeatEvery/10)
			if _, err := s.sends(nil); err != nil || len(r.began) != before+1 {
				t.Errorf("a regular heartbeat caused %d renewals, %v", len(r.began)-before, err)
			}
		}
	})
}

// A renewal counts from the time at which it began. After a failed renewal, no answer
// reports the executor as present until a renewal succeeds.
func TestPresentOnlyAfterARenewal(t *testing.T) {
	play(t, func(t *testing.T, s *session, r *renewals, _ *Agents) {
		time.Sleep(renewInterval)
		r.err = errors.New("etcd does not answer")
		for i := range 5 {
			answer, err := s.sends(nil)
			if err != nil || answer.GetPresent() || len(r.began) != i+1 {
				t.Fatalf("heartbeat %d without etcd: %v, %v, %d renewals", i, answer, err, len(r.began))
			}
			time.Sleep(time.Millisecond)
		}
		r.err, r.takes = nil, renewInterval
		if answer, err := s.sends(nil); err != nil || !answer.GetPresent() {
			t.Fatalf("a slow renewal: %v, %v", answer, err)
		}
		n := len(r.began)
		if _, err := s.sends(nil); err != nil || len(r.began) != n+1 {
			t.Errorf("a renewal that began %v ago still counts", renewInterval)
		}
	})
}

// If a heartbeat finds that the etcd lease has expired, it replaces the lease.
func TestExpiredLeaseIsReplaced(t *testing.T) {
	play(t, func(t *testing.T, s *session, r *renewals, _ *Agents) {
		time.Sleep(renewInterval)
		old := s.lease
		r.err = store.ErrLeaseNotFound
		if answer, err := s.sends(nil); err != nil || !answer.GetPresent() || s.lease == old {
			t.Errorf("an expired etcd lease: %v, %v, etcd lease %d after %d", answer, err, s.lease, old)
		}
	})
}

// If the presence of an executor is deleted before its etcd lease expires, the executor is
// announced again, even if earlier heartbeats found the presence.
func TestDeletedPresenceIsAnnouncedAgain(t *testing.T) {
	play(t, func(t *testing.T, s *session, _ *renewals, agents *Agents) {
		beat := func() bool {
			time.Sleep(renewInterval)
			answer, err := s.sends(nil)
			if err != nil {
				t.Fatal(err)
			}
			return answer.GetPresent()
		}
		for range 2 {
			if !beat() {
				t.Fatal("the executor is not present at the start")
			}
		}
		old := s.lease
		if _, err := agents.Depart(t.Context(), &controlv1.DepartRequest{Id: s.id, Incarnation: s.incarnation,
			EtcdLease: old}); err != nil {
			t.Fatal(err)
		}
		if beat() {
			t.Error("the executor is still present after it departed")
		}
		if !beat() || s.lease == old {
			t.Errorf("the executor was not announced again: etcd lease %d, was %d", s.lease, old)
		}
	})
}

// Of two copies of an agent, the older one gets an error as soon as its last renewal no
// longer counts.
func TestOlderCopyGetsAnError(t *testing.T) {
	play(t, func(t *testing.T, s *session, _ *renewals, agents *Agents) {
		register(t, agents, "a", "second")
		time.Sleep(renewInterval)
		answer, err := s.sends(nil)
		if err == nil && !answer.GetPresent() {
			_, err = s.sends(nil) // this heartbeat reaches the leader, which returns the reason
		}
		if !fault.Is(err, fault.ReasonOtherIncarnation) {
			t.Errorf("the older copy gets %v, %v", answer, err)
		}
	})
}

// registerAgent registers executor b for an agent with a secret. It returns the first
// request of the agent's stream.
func registerAgent(t *testing.T, agents *Agents, nonce, secret string) *controlv1.HeartbeatRequest {
	t.Helper()
	answer, err := agents.Register(t.Context(), &controlv1.RegisterRequest{
		Id: "b", Address: "127.0.0.1:1", Nonce: nonce, Secret: secret, Resources: map[string]int64{"slots": 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &controlv1.HeartbeatRequest{Id: "b", Incarnation: answer.GetIncarnation(), Nonce: nonce}
}

// If an agent knows only the ID and incarnation of an executor, it cannot keep the executor
// present. None of its reports reaches the assigner.
func TestHeartbeatsOfAnotherAgentAreRefused(t *testing.T) {
	play(t, func(t *testing.T, s *session, _ *renewals, agents *Agents) {
		s.h.reports = newReports(func(_ context.Context,
			req *controlv1.ReportWorkersRequest) (*controlv1.ReportWorkersAnswer, error) {
			t.Errorf("the assigner received %v", req)
			return nil, errors.New("not now")
		})
		ctx, stop := context.WithCancel(t.Context())
		var forwarding sync.WaitGroup
		forwarding.Go(func() { _ = s.h.reports.Run(ctx) })
		defer forwarding.Wait()
		defer stop()
		hello := registerAgent(t, agents, "n1", "secret")
		for _, nonce := range []string{"", "guess"} {
			hello.Nonce, hello.Report = nonce, &controlv1.ExecutorReport{Complete: true}
			other := s.h.begin(ctx, hello, newBack())
			if _, err := other.sends(hello); !fault.Is(err, fault.ReasonOtherAgent) {
				t.Errorf("nonce %q: got %v", nonce, err)
			}
		}
		hello.Nonce, hello.Report = "n1", nil
		if answer, err := s.h.begin(ctx, hello, newBack()).sends(hello); err != nil || !answer.GetPresent() {
			t.Errorf("the agent itself gets %v, %v", answer, err)
		}
		time.Sleep(heartbeatTimeout)
	})
}

// An agent receives superseded once the agent that replaced it is present. While the
// superseded agent reports live workers, the executor gets no work, however often it
// reports.
func TestASupersededAgentGetsSuperseded(t *testing.T) {
	play(t, func(t *testing.T, s *session, _ *renewals, agents *Agents) {
		hello := registerAgent(t, agents, "n1", "secret")
		hello.Report = &controlv1.ExecutorReport{Complete: true, Workers: running(0)}
		second := registerAgent(t, agents, "m1", "secret")
		if answer, err := s.h.begin(t.Context(), second, newBack()).sends(second); err != nil || !answer.GetPresent() {
			t.Fatalf("the second agent gets %v, %v", answer, err)
		}
		ctx, leave := context.WithCancel(t.Context())
		first := s.h.begin(ctx, hello, newBack())
		usable := host{t, s.h.begin(t.Context(), second, newBack())}
		for range 2 {
			if answer, err := first.sends(hello); err != nil || !answer.GetSuperseded() || answer.GetPresent() {
				t.Fatalf("the first agent gets %v, %v", answer, err)
			}
			if usable.ready() {
				t.Error("the executor gets work while a worker of the first agent runs")
			}
			hello.Nonce, hello.Report = "", nil
		}
		hello.Report = &controlv1.ExecutorReport{Workers: ended(0)}
		if answer, err := first.sends(hello); err != nil || !answer.GetSuperseded() {
			t.Fatalf("the first agent gets %v, %v", answer, err)
		}
		if !usable.ready() {
			t.Error("the executor gets no work although no worker of the first agent runs")
		}
		leave()
		synctest.Wait()
	})
}

// The length of a secret is limited. The error contains neither the secret nor its hash.
func TestSecretsAreLimited(t *testing.T) {
	play(t, func(t *testing.T, _ *session, _ *renewals, agents *Agents) {
		long := strings.Repeat("s", maxSecret+1)
		_, err := agents.Register(t.Context(), &controlv1.RegisterRequest{Id: "b", Address: "x", Nonce: "n", Secret: long})
		if !fault.Is(err, fault.ReasonTooLarge) || strings.Contains(err.Error(), "ss") &&
			strings.Contains(err.Error(), long) {
			t.Errorf("got %v", err)
		}
	})
}

// The store has only the hash of an agent's secret, in the record of the executor.
func TestOnlyTheHashOfASecretIsStored(t *testing.T) {
	play(t, func(t *testing.T, _ *session, r *renewals, agents *Agents) {
		const secret = "the secret of this agent"
		if _, err := agents.Register(t.Context(), &controlv1.RegisterRequest{Id: "b", Address: "x", Nonce: "n",
			Secret: secret}); err != nil {
			t.Fatal(err)
		}
		page, err := r.db.Page(t.Context(), store.PageRequest{From: looptest.Space.Prefix(),
			To: looptest.Space.Prefix() + "\xff"})
		if err != nil {
			t.Fatal(err)
		}
		hash, kept := sha256.Sum256([]byte(secret)), 0
		for _, kv := range page.KVs {
			if bytes.Contains(kv.Value, []byte(secret)) {
				t.Errorf("%s has the secret", kv.Key)
			}
			if bytes.Contains(kv.Value, hash[:]) {
				kept++
			}
		}
		if kept != 1 {
			t.Errorf("%d records have its hash, want that of the executor", kept)
		}
	})
}

// A candidate says where the next reservation of its group stands, however it is sent.
func TestNextAtIsReceived(t *testing.T) {
	for _, sent := range []*controlv1.Candidate{{Uid: "u", Mod: 5, NextAt: 7}, {Uid: "u", Unchanged: 5, NextAt: 7}} {
		if got := candidateOf(sent).NextAt; got != 7 {
			t.Errorf("%v: got %d", sent, got)
		}
	}
}

// Candidates and explanations have two separate lists: the executors that the caller
// avoids, and those that Berth avoids as long as another executor is available.
func TestListsOfAvoidedExecutorsAreSeparate(t *testing.T) {
	k := candidateOf(&controlv1.Candidate{Uid: "u", Constraints: &berthv1.Constraints{Avoid: []string{"caller"}},
		AvoidFailed: []string{"berth"}}).Constraints
	if !slices.Equal(k.Avoid, []string{"caller"}) || !slices.Equal(k.AvoidFailed, []string{"berth"}) {
		t.Errorf("a candidate avoids %v, and %v for failures", k.Avoid, k.AvoidFailed)
	}
	play(t, func(t *testing.T, s *session, _ *renewals, agents *Agents) {
		if answer, err := beating(t, s.h, "b", register(t, agents, "b", "n").GetIncarnation()).sends(nil); err != nil ||
			!answer.GetPresent() {
			t.Fatal(answer, err)
		}
		const slots = 4 // of each executor
		for _, c := range []struct {
			avoid, failed []string
			fitting       int32
		}{
			{nil, nil, 2 * slots}, {[]string{"a", "b"}, nil, 0}, {nil, []string{"a"}, slots},
			{nil, []string{"a", "b"}, 2 * slots},
		} {
			fit, err := NewInventory(agents.loop).ExplainFit(t.Context(), &controlv1.ExplainFitRequest{
				Constraints: &berthv1.Constraints{Resources: map[string]int64{"slots": 1}, Avoid: c.avoid}, AvoidFailed: c.failed,
				Needed: 2 * slots,
			})
			if err != nil || fit.GetFitting() != c.fitting {
				t.Errorf("avoiding %v, and %v for failures: %v, %v, want %d", c.avoid, c.failed, fit, err, c.fitting)
			}
		}
	})
}

// If an executor joins with workers, it is announced after the assigner has answered
// whether they are orphaned. If no answer arrives, it is announced with orphaned workers.
func TestExecutorState10OrphansAreAnnounced(t *testing.T) {
	play(t, func(t *testing.T, s *session, _ *renewals, agents *Agents) {
		beat := func(what string, orphans bool) {
			t.Helper()
			if answer, err := s.sends(nil); err != nil || !answer.GetPresent() {
				t.Fatalf("%s: %v, %v", what, answer, err)
			}
			var view inventory.ExecutorView
			if err := s.h.peek(t.Context(), func(c *inventory.Core) { view, _ = c.Executor("a") }); err != nil ||
				view.Orphans != orphans {
				t.Fatalf("%s: orphans %v, want %v, %v", what, view.Orphans, orphans, err)
			}
		}
		again := func() {
			s = beating(t, s.h, "a", register(t, agents, "a", rand.Text()).GetIncarnation())
			s.workers.reported(&controlv1.ExecutorReport{Complete: true,
				Workers: []*controlv1.WorkerReport{{Job: "j", Stage: "s", Epoch: 3}}})
		}
		judge := func(orphans int32) { s.workers.answered(false, &controlv1.ExecutorReportAnswer{Orphans: orphans}) }

		again()
		time.AfterFunc(answerWait/2, func() { judge(0) })
		beat("they are as they should be", false)

		again()
		time.AfterFunc(answerWait/2, func() { judge(1) })
		beat("one orphan", true)
		judge(0)
		beat("no orphan", false)
		judge(2)
		beat("others are found", true)

		again()
		began := time.Now()
		beat("nobody says", true)
		if waited := time.Since(began); waited < answerWait {
			t.Errorf("waited %v", waited)
		}
		beat("not known yet", true)
		judge(0)
		beat("they are as they should be after all", false)

		// The leader of the assigner that knew the worker may have been replaced.
		judge(1)
		time.Sleep(maxOrphaned + time.Millisecond)
		if _, err := s.sends(nil); !fault.Is(err, fault.ReasonUnavailable) {
			t.Errorf("no full report is required: %v", err)
		}
	})
}

// An invalid report is rejected as a whole, with an error that names the field.
func TestAnInvalidReportEndsTheStream(t *testing.T) {
	for name, m := range map[string]*controlv1.HeartbeatRequest{
		"a negative sequence": {Id: "a", Report: &controlv1.ExecutorReport{Sequence: -1}},
		"a worker of no name": {Id: "a", Report: &controlv1.ExecutorReport{Sequence: 1, Complete: true,
			Workers: []*controlv1.WorkerReport{{}}}},
		"a nil worker": {Id: "a", Report: &controlv1.ExecutorReport{Sequence: 1, Complete: true,
			Workers: []*controlv1.WorkerReport{nil}}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *session, _ *renewals, _ *Agents) {
				m.Incarnation = s.incarnation
				if _, err := s.sends(m); fault.Of(err).Kind != fault.Invalid || len(fault.Of(err).Fields) != 1 {
					t.Errorf("the stream ended with %v", err)
				}
				if s.workers.count() != 0 {
					t.Errorf("%d workers are running", s.workers.count())
				}
			})
		})
	}
}

// If a message makes the handler panic, only the stream of its agent ends.
func TestAPanicEndsTheStreamOfOneAgent(t *testing.T) {
	play(t, func(t *testing.T, s *session, _ *renewals, _ *Agents) {
		h := s.h
		broken := h.begin(t.Context(), &controlv1.HeartbeatRequest{Id: "b", Incarnation: 1}, newBack())
		broken.workers = nil // simulates a defect
		if _, err := broken.sends(&controlv1.HeartbeatRequest{Id: "b", Incarnation: 1,
			Report: &controlv1.ExecutorReport{Sequence: 1}}); !fault.Is(err, fault.ReasonInternal) {
			t.Errorf("its stream ended with %v", err)
		}
		if panics := h.loop.Status().Panics; len(panics) != 1 || panics[0].Peer != "executor b" {
			t.Errorf("panics %v", panics)
		}
		time.Sleep(time.Second) // simulated time
		if answer, err := s.sends(nil); err != nil || !answer.GetPresent() {
			t.Errorf("another agent is answered %v, %v", answer, err)
		}
	})
}

// Every replica reports the metrics of its heartbeats. This replica does not lead.
func TestHeartbeatMetrics(t *testing.T) {
	h := &Heartbeats{}
	for range 3 {
		h.streams.add(1)
	}
	h.streams.add(-1)
	h.streams.heartbeat(HeartbeatEvery / 2)
	h.streams.heartbeat(HeartbeatEvery + 200*time.Millisecond)
	h.streams.heartbeat(HeartbeatEvery + 2*time.Second)
	text := scrape(t, func(f process.Scrape) { h.Show(f) })
	for _, want := range []string{
		`berth_executor_state_heartbeat_streams 2`,
		`berth_executor_state_heartbeat_lateness_seconds_bucket{le="0.001"} 1`,
		`berth_executor_state_heartbeat_lateness_seconds_bucket{le="0.25"} 2`,
		`berth_executor_state_heartbeat_lateness_seconds_bucket{le="5"} 3`,
		`berth_executor_state_heartbeat_lateness_seconds_sum 2.2`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// Pending reports of changes are merged into one report, which contains each change in
// order. A complete report is not merged.
func TestPendingReportsAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []*controlv1.ExecutorReport
		next := make(chan struct{})
		r := newReports(func(ctx context.Context, req *controlv1.ReportWorkersRequest) (*controlv1.ReportWorkersAnswer,
			error) {
			calls = append(calls, req.GetReports()...)
			<-next
			return all(ctx, req)
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = r.Run(ctx) })
		answers := newBack()
		s := &session{
			h: &Heartbeats{reports: r, loop: loop.New(loop.Config[*inventory.Core]{})}, ctx: ctx, stream: answers, id: "a",
			workers:  newReportedWorkers(&sharedItems{}),
			admitted: make(chan struct{}),
		}
		s.admit()
		report := func(sequence int64, complete bool, states ...berthv1.Assignment_State) {
			m := &controlv1.ExecutorReport{Executor: "a", Sequence: sequence, Complete: complete}
			for _, state := range states {
				m.Workers = append(m.Workers, &controlv1.WorkerReport{State: state})
			}
			if !s.forward(m) {
				t.Errorf("no space for report %d", sequence)
			}
			synctest.Wait()
		}
		report(1, false, berthv1.Assignment_RUNNING)
		for sequence := int64(2); sequence <= 2*reportBacklog; sequence++ {
			report(sequence, false, berthv1.Assignment_RUNNING, berthv1.Assignment_COMPLETED)
		}
		const newest = 2 * reportBacklog
		report(newest+1, true)
		report(newest+2, false, berthv1.Assignment_RUNNING)
		report(newest+3, false, berthv1.Assignment_FAILED)
		for i, want := range []struct {
			sequence int64
			workers  int
			complete bool
		}{{1, 1, false}, {newest, 2 * (newest - 1), false}, {newest + 1, 0, true}, {newest + 3, 2, false}} {
			got := calls[i]
			if got.GetSequence() != want.sequence || len(got.GetWorkers()) != want.workers ||
				got.GetComplete() != want.complete {
				t.Errorf("call %d is report %d of %d workers, complete=%v; want %+v", i, got.GetSequence(), len(got.GetWorkers()),
					got.GetComplete(), want)
			}
			next <- struct{}{}
			synctest.Wait()
			if answer := <-answers.answers; answer.GetReport().GetSequence() != want.sequence {
				t.Errorf("answered %v", answer)
			}
		}
		if last := calls[3].GetWorkers(); last[0].GetState() != berthv1.Assignment_RUNNING ||
			last[1].GetState() != berthv1.Assignment_FAILED {
			t.Errorf("out of order: %v", last)
		}
		stop()
		running.Wait()
	})
}

// Merged reports fit in a message. A repeated change is in them once.
func TestMergedReportsAreLimited(t *testing.T) {
	worker := func(index int32, state berthv1.Assignment_State, size int) *controlv1.WorkerReport {
		return &controlv1.WorkerReport{Job: "j", Stage: "s", Index: index, Number: 1, State: state,
			Error: strings.Repeat("e", size)}
	}
	report := func(workers ...*controlv1.WorkerReport) *controlv1.ExecutorReport {
		return &controlv1.ExecutorReport{Workers: workers}
	}
	pending := report(worker(0, berthv1.Assignment_RUNNING, 0), worker(1, berthv1.Assignment_RUNNING, 0))
	for range 10 { // heartbeats
		if !merge(pending, report(worker(0, berthv1.Assignment_RUNNING, 0), worker(1, berthv1.Assignment_COMPLETED, 0))) {
			t.Fatal("not merged")
		}
	}
	if len(pending.GetWorkers()) != 3 || pending.GetWorkers()[2].GetState() != berthv1.Assignment_COMPLETED {
		t.Errorf("merged as %v", pending.GetWorkers())
	}
	if !merge(pending, report(worker(2, berthv1.Assignment_FAILED, reportCallBytes/2))) {
		t.Error("half a message was not merged")
	}
	if merge(pending, report(worker(3, berthv1.Assignment_FAILED, reportCallBytes/2))) ||
		proto.Size(pending) > reportCallBytes {
		t.Errorf("merged to %d bytes", proto.Size(pending))
	}
}

// A candidate has the volume that its reservation requests. The core refuses a request that
// cannot be read, as it refuses one without a resource.
func TestVolumesOfCandidates(t *testing.T) {
	keep := time.Minute
	want := &model.VolumeRequest{Resource: "disk", OnLoss: model.OnVolumeLossReplace, KeepFor: &keep}
	if got := candidateOf(&controlv1.Candidate{Uid: "u", Volume: wire.VolumeRequest(want)}).Volume; !got.Equal(want) {
		t.Errorf("requests %+v", got)
	}
	if got := candidateOf(&controlv1.Candidate{Uid: "u"}).Volume; got != nil {
		t.Errorf("requests %+v", got)
	}
	unknown := "LATER"
	got := candidateOf(&controlv1.Candidate{Uid: "u", Volume: &berthv1.VolumeRequest{Resource: "disk",
		OnLoss: &unknown}}).Volume
	if got == nil || got.Resource != "" {
		t.Errorf("requests %+v", got)
	}
}
