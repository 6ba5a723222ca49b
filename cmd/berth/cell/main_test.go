package cell

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	controlv1 "berth.dev/api/berth/control/v1"
	recordv1 "berth.dev/api/berth/record/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth-agent/host"
	"berth.dev/cmd/berth/internal/cluster"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/resource"
)

// child is the cluster that is the cell in all tests. Each test uses executors with a SKU of
// its own.
var child *cluster.Cluster

// worlds counts the worlds, for names that no other one has.
var worlds atomic.Int64

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		child, err = cluster.Start(context.Background(), cluster.Config{Listen: "127.0.0.1:0", LogFormat: "text",
			LogLevel: "error", Bounded: true})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer child.Close()
		return m.Run()
	}())
}

// testPatience bounds every wait of a test for the next change. Only a failure takes this long.
const testPatience = time.Minute

// world is a cell with executors of its own and a parent that the test plays.
type world struct {
	*testing.T
	client *client.Client
	sku    string
	hosts  *host.Host
	config Config
	driver *Driver
	// adopted has what the last driver adopted.
	adopted []agent.Adopted

	mu      sync.Mutex
	offers  map[string]*controlv1.Offer
	answers []string
	freed   int
	// isolated is set while the parent sends nothing.
	isolated bool
	// workers has the states that the driver reported, by worker.
	workers map[string][]string
	// placed has the hosts that the driver reported, by worker.
	placed  map[model.WorkerID]string
	changed chan struct{}
	stop    func()
}

// newWorld starts executors with a slot each, and a driver.
func newWorld(t *testing.T, executors int, change func(*Config)) *world {
	t.Helper()
	name := fmt.Sprintf("%s-%d", t.Name(), worlds.Add(1))
	w := &world{T: t, sku: name, offers: map[string]*controlv1.Offer{}, workers: map[string][]string{},
		placed:  map[model.WorkerID]string{},
		changed: make(chan struct{})}
	var err error
	if w.client, err = client.Dial([]string{child.Gateway()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.client.Close() })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	secured, err := process.Security{}.Secure("default", identity.Agent, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(secured.Close)
	w.hosts = host.Open(context.Background(), listener, []string{child.AgentsGateway()}, secured, nil, quiet)
	t.Cleanup(func() {
		if err := w.hosts.Close(true, testPatience); err != nil {
			t.Error(err)
		}
	})
	w.simulate("", executors, 1)
	w.config = Config{ID: "z" + name, Child: w.client, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&w.config)
	}
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// simulate starts executors with a SKU that has a suffix.
func (w *world) simulate(suffix string, executors int, slots int64) {
	w.Helper()
	sku := w.sku + suffix
	if err := w.hosts.Simulate(sku, executors, sku, resource.Vector{resource.Slots: slots}, 0); err != nil {
		w.Fatal(err)
	}
	if err := running.AwaitReady(w.Context(), w.client, sku, executors, testPatience); err != nil {
		w.Fatal(err)
	}
}

// start starts a driver that adopts what an earlier one left, and a parent that confirms its
// offers every few milliseconds.
func (w *world) start() {
	w.Helper()
	w.adopt()
	w.attach()
}

// detach kills the driver and starts the next one without its parent, so that it makes no call
// to the child.
func (w *world) detach() {
	w.Helper()
	w.stop()
	w.adopt()
	w.stop = func() { _ = w.driver.Close() }
}

// adopt starts a driver that adopts what an earlier one left.
func (w *world) adopt() {
	w.Helper()
	d, err := New(w.config)
	if err != nil {
		w.Fatal(err)
	}
	if w.adopted, err = d.Adopt(func(s agent.Spec) { w.report(s, "ready") },
		func(s agent.Spec, x agent.Exit) { w.report(s, show(x)) }); err != nil {
		w.Fatal(err)
	}
	w.driver = d
}

// attach starts the parent of the driver.
func (w *world) attach() {
	d := w.driver
	d.Attach(w)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		beat := time.NewTicker(20 * time.Millisecond)
		defer beat.Stop()
		for {
			w.beat()
			select {
			case <-beat.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	w.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		_ = d.Close()
	})
}

// restart kills the driver and starts the next one.
func (w *world) restart(between func()) {
	w.Helper()
	w.stop()
	between()
	w.start()
}

func (w *world) beat() {
	w.mu.Lock()
	var list []*controlv1.Offer
	for _, o := range w.offers {
		list = append(list, o)
	}
	isolated := w.isolated
	w.mu.Unlock()
	if !isolated {
		w.driver.Offered(list)
	}
}

// isolate makes the parent send nothing, or send again.
func (w *world) isolate(yes bool) {
	w.mu.Lock()
	w.isolated = yes
	w.mu.Unlock()
}

// AnswerOffers implements Parent. The parent confirms what the cell accepts.
func (w *world) AnswerOffers(answers ...*controlv1.OfferAnswer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range answers {
		text := fmt.Sprintf("%s.%d %v", a.Uid, a.Number, a.State)
		if a.Reason != "" {
			text += " " + a.Reason
		}
		w.answers = append(w.answers, text)
		if o := w.offers[a.Uid]; o != nil && o.Number == a.Number && o.State == berthv1.CellOffer_PENDING {
			w.offers[a.Uid] = offerIn(o, a.State)
		}
	}
	w.emit()
}

// Placed implements Parent.
func (w *world) Placed(worker model.Worker, epoch int64, host string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.placed[worker.ID] = fmt.Sprintf("%s at epoch %d", host, epoch)
	w.emit()
}

// Freed implements Parent.
func (w *world) Freed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freed++
	w.emit()
}

func (w *world) report(s agent.Spec, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := fmt.Sprintf("%s/%d.%d", s.UID, s.Worker.ID.Index, s.Worker.ID.Number)
	w.workers[key] = append(w.workers[key], text)
	w.emit()
}

func (w *world) emit() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// show returns how a worker ended as a text.
func show(x agent.Exit) string {
	text := "ended"
	if x.Code != nil {
		text += fmt.Sprintf(" code %d", *x.Code)
	}
	if x.Stopped {
		text += " stopped"
	}
	if x.Reason != "" {
		text += " " + string(x.Reason)
	}
	return text
}

// await waits until the condition holds, with the lock held. It fails if nothing changes for a long
// time.
func (w *world) await(what string, holds func() bool) {
	w.Helper()
	for {
		w.mu.Lock()
		ok, changed := holds(), w.changed
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-time.After(testPatience):
			w.mu.Lock()
			defer w.mu.Unlock()
			w.Fatalf("waited in vain for %s: %.4000s", what, fmt.Sprint(w.answers, w.workers))
		}
	}
}

// answered waits until the last answer is the given one.
func (w *world) answered(want string) {
	w.Helper()
	w.await(want, func() bool { return len(w.answers) > 0 && w.answers[len(w.answers)-1] == want })
}

// reported waits until the last report about a worker is the given one.
func (w *world) reported(worker, want string) {
	w.Helper()
	w.await(worker+" "+want, func() bool {
		list := w.workers[worker]
		return len(list) > 0 && list[len(list)-1] == want
	})
}

// offer offers a reservation with workers 5.2, 6.2 and so on, as number 1.
func (w *world) offer(uid string, workers int32, change ...func(*controlv1.Offer)) {
	o := &controlv1.Offer{
		Uid: uid, Number: 1, State: berthv1.CellOffer_PENDING, Epoch: 7, Path: []string{"root"},
		Key:          &berthv1.ReservationKey{Job: "train", Stage: "map", Name: "main"},
		Constraints:  &berthv1.Constraints{Sku: w.sku, Pools: []string{"cells"}, Attributes: map[string]string{"a": "b"}},
		Workers:      []*recordv1.WorkerRun{{First: 5, Last: 4 + workers, Number: 2}},
		AnswerWithin: durationpb.New(30 * time.Second),
	}
	for _, f := range change {
		f(o)
	}
	w.mu.Lock()
	w.offers[uid] = o
	w.mu.Unlock()
	w.beat()
}

// move gives an offer another state.
func (w *world) move(uid string, state berthv1.CellOffer_State) {
	w.mu.Lock()
	w.offers[uid] = offerIn(w.offers[uid], state)
	w.mu.Unlock()
	w.beat()
}

// choose makes an offer BOUND while the reservation stays held.
func (w *world) choose(uid string) {
	w.mu.Lock()
	w.offers[uid] = offerIn(w.offers[uid], berthv1.CellOffer_BOUND)
	w.offers[uid].Held = true
	w.mu.Unlock()
	w.beat()
}

// end removes an offer from the list.
func (w *world) end(uid string) {
	w.mu.Lock()
	delete(w.offers, uid)
	w.mu.Unlock()
	w.beat()
}

// offerIn returns an offer in another state, as a parent sends it.
func offerIn(o *controlv1.Offer, state berthv1.CellOffer_State) *controlv1.Offer {
	next := &controlv1.Offer{Uid: o.Uid, Number: o.Number, State: state}
	if state == berthv1.CellOffer_ACCEPTED || state == berthv1.CellOffer_PENDING {
		next.Key, next.Epoch, next.Constraints, next.Workers = o.Key, o.Epoch, o.Constraints, o.Workers
		next.Path, next.AnswerWithin, next.HoldFor = o.Path, o.AnswerWithin, o.HoldFor
	}
	return next
}

// spec returns a worker of a reservation. The payload is that of a simulated worker.
func (w *world) spec(uid string, index int32, payload string) agent.Spec {
	spec := agent.Spec{Executor: w.config.ID, UID: uid, Epoch: 7, Reservation: "main", Command: "work",
		Worker:  model.Worker{Job: "train", Stage: "map", ID: model.WorkerID{Index: index, Number: 2}},
		Payload: []byte(payload), Grace: time.Second, StopSignal: "SIGINT"}
	return spec.OnReady(func() { w.report(spec, "ready") })
}

// run starts a worker of a reservation.
func (w *world) run(uid string, index int32, payload string) agent.Handle {
	w.Helper()
	spec := w.spec(uid, index, payload)
	handle, err := w.driver.Start(spec, func(x agent.Exit) { w.report(spec, show(x)) })
	if err != nil {
		w.Fatal(err)
	}
	return handle
}

// starting is a call of Start.
type starting struct {
	stop   chan struct{}
	handle agent.Handle
	err    error
	done   chan struct{}
}

// begin calls Start, and returns once the driver knows the worker or Start has returned.
func (w *world) begin(uid string, index int32) *starting {
	s := &starting{stop: make(chan struct{}), done: make(chan struct{})}
	spec := w.spec(uid, index, "").OnInterrupted(s.stop)
	go func() {
		defer close(s.done)
		s.handle, s.err = w.driver.Start(spec, func(x agent.Exit) { w.report(spec, show(x)) })
	}()
	for {
		w.driver.mu.Lock()
		h := w.driver.holds[uid]
		known := h != nil && h.workers[index] != nil
		w.driver.mu.Unlock()
		select {
		case <-s.done:
			return s
		case <-time.After(time.Millisecond):
		}
		if known {
			return s
		}
	}
}

// wait waits for the result.
func (s *starting) wait() (agent.Handle, error) {
	<-s.done
	return s.handle, s.err
}

// interrupt interrupts the start and returns the handle.
func (s *starting) interrupt() agent.Handle {
	close(s.stop)
	<-s.done
	return s.handle
}

// key returns the key of a reservation in the child.
func (w *world) key(uid string) client.Key {
	return client.Key{Job: w.config.ID + ".train", Stage: "map", Name: uid}
}

// poll reads the child's reservation until the condition holds, for changes that have no event.
func (w *world) poll(uid string, holds func(*berthv1.Reservation) bool) *berthv1.Reservation {
	w.Helper()
	every, deadline := time.NewTicker(5*time.Millisecond), time.After(testPatience)
	defer every.Stop()
	for {
		r, err := w.client.Get(w.Context(), w.key(uid))
		if err != nil {
			w.Fatal(err)
		}
		if holds(r) {
			return r
		}
		select {
		case <-every.C:
		case <-deadline:
			w.Fatalf("waited in vain: %v", r)
		}
	}
}

// becomes waits until the child's reservation is in a state, and returns it.
func (w *world) becomes(uid string, states ...berthv1.Reservation_State) *berthv1.Reservation {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), testPatience)
	defer cancel()
	r, err := w.client.WaitFor(ctx, w.key(uid), states...)
	if err != nil {
		w.Fatalf("%v: %v", r, err)
	}
	return r
}
