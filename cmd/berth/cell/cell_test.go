package cell

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	controlv1 "berth.dev/api/berth/control/v1"
	recordv1 "berth.dev/api/berth/record/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/model"
)

const (
	held      = berthv1.Reservation_HELD
	active    = berthv1.Reservation_ACTIVE
	cancelled = berthv1.Reservation_CANCELLED
	expired   = berthv1.Reservation_EXPIRED
	completed = berthv1.Reservation_COMPLETED
)

// An offer that fits is accepted with the rating of the child. The child's reservation has what
// the parent decides switched off.
func TestAccept(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.offer("u", 2, func(o *controlv1.Offer) { o.HoldFor = durationpb.New(time.Hour) })
	w.answered("u.1 ACCEPTED")
	r := w.becomes("u", held)
	want := &berthv1.Reservation{
		Job: w.config.ID + ".train", Stage: "map", Name: "u", Count: 2, Hold: berthv1.Hold_HOLD.Enum(),
		HoldTimeout: durationpb.New(61 * time.Minute), QueueTimeout: durationpb.New(24 * time.Second),
		Batch: berthv1.Batch_STRICT, MaxAttempts: proto.Int32(1), OnAssignmentFailure: berthv1.OnAssignmentFailure_NOTIFY,
		Labels: map[string]string{model.PathLabel: "root/" + w.config.ID, model.GangLabel: "parent",
			labelOffer: `{"job":"train","stage":"map","name":"main","uid":"u","epoch":7,"number":1,"workers":[[5,6,2]]}`},
	}
	got := &berthv1.Reservation{Job: r.Job, Stage: r.Stage, Name: r.Name, Count: r.Count, Hold: r.Hold,
		HoldTimeout: r.HoldTimeout, QueueTimeout: r.QueueTimeout, Batch: r.Batch, MaxAttempts: r.MaxAttempts,
		OnAssignmentFailure: r.OnAssignmentFailure, Labels: r.Labels}
	if workers := idsOf(r); workers != "5.1 6.1" {
		t.Errorf("the child has the workers %s", workers)
	}
	if !proto.Equal(got, want) {
		t.Errorf("the child has %v, want %v", got, want)
	}
	c := r.GetConstraints()
	if c.GetSku() != w.sku || len(c.GetPools())+len(c.GetAttributes()) > 0 || c.GetCells() {
		t.Errorf("the child has the constraints %v", c)
	}
	if until := time.Until(r.GetExpireAt().AsTime()); until > w.driver.cfg.TTL || until < w.driver.cfg.TTL/2 {
		t.Errorf("the reservation expires in %v", until)
	}
}

// idsOf returns the workers of a reservation as a text.
func idsOf(r *berthv1.Reservation) string {
	var ids []string
	for _, id := range r.GetWorkers() {
		ids = append(ids, fmt.Sprintf("%d.%d", id.GetIndex(), id.GetNumber()))
	}
	return strings.Join(ids, " ")
}

// An offer that does not fit is rejected with the reason of the child, which keeps nothing. The
// parent learns when capacity becomes free.
func TestReject(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.offer("big", 3)
	w.answered("big.1 REJECTED INSUFFICIENT_CAPACITY")
	w.becomes("big", cancelled)
	w.offer("a", 2)
	w.answered("a.1 ACCEPTED")
	w.offer("b", 1)
	w.answered("b.1 REJECTED INSUFFICIENT_CAPACITY")
	w.becomes("b", cancelled)
	w.end("a")
	w.await("freed", func() bool { return w.freed == 1 })
	w.offer("b", 1, func(o *controlv1.Offer) { o.Number = 2 })
	w.answered("b.2 ACCEPTED")
}

// A request that the child refuses is rejected with its reason.
func TestRejectInvalid(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.offer("u", 1, func(o *controlv1.Offer) { o.Constraints.Resources = map[string]int64{"cpu": -1} })
	w.answered("u.1 REJECTED INVALID")
}

// A reservation that came through this cell, or through eight others, is rejected without a
// call to the child.
func TestCycle(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.offer("own", 1, func(o *controlv1.Offer) { o.Path = []string{"root", w.config.ID} })
	w.answered("own.1 REJECTED CYCLE")
	w.offer("long", 1, func(o *controlv1.Offer) { o.Path = strings.Split("a b c d e f g h", " ") })
	w.answered("long.1 REJECTED CYCLE")
	w.offer("short", 1, func(o *controlv1.Offer) { o.Path = strings.Split("a b c d e f g", " ") })
	w.answered("short.1 ACCEPTED")
	for _, uid := range []string{"own", "long"} {
		if _, err := w.client.Get(t.Context(), w.key(uid)); !fault.Is(err, fault.ReasonNotFound) {
			t.Errorf("the child has a reservation for the offer %s: %v", uid, err)
		}
	}
}

// An offer that ended in any way frees the executors of the child.
func TestRelease(t *testing.T) {
	w := newWorld(t, 1, nil)
	for i, state := range []berthv1.CellOffer_State{berthv1.CellOffer_RELEASED, berthv1.CellOffer_UNREACHABLE, 0} {
		uid := fmt.Sprint("u", i)
		w.offer(uid, 1)
		w.answered(uid + ".1 ACCEPTED")
		if state == 0 {
			w.end(uid)
		} else {
			w.move(uid, state)
		}
		w.becomes(uid, cancelled)
		w.end(uid)
	}
	w.offer("u", 1)
	w.answered("u.1 ACCEPTED")
	w.offer("u", 1, func(o *controlv1.Offer) { o.Number = 2 })
	w.answered("u.2 ACCEPTED")
	if r := w.becomes("u", held); !strings.Contains(r.GetLabels()[labelOffer], `"number":2`) {
		t.Errorf("the child holds executors for %v", r.GetLabels())
	}
}

// If the child can no longer hold the executors, the answer is withdrawn and the parent may ask
// again.
func TestWithdraw(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.offer("u", 1)
	w.answered("u.1 ACCEPTED")
	members, err := w.client.Get(t.Context(), w.key("u"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, err := w.client.Drain(t.Context(), &berthv1.DrainExecutorRequest{Id: fmt.Sprintf("%s-%d", w.sku, i),
			Reason: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	w.await("withdrawn", func() bool {
		return strings.HasPrefix(w.answers[len(w.answers)-1], "u.1 WITHDRAWN")
	})
	if r := w.becomes("u", cancelled); r.GetUid() == members.GetUid() {
		t.Error("the version that replaced the held one was not canceled")
	}
	w.move("u", berthv1.CellOffer_WITHDRAWN)
	w.offer("u", 1, func(o *controlv1.Offer) { o.Number = 2 })
	w.await("rejected", func() bool { return strings.HasPrefix(w.answers[len(w.answers)-1], "u.2 REJECTED") })
}

// The child keeps executors only as long as the parent confirms the offer.
func TestRenewal(t *testing.T) {
	w := newWorld(t, 1, func(c *Config) { c.TTL = 400 * time.Millisecond })
	w.offer("u", 1)
	w.answered("u.1 ACCEPTED")
	first := w.becomes("u", held)
	r := w.poll("u", func(r *berthv1.Reservation) bool {
		return r.GetState() != held || r.GetExpireAt().AsTime().Sub(first.GetExpireAt().AsTime()) > w.config.TTL
	})
	if r.GetState() != held || r.GetUid() != first.GetUid() {
		t.Fatalf("the reservation was not extended: %v", r)
	}
	w.isolate(true)
	r = w.becomes("u", expired)
	if after := r.GetUpdatedAt().AsTime().Sub(r.GetExpireAt().AsTime()); after < 0 {
		t.Errorf("the reservation expired %v early", -after)
	}
	w.answered("u.1 WITHDRAWN EXPIRED")
}

// A reservation that the parent has bound does not expire.
func TestBoundDoesNotExpire(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.offer("u", 1)
	w.answered("u.1 ACCEPTED")
	w.move("u", berthv1.CellOffer_BOUND)
	w.poll("u", func(r *berthv1.Reservation) bool { return r.GetExpireAt() == nil })
	w.isolate(true)
	w.restart(func() {})
	w.isolate(false)
	w.run("u", 5, "")
	w.reported("u/5.2", "ready")
	if r := w.becomes("u", active); r.GetExpireAt() != nil {
		t.Errorf("the running reservation expires at %v", r.GetExpireAt().AsTime())
	}
}

// A cell that is chosen keeps the executors of a held reservation like one that accepted it: they are
// free without a message if the parent no longer confirms the offer.
func TestChosenExpires(t *testing.T) {
	w := newWorld(t, 1, func(c *Config) { c.TTL = time.Second })
	w.offer("u", 1)
	w.answered("u.1 ACCEPTED")
	first := w.becomes("u", held)
	w.choose("u")
	if r := w.poll("u", func(r *berthv1.Reservation) bool {
		return r.GetState() != held || r.GetExpireAt().AsTime().After(first.GetExpireAt().AsTime())
	}); r.GetState() != held {
		t.Fatalf("the reservation was not extended: %v", r)
	}
	w.isolate(true)
	w.becomes("u", expired)
	w.answered("u.1 WITHDRAWN EXPIRED")
}

// A cell withdraws an answer that the child cannot keep any more, also if the child does not answer.
func TestUnreachableChildExpires(t *testing.T) {
	var cutOff atomic.Bool
	cut := func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		if cutOff.Load() {
			return status.Error(codes.Unavailable, "cut off")
		}
		return invoke(ctx, method, req, reply, conn, opts...)
	}
	w := newWorld(t, 1, func(c *Config) {
		var err error
		if c.Child, err = client.Dial([]string{child.Gateway()},
			client.WithDialOptions(grpc.WithChainUnaryInterceptor(cut))); err != nil {
			t.Fatal(err)
		}
		c.TTL = time.Second
	})
	t.Cleanup(func() { _ = w.config.Child.Close() })
	w.offer("u", 1)
	w.answered("u.1 ACCEPTED")
	cutOff.Store(true)
	w.answered("u.1 WITHDRAWN UNAVAILABLE")
	w.becomes("u", expired) // without the driver
	cutOff.Store(false)
	w.move("u", berthv1.CellOffer_WITHDRAWN)
	w.offer("u", 1, func(o *controlv1.Offer) { o.Number = 2 })
	w.answered("u.2 ACCEPTED")
}

// Workers run in the child with the task of the parent, and end with its exit code.
func TestRun(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.offer("u", 3)
	w.answered("u.1 ACCEPTED")
	w.move("u", berthv1.CellOffer_BOUND)
	for i := range int32(3) {
		w.run("u", 5+i, fmt.Sprintf(`{"executor": "%s-%d", "exitCode": 3}`, w.sku, 0))
	}
	w.await("one exit code", func() bool {
		codes := 0
		for _, list := range w.workers {
			if slices.Contains(list, "ended code 3") {
				codes++
			}
		}
		return codes == 1
	})
	r := w.becomes("u", active)
	if task := r.GetTask(); task.GetCommand() != "work" || task.GetStopGrace().AsDuration() != time.Second ||
		task.GetStopSignal() != "SIGINT" {
		t.Errorf("the task is %v", task)
	}
}

// A worker that the parent stops is stopped in the child, and ends as stopped. Another one ends
// by itself.
func TestStop(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.offer("u", 2)
	w.answered("u.1 ACCEPTED")
	first, second := w.run("u", 5, ""), w.run("u", 6, "")
	w.reported("u/5.2", "ready")
	w.reported("u/6.2", "ready")
	if err := first.Stop(0, false); err != nil {
		t.Fatal(err)
	}
	w.reported("u/5.2", "ended code 143 stopped")
	if _, err := w.client.Cancel(t.Context(), w.key("u")); err != nil {
		t.Fatal(err)
	}
	w.reported("u/6.2", "ended CELL_WORKER_LOST")
	if err := second.Stop(0, false); err != nil {
		t.Fatal(err)
	}
	w.end("u")
}

// The child passes a signal to its worker, which may end by it. Its end is no stop.
func TestSignal(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.offer("u", 2)
	w.answered("u.1 ACCEPTED")
	first, second := w.run("u", 5, "").(agent.Signaller), w.run("u", 6, "")
	w.reported("u/5.2", "ready")
	w.reported("u/6.2", "ready")
	for _, s := range []struct {
		signal model.Signal
		id     string
	}{{"SIGUSR1", "a"}, {"SIGKILL", "a"}, {"SIGKILL", "b"}} {
		if err := first.Signal(t.Context(), s.signal, s.id); err != nil {
			t.Fatal(s, err)
		}
	}
	w.reported("u/5.2", "ended code 137")
	if err := first.Signal(t.Context(), "SIGKILL", "c"); !fault.Is(err, fault.ReasonNotFound) {
		t.Error(err)
	}
	if err := second.Stop(0, false); err != nil {
		t.Fatal(err)
	}
	w.reported("u/6.2", "ended code 143 stopped")
	w.end("u")
}

// A stop with a shorter grace than that of the task is passed to the child, a longer one is not.
func TestStopWithin(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.offer("u", 2)
	w.answered("u.1 ACCEPTED")
	first, second := w.run("u", 5, "").(*worker), w.run("u", 6, "").(*worker)
	w.reported("u/5.2", "ready")
	w.reported("u/6.2", "ready")
	for of, grace := range map[*worker]time.Duration{first: time.Second, second: time.Hour} {
		if err := of.Stop(grace, false); err != nil {
			t.Fatal(err)
		}
		// The call of the child may return only after the report of the end.
		for range 1000 {
			first.hold.driver.mu.Lock()
			within := of.stoppedWithin
			first.hold.driver.mu.Unlock()
			if within == min(grace, of.spec.Grace) {
				break
			}
			w.poll("u", func(*berthv1.Reservation) bool { return true })
		}
		first.hold.driver.mu.Lock()
		if within := of.stoppedWithin; within != min(grace, of.spec.Grace) {
			t.Errorf("stopped within %v, want %v", within, min(grace, of.spec.Grace))
		}
		first.hold.driver.mu.Unlock()
	}
	w.reported("u/5.2", "ended code 143 stopped")
	w.reported("u/6.2", "ended code 143 stopped")
	w.end("u")
}

// Workers that the parent does not start are removed in the child.
func TestUnstartedWorkersAreRemoved(t *testing.T) {
	w := newWorld(t, 2, func(c *Config) { c.StartWithin = 50 * time.Millisecond })
	w.offer("u", 2)
	w.answered("u.1 ACCEPTED")
	w.run("u", 6, "")
	w.reported("u/6.2", "ready")
	accepted := false
	for n := int64(1); !accepted; n++ { // until the child has stopped worker 5.2
		w.offer("v", 1, func(o *controlv1.Offer) { o.Number = n })
		w.await("an answer", func() bool {
			accepted = slices.Contains(w.answers, fmt.Sprintf("v.%d ACCEPTED", n))
			return accepted || slices.Contains(w.answers, fmt.Sprintf("v.%d REJECTED INSUFFICIENT_CAPACITY", n))
		})
	}
}

// A hold that ends before its bind is an error of each start that waits for the bind, also if
// the driver does not know the end yet.
func TestBindTooLate(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.offer("u", 2)
	w.answered("u.1 ACCEPTED")
	w.detach()
	starts := []*starting{w.begin("u", 5), w.begin("u", 6)}
	if _, err := w.client.Cancel(t.Context(), w.key("u")); err != nil {
		t.Fatal(err)
	}
	w.attach()
	for _, s := range starts {
		if _, err := s.wait(); !fault.Is(err, fault.ReasonNotHeld) {
			t.Error(err)
		}
	}
	w.await("withdrawn", func() bool {
		return strings.HasPrefix(w.answers[len(w.answers)-1], "u.1 WITHDRAWN")
	})
	if _, err := w.begin("u", 6).wait(); !fault.Is(err, fault.ReasonNotHeld) {
		t.Errorf("the start of a worker without a hold: %v", err)
	}
	if len(w.workers) > 0 {
		t.Errorf("reported %v", w.workers)
	}
}

// If a start is interrupted, a bind that fails later is the end of the worker. A stop that came
// first counts.
func TestBindFailsAfterStart(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.offer("u", 2)
	w.answered("u.1 ACCEPTED")
	w.detach()
	first, second := w.begin("u", 5).interrupt(), w.begin("u", 6).interrupt()
	if first == nil || second == nil {
		t.Fatal("an interrupted start failed")
	}
	if err := second.Stop(0, false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Cancel(t.Context(), w.key("u")); err != nil {
		t.Fatal(err)
	}
	w.attach()
	w.reported("u/5.2", "ended CELL_WORKER_LOST")
	w.reported("u/6.2", "ended stopped")
}

// If the parent stops all workers that it started before the bind, the child starts none.
func TestStopBeforeBind(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.offer("u", 3)
	w.answered("u.1 ACCEPTED")
	w.detach()
	for i := range int32(2) {
		if err := w.begin("u", 5+i).interrupt().Stop(0, false); err != nil {
			t.Fatal(err)
		}
	}
	w.attach()
	w.reported("u/5.2", "ended stopped")
	w.reported("u/6.2", "ended stopped")
	if r := w.becomes("u", cancelled); len(r.GetWorkerCounts()) > 0 || r.GetTask().GetCommand() != "" {
		t.Errorf("the child started workers: %v", r)
	}
}

// A start that waits for the bind does not keep the driver from closing.
func TestCloseWhileStarting(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.offer("u", 1)
	w.answered("u.1 ACCEPTED")
	w.detach()
	s := w.begin("u", 5)
	if err := w.driver.Close(); err != nil {
		t.Fatal(err)
	}
	if handle, err := s.wait(); handle == nil || err != nil {
		t.Errorf("the start returned %v, %v", handle, err)
	}
}

// A worker has the index of the parent in the child, whatever ran there before, and the next
// unused number.
func TestWorkerIndexes(t *testing.T) {
	w := newWorld(t, 4, nil)
	runs := func(uid, want string, runs ...*recordv1.WorkerRun) {
		t.Helper()
		w.offer(uid, 1, func(o *controlv1.Offer) { o.Workers = runs })
		w.answered(uid + ".1 ACCEPTED")
		if r := w.becomes(uid, held); idsOf(r) != want {
			t.Errorf("the child has the workers %s, want %s", idsOf(r), want)
		}
	}
	runs("a", "0.1 1.1 2.1", &recordv1.WorkerRun{First: 0, Last: 2, Number: 2})
	w.move("a", berthv1.CellOffer_BOUND)
	for i := range int32(3) {
		w.run("a", i, `{"runFor": "1h"}`)
		w.reported(fmt.Sprintf("a/%d.2", i), "ready")
	}
	// The parent restarts worker 2 while the others run.
	runs("b", "2.2", &recordv1.WorkerRun{First: 2, Last: 2, Number: 2})
	w.run("b", 2, `{"exitCode": 3}`)
	w.reported("b/2.2", "ended code 3")
	w.end("b")
	runs("c", "2.3", &recordv1.WorkerRun{First: 2, Last: 2, Number: 2})
	w.end("a")
	w.end("c")
	w.becomes("a", active)
	if list := w.workers["a/2.2"]; !slices.Equal(list, []string{"ready"}) {
		t.Errorf("worker 2 of another reservation was reported as %q", list)
	}
}

// Reservations of one stage that are offered at the same time use different numbers.
func TestNumbersOfOneStage(t *testing.T) {
	const offers = 20
	w := newWorld(t, offers, nil)
	for i := range offers {
		w.offer(fmt.Sprint("u", i), 1)
	}
	w.await("all", func() bool { return len(w.answers) == offers })
	numbers := map[string]bool{}
	for i := range offers {
		numbers[idsOf(w.becomes(fmt.Sprint("u", i), held))] = true
	}
	if len(numbers) != offers {
		t.Errorf("the workers are %v", numbers)
	}
}

// Questions about large gangs are fast, also if their indexes have gaps and many numbers are
// used already.
func TestLargeGangs(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.simulate("large", 1, model.MaxWorkers)
	var gaps []*recordv1.WorkerRun
	for i := range int32(3000) {
		gaps = append(gaps, &recordv1.WorkerRun{First: 1000 * i, Last: 1000 * i, Number: 1 + i})
	}
	for i := range 2 {
		for uid, runs := range map[string][]*recordv1.WorkerRun{
			"gaps":  gaps,
			"large": {{First: 0, Last: model.MaxWorkers - 1, Number: 1}},
		} {
			uid = fmt.Sprint(uid, i)
			w.offer(uid, 1, func(o *controlv1.Offer) { o.Workers, o.Constraints.Sku = runs, w.sku+"large" })
			w.answered(uid + ".1 ACCEPTED")
			if i > 0 {
				w.end(uid)
				w.becomes(uid, cancelled)
				continue
			}
			w.move(uid, berthv1.CellOffer_BOUND)
			w.poll(uid, func(r *berthv1.Reservation) bool { return r.GetExpireAt() == nil })
			w.end(uid)
			w.becomes(uid, cancelled)
		}
	}
}

// More jobs than a connection may have streams are offered to a cell, run and are stopped.
func TestManyJobs(t *testing.T) {
	const jobs = 1200
	var dialed atomic.Int32
	w := newWorld(t, 1, func(c *Config) {
		c.Log, c.TTL = slog.New(slog.DiscardHandler), time.Hour // a slow host is no reason to withdraw
		c.DialWatch = func() (*client.Client, error) {
			dialed.Add(1)
			return client.Dial([]string{child.Gateway()})
		}
	})
	w.simulate("large", jobs/100, 100)
	asked := 0
	ask := func(i int, number int64) {
		uid := fmt.Sprint("u", i)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.offers[uid] = &controlv1.Offer{Uid: uid, Number: number, State: berthv1.CellOffer_PENDING, Epoch: 7,
			Key:          &berthv1.ReservationKey{Job: fmt.Sprint("job", i), Stage: "map", Name: "main"},
			Constraints:  &berthv1.Constraints{Sku: w.sku + "large"},
			Workers:      []*recordv1.WorkerRun{{First: 5, Last: 5, Number: 2}},
			AnswerWithin: durationpb.New(time.Hour)}
		asked++
	}
	// A queue that does not move for a while is an answer: BEHIND_HEAD. A parent asks again.
	accepted := func() (all bool) {
		w.await("answers", func() bool { return len(w.answers) == asked })
		all = true
		for i := range jobs {
			w.mu.Lock()
			o := w.offers[fmt.Sprint("u", i)]
			w.mu.Unlock()
			if o.GetState() == berthv1.CellOffer_REJECTED {
				ask(i, o.Number+1)
				all = false
			}
		}
		return all
	}
	for i := range jobs {
		if ask(i, 1); (i+1)%50 == 0 {
			for !accepted() {
			}
		}
	}
	handles := make([]agent.Handle, jobs)
	var starts sync.WaitGroup
	for i := range jobs {
		starts.Go(func() {
			spec := w.spec(fmt.Sprint("u", i), 5, "")
			spec.Worker.Job = fmt.Sprint("job", i)
			var err error
			if handles[i], err = w.driver.Start(spec, func(x agent.Exit) { w.report(spec, show(x)) }); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	all := func(state string) {
		t.Helper()
		w.await("all "+state, func() bool {
			n := 0
			for _, list := range w.workers {
				if list[len(list)-1] == state {
					n++
				}
			}
			return n == jobs
		})
	}
	all("ready")
	for _, h := range handles {
		if err := h.Stop(0, false); err != nil {
			t.Error(err)
		}
	}
	all("ended code 143 stopped")
	if n := dialed.Load(); n != (jobs+maxWatches-1)/maxWatches {
		t.Errorf("opened %d connections for watches", n)
	}
	w.mu.Lock()
	clear(w.offers)
	w.mu.Unlock()
	w.driver.running.Wait() // for the holds and their watches
	w.driver.mu.Lock()
	defer w.driver.mu.Unlock()
	if n := len(w.driver.connections); n > 0 {
		t.Errorf("%d connections are open", n)
	}
}

// A new driver adopts what an earlier one left, in every phase, and continues.
func TestAdopt(t *testing.T) {
	w := newWorld(t, 5, nil)
	for _, uid := range []string{"held", "released", "done"} {
		w.offer(uid, 1)
		w.answered(uid + ".1 ACCEPTED")
	}
	w.offer("runs", 2)
	w.answered("runs.1 ACCEPTED")
	w.move("runs", berthv1.CellOffer_BOUND)
	w.run("runs", 5, "")
	w.run("runs", 6, "")
	w.run("done", 5, `{"runFor": "200ms", "exitCode": 4}`)
	w.reported("runs/5.2", "ready")
	w.reported("runs/6.2", "ready")
	w.reported("done/5.2", "ready")
	w.restart(func() {
		w.mu.Lock()
		delete(w.offers, "released")
		w.answers, w.workers = nil, map[string][]string{}
		w.mu.Unlock()
		// Two reservations that were asked before have used index 5, and "runs" has used it next.
		if _, err := w.client.CancelWorkers(t.Context(), w.key("runs").Job, "map",
			&berthv1.WorkerID{Index: 5, Number: 4}); err != nil {
			t.Fatal(err)
		}
		w.becomes("done", completed)
	})
	var got []string
	for _, a := range w.adopted {
		got = append(got, fmt.Sprintf("%s %v@%d ready=%v", a.Spec.UID, a.Spec.Worker, a.Spec.Epoch, a.Ready))
	}
	want := []string{"done train/map/5.2@7 ready=true", "runs train/map/5.2@7 ready=true",
		"runs train/map/6.2@7 ready=true"}
	if !slices.Equal(got, want) {
		t.Errorf("adopted %q, want %q", got, want)
	}
	if !w.adopted[0].Ended || w.adopted[2].Ended {
		t.Errorf("adopted as ended: %v and %v", w.adopted[0].Ended, w.adopted[2].Ended)
	}
	w.reported("done/5.2", "ended code 4")
	w.reported("runs/5.2", "ended code 143 stopped")
	w.becomes("released", cancelled)
	w.becomes("held", held)
	stopped := w.adopted[2].Handle
	if err := stopped.Stop(0, false); err != nil {
		t.Fatal(err)
	}
	w.reported("runs/6.2", "ended code 143 stopped")
	w.end("runs")
	w.run("held", 5, "")
	w.reported("held/5.2", "ready")
}

// A driver that is killed while it asks leaves at most a hold that expires. The next one
// continues the question.
func TestKillWhileAsking(t *testing.T) {
	w := newWorld(t, 1, nil)
	for i := range 20 {
		uid := fmt.Sprint("u", i)
		w.offer(uid, 1)
		w.restart(func() {})
		w.answered(uid + ".1 ACCEPTED")
		w.end(uid)
		w.poll(uid, func(r *berthv1.Reservation) bool { return client.Ended(r.GetState()) })
	}
}

// A request of an earlier question that is late does not answer a later one.
func TestLateRequest(t *testing.T) {
	w := newWorld(t, 2, nil)
	o := &controlv1.Offer{Uid: "u", Number: 1, Epoch: 7, Path: []string{"root"},
		Key:         &berthv1.ReservationKey{Job: "train", Stage: "map", Name: "main"},
		Constraints: &berthv1.Constraints{Sku: w.sku}, Workers: []*recordv1.WorkerRun{{First: 5, Last: 5, Number: 2}}}
	of := originOf(o)
	h := &hold{driver: w.driver, uid: "u", key: of.key(w.config.ID)}
	late := h.request(of, o, "root/"+w.config.ID, nil, time.Minute, time.Now().Add(time.Minute))
	var first *berthv1.Reservation
	for range 2 { // a repeat is the same call
		r, err := w.client.Reserve(t.Context(), late)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = r
		}
		if r.GetUid() != first.GetUid() {
			t.Errorf("a repeat made %s after %s", r.GetUid(), first.GetUid())
		}
	}
	w.offer("u", 1, func(o *controlv1.Offer) { o.Number = 2 })
	w.answered("u.2 ACCEPTED")
	if r := w.becomes("u", held); r.GetUid() == first.GetUid() || !strings.Contains(r.GetLabels()[labelOffer], `"number":2`) {
		t.Errorf("the child holds executors for %v", r.GetLabels())
	}
}

// TestExitOf checks how the ends in the child are reported to the parent.
func TestExitOf(t *testing.T) {
	three, term := int32(3), int32(143)
	for name, c := range map[string]struct {
		worker client.Worker
		stop   bool
		want   string
	}{
		"completed":       {client.Worker{State: berthv1.Assignment_COMPLETED}, true, "ended code 0"},
		"failed":          {client.Worker{State: berthv1.Assignment_FAILED, ExitCode: &three, Reason: "EXITED"}, false, "ended code 3"},
		"not started":     {client.Worker{State: berthv1.Assignment_FAILED, Reason: "START_FAILED"}, false, "ended"},
		"not ready":       {client.Worker{State: berthv1.Assignment_FAILED, Reason: "START_TIMEOUT"}, false, "ended START_TIMEOUT"},
		"lost":            {client.Worker{State: berthv1.Assignment_LOST}, false, "ended CELL_WORKER_LOST"},
		"lost while stop": {client.Worker{State: berthv1.Assignment_LOST}, true, "ended CELL_WORKER_LOST"},
		"evicted":         {client.Worker{State: berthv1.Assignment_EVICTED, ExitCode: &term}, false, "ended CELL_WORKER_LOST"},
		"stopped":         {client.Worker{State: berthv1.Assignment_EVICTED, ExitCode: &term}, true, "ended code 143 stopped"},
		"canceled":        {client.Worker{Ended: true}, true, "ended stopped"},
		"given up":        {client.Worker{Ended: true}, false, "ended CELL_WORKER_LOST"},
	} {
		x := exitOf(c.worker, c.stop)
		if got := show(x); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		// The child counts the failures of its executors itself.
		if failed := c.worker.State == berthv1.Assignment_FAILED; x.BadTask != failed || failed && x.Problem == "" {
			t.Errorf("%s: blames the cell: %+v", name, x)
		}
	}
}

// TestOrigin checks that the label of a reservation is read only from the reservation to which
// it belongs.
func TestOrigin(t *testing.T) {
	long := strings.Repeat("j", 128)
	o := origin{Job: long, Stage: "s", Name: "main", UID: "u", Epoch: 7, Number: 2, Runs: [][3]int32{{0, 1, 1}, {4, 4, 3}}}
	key := o.key("zone")
	if len(key.Job) > maxJob || !strings.HasPrefix(key.Job, "zone.") || key == o.key("zone2") {
		t.Errorf("the key is %v", key)
	}
	reservation := func(o origin) *berthv1.Reservation {
		return &berthv1.Reservation{Job: key.Job, Stage: key.Stage, Name: key.Name,
			Labels: map[string]string{labelOffer: o.label()}}
	}
	got, err := originIn("zone", reservation(o))
	if err != nil || got.label() != o.label() || got.workers.Len() != 3 {
		t.Errorf("%v %v", got, err)
	}
	for name, change := range map[string]func(*origin){
		"another job":     func(o *origin) { o.Job = "k" },
		"another UID":     func(o *origin) { o.UID = "v" },
		"a bad name":      func(o *origin) { o.Name = "../x" },
		"no epoch":        func(o *origin) { o.Epoch = 0 },
		"bad workers":     func(o *origin) { o.Runs = [][3]int32{{1, 0, 1}} },
		"too many worker": func(o *origin) { o.Runs = [][3]int32{{0, model.MaxIndex, 1}} },
	} {
		bad := o
		change(&bad)
		if got, err := originIn("zone", reservation(bad)); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	if _, err := originIn("zone", &berthv1.Reservation{Labels: map[string]string{labelOffer: "{"}}); err == nil {
		t.Error("a label that is not JSON has an origin")
	}
}

// TestRefusesNames checks the ID of a cell.
func TestRefusesNames(t *testing.T) {
	for _, id := range []string{"", "a/b", strings.Repeat("a", 64)} {
		if _, err := New(Config{ID: id}); !fault.Is(err, fault.ReasonBadName) {
			t.Errorf("%q: %v", id, err)
		}
	}
}
