package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	controlv1 "berth.dev/api/berth/control/v1"
	recordv1 "berth.dev/api/berth/record/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/testkit/porttest"
)

// offering is a control plane that offers reservations to a cell.
type offering struct {
	*control
	// list is the list in the next answer. sent is the list in the last one of the stream, so
	// that an equal list is sent as unchanged.
	list []*controlv1.Offer
	// answers has the answers in each message, and freed counts the messages with freed.
	answers []string
	freed   int
	kind    berthv1.Executor_Kind
	// broken, if set, breaks the stream at the next message.
	broken bool
}

func (o *offering) Heartbeat(stream grpc.BidiStreamingServer[controlv1.HeartbeatRequest,
	controlv1.HeartbeatAnswer]) error {
	var last int64
	var sent []*controlv1.Offer
	for first := true; ; first = false {
		req, err := stream.Recv()
		if err != nil {
			return nil
		}
		answer, err := o.beat(req, first, &last)
		if err != nil {
			return err
		}
		o.mu.Lock()
		var texts []string
		for _, a := range req.Answers {
			texts = append(texts, fmt.Sprintf("%s.%d %v", a.Uid, a.Number, a.State))
		}
		slices.Sort(texts)
		text := strings.Join(texts, ",")
		if first {
			text = "first: " + text
		}
		if o.answers = append(o.answers, text); req.Freed {
			o.freed++
		}
		answer.Offers = &controlv1.OfferList{Offers: o.list}
		if !first && slices.Equal(sent, o.list) {
			answer.Offers = &controlv1.OfferList{Unchanged: true}
		}
		sent = o.list
		broken := o.broken
		o.broken = false
		o.emit()
		o.mu.Unlock()
		if broken {
			return nil
		}
		if err := stream.Send(answer); err != nil {
			return nil
		}
	}
}

// cellDriver is a cell whose workers are simulated, and that records its offers.
type cellDriver struct {
	Simulated

	mu     sync.Mutex
	lists  []string
	specs  map[model.WorkerID]Spec
	ends   map[model.WorkerID]func(Exit)
	signal chan struct{}
	// adopts has the specs of workers that ended while no agent ran.
	adopts []Spec
}

func newCellDriver() *cellDriver {
	return &cellDriver{specs: map[model.WorkerID]Spec{}, ends: map[model.WorkerID]func(Exit){},
		signal: make(chan struct{}, 1)}
}

func (d *cellDriver) Offered(offers []*controlv1.Offer) {
	var texts []string
	for _, o := range offers {
		texts = append(texts, fmt.Sprintf("%s.%d %v", o.Uid, o.Number, o.State))
	}
	d.mu.Lock()
	d.lists = append(d.lists, strings.Join(texts, ","))
	d.mu.Unlock()
	select {
	case d.signal <- struct{}{}:
	default:
	}
}

// Start implements Driver without Ready, so that a worker is STARTING until the test calls it.
func (d *cellDriver) Start(spec Spec, ended func(Exit)) (Handle, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.specs[spec.Worker.ID], d.ends[spec.Worker.ID] = spec, ended
	return d.Simulated.Start(Spec{}, ended)
}

// Adopt implements Driver. The workers end at once.
func (d *cellDriver) Adopt(_ func(Spec), ended func(Spec, Exit)) (adopted []Adopted, err error) {
	for _, spec := range d.adopts {
		handle, err := d.Simulated.Start(Spec{}, func(Exit) {})
		if err != nil {
			return nil, err
		}
		adopted = append(adopted, Adopted{Spec: spec, Handle: handle, Ready: true, Ended: true})
		go ended(spec, Exit{Code: new(int32)})
	}
	return adopted, nil
}

// awaitLists waits until the driver has got a list at least n times since the last call.
func (d *cellDriver) awaitLists(t *testing.T, list string, n int) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		d.mu.Lock()
		got, lists := 0, slices.Clone(d.lists)
		for _, one := range lists {
			if one == list {
				got++
			}
		}
		if got >= n {
			d.lists = nil
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		select {
		case <-d.signal:
		case <-deadline:
			t.Fatalf("waited in vain for %q: %q", list, lists)
		}
	}
}

// offerOf returns an offer, PENDING by default.
func offerOf(uid string, number int64, change ...func(*controlv1.Offer)) *controlv1.Offer {
	o := &controlv1.Offer{Uid: uid, Number: number, State: berthv1.CellOffer_PENDING, Epoch: 1,
		Key:     &berthv1.ReservationKey{Job: "j", Stage: "s", Name: "main"},
		Workers: []*recordv1.WorkerRun{{First: 0, Last: 1, Number: 1}}, AnswerWithin: durationpb.New(time.Second)}
	for _, f := range change {
		f(o)
	}
	return o
}

// cellAgent runs the agent of a cell against a control plane.
func cellAgent(t *testing.T) (*offering, *cellDriver, *Agent) {
	t.Helper()
	o, d := &offering{control: newControl(20 * time.Millisecond)}, newCellDriver()
	address, _ := serveControl(t, o, nil, porttest.Hold(t))
	a, _ := runAgent(t, Config{ID: "zone", Driver: d, Cell: d, Conn: dial(t, address), Log: quiet()})
	o.registered(t, "zone", 1)
	return o, d, a
}

func (o *offering) Register(ctx context.Context, req *controlv1.RegisterRequest) (*controlv1.RegisterAnswer, error) {
	o.mu.Lock()
	o.kind = req.Kind
	if len(req.Resources) > 0 {
		o.wrong = append(o.wrong, "a cell has resources")
	}
	o.mu.Unlock()
	return o.control.Register(ctx, req)
}

func (o *offering) set(list ...*controlv1.Offer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = list
}

// awaitAnswers waits for a message with exactly these answers.
func (o *offering) awaitAnswers(t *testing.T, want string) {
	t.Helper()
	o.await(t, want, func() bool {
		at := slices.Index(o.answers, want)
		if at >= 0 {
			o.answers = o.answers[at+1:]
		}
		return at >= 0
	})
}

// A cell registers as such, gets each list and the confirmation that it has not changed, and
// its answers are sent at once and repeated until the list shows them, and on each stream.
func TestOffers(t *testing.T) {
	o, d, a := cellAgent(t)
	if o.kind != berthv1.Executor_CELL {
		t.Errorf("registered as %v", o.kind)
	}
	o.set(offerOf("u", 1), offerOf("v", 1))
	d.awaitLists(t, "u.1 PENDING,v.1 PENDING", 3)
	answer := func(uid string, number int64, state berthv1.CellOffer_State) {
		a.AnswerOffers(&controlv1.OfferAnswer{Uid: uid, Number: number, State: state})
	}
	answer("u", 1, berthv1.CellOffer_ACCEPTED)
	answer("w", 1, berthv1.CellOffer_ACCEPTED) // never offered
	for range 3 {
		o.awaitAnswers(t, "u.1 ACCEPTED")
	}
	answer("v", 1, berthv1.CellOffer_REJECTED)
	a.Freed()
	o.await(t, "freed", func() bool { return o.freed == 1 })
	o.set(offerOf("u", 1, func(o *controlv1.Offer) { o.State = berthv1.CellOffer_ACCEPTED }), offerOf("v", 2))
	d.awaitLists(t, "u.1 ACCEPTED,v.2 PENDING", 3)
	o.mu.Lock()
	o.answers, o.broken = nil, true
	o.mu.Unlock()
	o.awaitAnswers(t, "first: u.1 ACCEPTED,v.1 REJECTED")
	if slices.ContainsFunc(o.answers, func(s string) bool { return s != "" }) {
		t.Errorf("repeated the answers %q", o.answers)
	}
	o.set(offerOf("v", 2))
	d.awaitLists(t, "v.2 PENDING", 1)
	o.mu.Lock()
	o.answers, o.broken = nil, true
	o.mu.Unlock()
	o.awaitAnswers(t, "first: v.1 REJECTED")
	if o.freed != 1 {
		t.Errorf("reported %d times that capacity became free", o.freed)
	}
}

// Offers that are not valid are left out, and a list that is too long is ignored.
func TestBadOffers(t *testing.T) {
	for name, bad := range map[string]func(*controlv1.Offer){
		"no UID":          func(o *controlv1.Offer) { o.Uid = "" },
		"a UID of a path": func(o *controlv1.Offer) { o.Uid = "../x" },
		"no number":       func(o *controlv1.Offer) { o.Number = 0 },
		"no key":          func(o *controlv1.Offer) { o.Key = nil },
		"no epoch":        func(o *controlv1.Offer) { o.Epoch = -1 },
		"a long path":     func(o *controlv1.Offer) { o.Path = make([]string, 9) },
		"a bad path":      func(o *controlv1.Offer) { o.Path = []string{"a/b"} },
		"no workers":      func(o *controlv1.Offer) { o.Workers = nil },
		"too many workers": func(o *controlv1.Offer) {
			o.Workers = []*recordv1.WorkerRun{{First: 0, Last: model.MaxIndex, Number: 1}}
		},
		"a negative time": func(o *controlv1.Offer) { o.HoldFor = durationpb.New(-1) },
	} {
		if err := checkOffer(offerOf("u", 1, bad)); fault.Of(err) == nil || fault.Of(err).Kind != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkOffer(&controlv1.Offer{Uid: "u", Number: 1, State: berthv1.CellOffer_BOUND}); err != nil {
		t.Error(err)
	}
	d := newCellDriver()
	a, err := New(Config{ID: "zone", Driver: d, Cell: d, Conn: dial(t, "127.0.0.1:1"), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var many []*controlv1.Offer
	for i := range model.MaxOffers + 1 {
		many = append(many, offerOf(fmt.Sprint("u", i), 1))
	}
	for _, list := range []*controlv1.OfferList{
		{Unchanged: true}, // nothing came before
		{Partial: true, Offers: []*controlv1.Offer{offerOf("u", 1)}},
		{Offers: []*controlv1.Offer{offerOf("u", 1), offerOf("v", 0), nil, offerOf("w", 1)}},
		{Unchanged: true},
		{Partial: true, Offers: []*controlv1.Offer{offerOf("w", 2), offerOf("x", 1)}, Ended: []string{"u", "y"}},
		{Partial: true, Offers: []*controlv1.Offer{offerOf("x", 0)}},
		{Partial: true, Offers: many},
		{Partial: true, Ended: []string{"w"}}, // nothing valid came before
		{Offers: many},
		{Unchanged: true},
		{},
	} {
		a.offered(list)
	}
	if want := []string{"u.1 PENDING,w.1 PENDING", "u.1 PENDING,w.1 PENDING", "w.2 PENDING,x.1 PENDING", "w.2 PENDING",
		""}; !slices.Equal(d.lists, want) {
		t.Errorf("the driver got %q, want %q", d.lists, want)
	}
}

// A list of an older revision, from another replica, ends no offer and drops no answer. The changes in
// the stream of that replica are not lost.
func TestOldOffers(t *testing.T) {
	d := newCellDriver()
	a, err := New(Config{ID: "zone", Driver: d, Cell: d, Conn: dial(t, "127.0.0.1:1"), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	u, v, w := offerOf("u", 1), offerOf("v", 1), offerOf("w", 1)
	a.offered(&controlv1.OfferList{Revision: 9, Offers: []*controlv1.Offer{u, v}})
	a.AnswerOffers(&controlv1.OfferAnswer{Uid: "v", Number: 1, State: berthv1.CellOffer_ACCEPTED})
	a.beginOffers(time.Second)
	a.offered(&controlv1.OfferList{Revision: 7, Offers: []*controlv1.Offer{u, w}})
	a.offered(&controlv1.OfferList{Revision: 8, Partial: true, Offers: []*controlv1.Offer{v}})
	a.offered(&controlv1.OfferList{Revision: 8, Unchanged: true})
	if a.offers.answers["v"] == nil {
		t.Error("an old list dropped an answer")
	}
	a.offered(&controlv1.OfferList{Revision: 9, Unchanged: true})
	a.offered(&controlv1.OfferList{Revision: 10, Partial: true, Ended: []string{"u", "v"}})
	if a.offers.answers["v"] != nil {
		t.Error("the answer to an ended offer is kept")
	}
	a.offers.registered() // after a restore, revisions are lower
	a.offered(&controlv1.OfferList{Revision: 3, Partial: true, Ended: []string{"w"}})
	if want := []string{"u.1 PENDING,v.1 PENDING", "u.1 PENDING,v.1 PENDING,w.1 PENDING", "w.1 PENDING",
		""}; !slices.Equal(d.lists, want) {
		t.Errorf("the driver got %q, want %q", d.lists, want)
	}
}

// Many answers are sent in several messages.
func TestManyAnswers(t *testing.T) {
	o, d, a := cellAgent(t)
	var list []*controlv1.Offer
	var answers []*controlv1.OfferAnswer
	for i := range maxAnswers + 1 {
		list = append(list, offerOf(fmt.Sprint("u", i), 1, func(o *controlv1.Offer) { o.State = berthv1.CellOffer_ACCEPTED }))
		answers = append(answers, &controlv1.OfferAnswer{Uid: fmt.Sprint("u", i), Number: 1,
			Message: strings.Repeat("é", maxAnswerText)})
	}
	o.set(list...)
	o.await(t, "the list", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.lists) > 0 && d.lists[len(d.lists)-1] != ""
	})
	a.AnswerOffers(answers...)
	o.await(t, "all answers", func() bool {
		n := 0
		for _, text := range o.answers {
			n += strings.Count(text, ".1 ")
		}
		return n == maxAnswers+1
	})
}

// A worker of a cell is RUNNING only once its driver says so, although its task does not report
// readiness, and any number of workers start at the same time. The cell enforces the start
// limit. An end with a reason is a failure.
func TestCellWorkers(t *testing.T) {
	o, d, a := cellAgent(t)
	const workers = 100
	for i := range int32(workers) {
		req := submit(i, 1, "work")
		req.Executor, req.Nonce = "zone", o.nonces["zone"]
		req.Task.StartTimeout = durationpb.New(time.Millisecond)
		mustBe(t, a, req, berthv1.Assignment_STARTING)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.specs) != workers {
		t.Fatalf("%d workers start", len(d.specs))
	}
	for id, spec := range d.specs {
		if spec.Readiness != model.ReadyStarted || spec.StartLimit != time.Millisecond {
			t.Fatalf("worker %v has %v, %v", id, spec.Readiness, spec.StartLimit)
		}
		spec.Ready()
	}
	o.awaitState(t, key(7), "RUNNING")
	d.ends[model.WorkerID{Index: 7, Number: 1}](Exit{Reason: fault.ReasonCellWorkerLost, Problem: "lost", Stopped: true})
	if w := o.awaitState(t, key(7), "FAILED"); w.Reason != string(fault.ReasonCellWorkerLost) || w.Error != "lost" {
		t.Errorf("the end is %v", w)
	}
}

// An agent reports an ended worker of a cell again only if the parent has not acknowledged the
// end to an earlier agent.
func TestAcknowledgedEndsOfACell(t *testing.T) {
	o, first := &offering{control: newControl(20 * time.Millisecond)}, newCellDriver()
	address, _ := serveControl(t, o, nil, porttest.Hold(t))
	dir := t.TempDir()
	run := func(d *cellDriver) (*Agent, func()) {
		return runAgent(t, Config{ID: "zone", Driver: d, Cell: d, Conn: dial(t, address), Log: quiet(), Dir: dir})
	}
	a, stop := run(first)
	o.registered(t, "zone", 1)
	var specs []Spec
	for i := range int32(2) {
		req := submit(i, 1, "work")
		req.Executor = "zone"
		mustSubmit(t, a, req)
		first.mu.Lock()
		id := model.WorkerID{Index: i, Number: 1}
		spec, ended := first.specs[id], first.ends[id]
		first.mu.Unlock()
		o.mu.Lock()
		o.deaf = i == 1
		o.mu.Unlock()
		ended(Exit{Code: new(int32)})
		o.awaitState(t, key(int(i)), "COMPLETED")
		if i == 0 {
			o.await(t, "the acknowledgement", func() bool {
				a.mu.Lock()
				defer a.mu.Unlock()
				return len(a.ledger.entries) == 0
			})
		}
		specs = append(specs, spec)
	}
	stop()
	o.mu.Lock()
	clear(o.history)
	o.deaf = false
	o.mu.Unlock()
	second := newCellDriver()
	second.adopts = specs
	a, stop = run(second)
	defer stop()
	o.registered(t, "zone", 2)
	o.await(t, "the end", func() bool {
		return slices.Contains(o.history[key(1)], "COMPLETED")
	})
	if list := o.history[key(0)]; len(list) > 0 {
		t.Errorf("a worker whose end was acknowledged is reported as %q", list)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.ledger.known); n < 1 {
		t.Errorf("%d ends are known", n)
	}
}

// waiting is a cell whose starts wait until they are interrupted, or fail.
type waiting struct {
	*cellDriver
	fail chan error
}

func (d waiting) Start(spec Spec, ended func(Exit)) (Handle, error) {
	select {
	case <-spec.Interrupted():
		return d.Simulated.Start(Spec{}, ended)
	case err := <-d.fail:
		return nil, err
	}
}

// A stop and Close interrupt a start that waits. A start of a cell that fails after its answer is
// the end CELL_WORKER_LOST.
func TestInterruptedStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := waiting{newCellDriver(), make(chan error)}
		a := unregistered(t, Config{Driver: d, Cell: d})
		for i := range int32(3) {
			mustBe(t, a, submit(i, 1, ""), berthv1.Assignment_STARTING)
		}
		answer, err := tryStop(t.Context(), a, stopOf(submit(1, 1, ""), 0))
		if err != nil || answer.Worker.State < berthv1.Assignment_EVICTING {
			t.Errorf("the stop was answered with %v, %v", answer, err)
		}
		d.fail <- fault.New(fault.Conflict, fault.ReasonNotHeld, "expired")
		synctest.Wait()
		lost := 0
		a.mu.Lock()
		for _, w := range a.ledger.report(complete).Workers {
			if w.State == berthv1.Assignment_FAILED && w.Reason == string(fault.ReasonCellWorkerLost) {
				lost++
			}
		}
		a.mu.Unlock()
		if lost != 1 {
			t.Errorf("%d workers are lost", lost)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A cell must not have resources.
func TestCellWithResources(t *testing.T) {
	d := newCellDriver()
	_, err := New(Config{ID: "zone", Driver: d, Cell: d, Conn: dial(t, "127.0.0.1:1"),
		Resources: resource.Vector{"slots": 1}})
	if err == nil || !strings.Contains(err.Error(), "Resources") {
		t.Error(err)
	}
}
