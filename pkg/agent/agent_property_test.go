package agent

import (
	"context"
	"errors"
	"flag"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"pgregory.net/rapid"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
	_ "berth.dev/testkit/fixedseed"
)

// Requests arrive in any order, starts are queued and take time, writes fail, and agents
// die. A (worker, epoch) runs at most once, and never after its end was reported. A worker
// name runs at one epoch at a time. The number of starts in progress stays within its
// limit. The current agent reports every worker that runs.
func TestAgentPromises(t *testing.T) {
	root := t.TempDir()
	// rapid must not measure time, because the time in a bubble does not advance here. With a
	// time limit, rapid would shrink a failure forever.
	const shrink = "rapid.shrinktime"
	was := flag.Lookup(shrink).Value.String()
	if err := flag.Set(shrink, "0s"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = flag.Set(shrink, was) }()
	synctest.Test(t, func(t *testing.T) {
		// rapid gets a wrapper and not the test itself. Otherwise rapid would read the deadline
		// of the test, and a test in a bubble has no deadline.
		rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) {
			dir, err := os.MkdirTemp(root, "")
			if err != nil {
				rt.Fatal(err)
			}
			p := &play{dir: dir, hosted: hosted{live: map[identity]*hostedWorker{}, pending: map[identity]*pendingStart{},
				ran: map[identity]bool{}, over: map[identity]bool{}}}
			p.open(rt)
			defer func() { p.fail(rt, p.close()) }()
			rt.Repeat(map[string]func(*rapid.T){
				"submit":  p.submit,
				"stop":    p.stop,
				"let":     p.let,
				"ready":   p.ready,
				"end":     p.end,
				"answer":  p.answer,
				"break":   p.breakDisk,
				"mend":    p.mendDisk,
				"restart": p.restart,
				"later":   func(*rapid.T) { time.Sleep(startWait + retryEndsAfter) },
				"":        p.check,
			})
		})
	})
}

const playStarts = 2

// hosted is the state of a host. It outlives the agents on the host.
type hosted struct {
	mu      sync.Mutex
	live    map[identity]*hostedWorker
	pending map[identity]*pendingStart
	// ran has the workers that ran. over has the workers whose end was reported. wrong
	// describes the first broken promise.
	ran, over map[identity]bool
	wrong     string
}

type hostedWorker struct {
	on       *hosted
	spec     Spec
	stopping bool
	ready    bool // it has reported that it is ready
	report   func()
	exit     *Exit // set when the worker ends, until the agent forgets the worker
	ended    func(Exit)
}

type pendingStart struct {
	spec  Spec
	ended func(Exit)
	word  chan error
}

// errDied is the result of a start whose agent died before it saw the result.
var errDied = errors.New("the agent died")

// driverOf is the driver that one agent uses on the host.
type driverOf struct{ *hosted }

func (h driverOf) Start(spec Spec, ended func(Exit)) (Handle, error) {
	id := spec.identity()
	s := &pendingStart{spec, ended, make(chan error, 1)}
	h.mu.Lock()
	h.pending[id] = s
	if len(h.pending) > playStarts {
		h.wrong = "too many starts at once"
	}
	h.mu.Unlock()
	if err := <-s.word; err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live[id], nil
}

// run starts a worker and checks that it may run.
func (h *hosted) run(s *pendingStart) {
	id := s.spec.identity()
	switch {
	case h.over[id]:
		h.wrong = "a worker runs after its end was reported"
	case h.ran[id]:
		h.wrong = "a worker runs twice"
	}
	for other, w := range h.live {
		if other.Worker == id.Worker && w.exit == nil {
			h.wrong = "a name runs at two epochs"
		}
	}
	h.ran[id] = true
	h.live[id] = &hostedWorker{on: h, spec: s.spec, report: s.spec.Ready, ended: s.ended}
}

func (h driverOf) Adopt(ready func(Spec), ended func(Spec, Exit)) (adopted []Adopted, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.live {
		w.report, w.ended = func() { ready(w.spec) }, func(x Exit) { ended(w.spec, x) }
		adopted = append(adopted, Adopted{Spec: w.spec, Handle: w, Since: time.Now(), Ready: w.ready, Stopping: w.stopping})
		if w.exit != nil {
			go w.ended(*w.exit)
		}
	}
	return adopted, nil
}

func (driverOf) Close() error { return nil }

func (w *hostedWorker) Stop(time.Duration, bool) error {
	w.on.mu.Lock()
	defer w.on.mu.Unlock()
	w.stopping = true
	return nil
}

func (w *hostedWorker) Forget() {
	w.on.mu.Lock()
	defer w.on.mu.Unlock()
	delete(w.on.live, w.spec.identity())
}

// play is a host, its current agent and its disk.
type play struct {
	hosted
	dir         string
	agent       *Agent
	incarnation int64
	broken      *os.File // replaces the file of the journal while writes fail
	whole       *os.File
	calls       sync.WaitGroup
}

func (p *play) fail(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func (p *play) open(t *rapid.T) {
	a, err := New(Config{
		ID: "host", Dir: p.dir, Driver: driverOf{&p.hosted}, Conn: (*grpc.ClientConn)(nil), Log: quiet(),
		Starts: playStarts, StartTimeout: 1000 * time.Hour,
	})
	p.fail(t, err)
	p.incarnation++
	a.mu.Lock()
	a.ledger.begin(p.incarnation, 0)
	a.mu.Unlock()
	p.agent = a
}

// close ends an agent, with or without an orderly shutdown. State that the agent has not
// written is lost.
func (p *play) close() error {
	p.mu.Lock()
	for id, s := range p.pending {
		delete(p.pending, id)
		if p.live[id] != nil {
			s.word <- nil // The keeper of the worker keeps running.
		} else {
			s.word <- errDied // The error promises that the worker never runs.
		}
	}
	p.mu.Unlock()
	if p.broken != nil {
		p.mend()
	}
	err := p.agent.Close()
	p.calls.Wait()
	return err
}

func (p *play) restart(t *rapid.T) {
	failing := p.broken != nil
	p.mu.Lock()
	for _, id := range p.sorted(p.pending) {
		// The keeper may keep running. The next agent then adopts its worker.
		if rapid.Bool().Draw(t, "carries on") {
			p.run(p.pending[id])
		}
	}
	p.mu.Unlock()
	p.fail(t, p.close())
	p.open(t)
	if failing {
		p.breakDisk(t)
	}
}

func (p *play) sorted(pending map[identity]*pendingStart) []identity {
	var ids []identity
	for id := range pending {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, identity.compare)
	return ids
}

func (p *play) draw(t *rapid.T) *controlv1.SubmitTaskRequest {
	order := submit(rapid.Int32Range(0, 3).Draw(t, "index"), p.incarnation, "x")
	order.Worker.Epoch = rapid.Int64Range(1, 3).Draw(t, "epoch")
	if rapid.Bool().Draw(t, "loads") {
		order.Task.Readiness = berthv1.Readiness_REPORTED.Enum()
	}
	return order
}

func (p *play) submit(t *rapid.T) {
	order := p.draw(t)
	a := p.agent
	p.calls.Go(func() {
		if answer, err := trySubmit(context.Background(), a, order); err == nil {
			p.heard(answer.Worker)
		}
	})
}

func (p *play) stop(t *rapid.T) {
	order := p.draw(t)
	a := p.agent
	p.calls.Go(func() {
		if answer, err := tryStop(context.Background(), a, stopOf(order, time.Second)); err == nil {
			p.heard(answer.Worker)
		}
	})
}

// ready makes a worker report that it is ready.
func (p *play) ready(t *rapid.T) {
	p.mu.Lock()
	var ids []identity
	for id, w := range p.live {
		if w.spec.loads() && w.exit == nil {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		p.mu.Unlock()
		return
	}
	slices.SortFunc(ids, identity.compare)
	w := p.live[rapid.SampledFrom(ids).Draw(t, "worker")]
	w.ready = true
	report := w.report
	p.mu.Unlock()
	report()
}

// heard records what an agent has reported about a worker. A reported end is a promise.
func (p *play) heard(w *controlv1.WorkerReport) {
	id := identity{model.Worker{Job: w.Job, Stage: w.Stage, ID: model.WorkerID{Index: w.Index, Number: w.Number}}, w.Epoch}
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.live[id]; h != nil && w.State == berthv1.Assignment_RUNNING && h.spec.loads() && !h.ready {
		p.wrong = "a worker is RUNNING before it is ready"
	}
	if !model.WorkerState(w.State).Terminal() {
		return
	}
	p.over[id] = true
	if h := p.live[id]; h != nil && h.exit == nil {
		p.wrong = "an end is reported of a worker that runs"
	}
}

func (p *play) let(t *rapid.T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) == 0 {
		return
	}
	id := rapid.SampledFrom(p.sorted(p.pending)).Draw(t, "start")
	s := p.pending[id]
	delete(p.pending, id)
	if rapid.Bool().Draw(t, "fails") {
		s.word <- startFailed("no luck")
		return
	}
	p.run(s)
	s.word <- nil
}

func (p *play) end(t *rapid.T) {
	p.mu.Lock()
	var ids []identity
	for id, w := range p.live {
		if w.exit == nil {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		p.mu.Unlock()
		return
	}
	slices.SortFunc(ids, identity.compare)
	w := p.live[rapid.SampledFrom(ids).Draw(t, "worker")]
	x := exitOf(0, w.stopping)
	w.exit = &x
	ended := w.ended
	p.mu.Unlock()
	ended(x)
}

// answer acknowledges the ends in the agent's latest report.
func (p *play) answer(*rapid.T) {
	p.agent.mu.Lock()
	report := p.agent.ledger.report(complete)
	p.agent.mu.Unlock()
	answer := &controlv1.ExecutorReportAnswer{Sequence: report.Sequence}
	for _, w := range report.Workers {
		p.heard(w)
		if model.WorkerState(w.State).Terminal() {
			answer.Ended = append(answer.Ended, w)
		}
	}
	p.agent.answered(&controlv1.HeartbeatAnswer{Report: answer})
}

func (p *play) breakDisk(t *rapid.T) {
	if p.broken != nil {
		return
	}
	p.agent.mu.Lock()
	defer p.agent.mu.Unlock()
	var err error
	p.broken, err = os.Open(p.agent.journal.path)
	p.fail(t, err)
	p.whole, p.agent.journal.file = p.agent.journal.file, p.broken
}

func (p *play) mendDisk(*rapid.T) {
	if p.broken != nil {
		p.mend()
	}
}

func (p *play) mend() {
	p.agent.mu.Lock()
	defer p.agent.mu.Unlock()
	p.agent.journal.file = p.whole
	_ = p.broken.Close()
	p.broken = nil
}

// check compares the running workers with the reports about them.
func (p *play) check(t *rapid.T) {
	synctest.Wait()
	reported := map[int32]map[int64]berthv1.Assignment_State{}
	p.agent.mu.Lock()
	report := p.agent.ledger.report(complete)
	p.agent.mu.Unlock()
	for _, w := range report.Workers {
		p.heard(w)
		if reported[w.Index] == nil {
			reported[w.Index] = map[int64]berthv1.Assignment_State{}
		}
		reported[w.Index][w.Epoch] = w.State
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	starts := len(p.pending)
	for id, w := range p.live {
		state := model.WorkerState(reported[id.ID.Index][id.Epoch])
		if w.exit == nil && (state == 0 || state.Terminal()) {
			t.Fatalf("%v runs, and is reported as %v", id, state)
		}
		if w.exit == nil && w.ready && state == model.WorkerStarting {
			t.Fatalf("%v is ready, and is reported as %v", id, state)
		}
		if w.exit == nil && w.spec.loads() && !w.ready && !w.stopping {
			starts++
		}
	}
	if starts > playStarts {
		t.Fatalf("%d workers are starting or loading", starts)
	}
	if p.wrong != "" {
		t.Fatal(p.wrong)
	}
}
