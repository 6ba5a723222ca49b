package cell

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/pkg/model"
)

const (
	// callWithin is the time limit of a call that a later one may repeat, and retryAfter the
	// pause before.
	callWithin, retryAfter = 5 * time.Second, time.Second
	// forever is a pause until something changes.
	forever = 24 * time.Hour
	// The pauses between two reads of a reservation that is not HELD yet: the reason why it is
	// pending has no event.
	firstPoll, lastPoll = 2 * time.Millisecond, 50 * time.Millisecond
	// patience is how long a reason must last that may be over soon: the reservation is behind
	// the head of its queue, or the child has not seen yet that capacity became free less than
	// settleWithin ago.
	patience, settleWithin = 500 * time.Millisecond, time.Second
	// defaultAnswerWithin is the time for an answer if the offer does not say it.
	defaultAnswerWithin = 10 * time.Second
	// holdMargin is how much longer than the parent the child holds a reservation, so that the
	// parent decides when it ends.
	holdMargin = time.Minute
)

// hold is a reservation of the parent. Its goroutine makes all calls to the child about it.
type hold struct {
	driver *Driver
	uid    string
	log    *slog.Logger
	// wake contains one element if the goroutine must look at its input.
	wake chan struct{}

	// Driver.mu guards the fields up to here: the input of the goroutine, and what Start needs.

	// offer is the last offer that the parent listed, nil if it lists none. offered is the time
	// at which its number or state changed last, and confirmed that of the last list with it.
	offer              *controlv1.Offer
	offered, confirmed time.Time
	// version is the reservation of the child that keeps executors, as it was when it was HELD
	// or adopted; nil for none. key is its key, and numbers has the child's number of each worker
	// index.
	version *berthv1.Reservation
	key     client.Key
	numbers map[int32]int32
	// origin is the reservation of the parent. workers has those of its workers that were
	// started, by index. outcome is closed once the outcome of the bind is known.
	origin    origin
	workers   map[int32]*worker
	outcome   chan struct{}
	lastStart time.Time
	// places has where the workers run, by index, as far as it is known.
	places map[int32]place
	// follows ends the search for places; nil without one.
	follows context.CancelFunc
	// changed is set if an event about the reservation came. watched is set while the hold is
	// counted in a watch.
	changed, watched bool

	// Only the goroutine uses the other fields.

	// answered is the number of the last question that was answered, and withdrawn of the last
	// answer that was withdrawn.
	answered, withdrawn int64
	// leftover is set if the child may have a reservation that must be cancelled. kept is set if
	// it had executors.
	leftover, kept bool
	// expiry is the expireAt that the child stores. permanent is set once it was removed.
	expiry    time.Time
	permanent bool
	// unsettled is a request of extend whose outcome is not known. It could take effect later.
	unsettled *berthv1.Reservation
	// binding is the request to bind, once it may have been sent.
	binding *berthv1.BindReservationRequest
	// bound is set once the child runs the workers. rechecked is set once the driver has read
	// the reservation again after that.
	bound, rechecked bool
	// given is the version of the members of the
	// parent's gang that the child has got, and givenAt the time at which it knew them last.
	given   string
	givenAt time.Time
}

// input is the input of one step of a hold.
type input struct {
	offer              *controlv1.Offer
	offered, confirmed time.Time
	attached, listed   bool
	// held is set if version is.
	held bool
	// live is set if a worker was started and has not ended.
	live, changed bool
	number        int64
}

// notify wakes the goroutine.
func (h *hold) notify() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// sleep waits for a pause, or until the goroutine is woken or must end.
func (h *hold) sleep(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.wake:
	case <-h.driver.life.Done():
	}
}

// run makes steps until the hold is over or the driver is closed.
func (h *hold) run() {
	for h.driver.life.Err() == nil {
		pause, over := h.step()
		if over {
			return
		}
		if pause > 0 {
			h.sleep(pause)
		}
	}
}

// take returns the current input.
func (h *hold) take() input {
	d := h.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	in := input{offer: h.offer, offered: h.offered, confirmed: h.confirmed, attached: d.parent != nil, listed: d.listed,
		held: h.version != nil, live: h.live(), changed: h.changed, number: h.origin.Number}
	h.changed = false
	return in
}

// live reports whether a worker was started and has not ended. d.mu must be locked.
func (h *hold) live() bool {
	for _, w := range h.workers {
		if !w.over {
			return true
		}
	}
	return false
}

// step does what the input requires. It returns the pause before the next step, and reports
// whether the hold is over.
func (h *hold) step() (pause time.Duration, over bool) {
	in := h.take()
	number, state := in.offer.GetNumber(), in.offer.GetState()
	switch {
	case !in.attached:
		return forever, false
	case in.live || h.bound:
		return h.work(in), false
	case h.leftover:
		if !h.release() {
			return retryAfter, false
		}
		h.leftover = false
		return 0, false
	case !in.listed:
		return forever, false // the parent may still want an adopted reservation
	case in.held && (!wanted(in.offer) || number != in.number):
		h.drop()
		return 0, false
	case in.offer == nil:
		return 0, h.remove()
	case state == berthv1.CellOffer_PENDING && number != h.answered:
		return h.ask(in), false
	case in.held:
		return h.maintain(in), false
	case state != berthv1.CellOffer_PENDING && wanted(in.offer) && number != h.withdrawn:
		h.withdraw(number, fault.ReasonNotHeld, "the cell holds no executors for the reservation")
	}
	return forever, false
}

// remove removes the hold, and reports whether it did: not if a worker was started meanwhile or
// the parent offers the reservation again.
func (h *hold) remove() bool {
	d := h.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.offer != nil || h.version != nil {
		return false
	}
	h.unwatch()
	delete(d.holds, h.uid)
	for _, other := range d.holds {
		if other.origin.gang() == h.origin.gang() {
			return true
		}
	}
	delete(d.gangs, h.origin.gang())
	return true
}

// keep records the reservation of the child that keeps executors. d.mu must be locked.
func (h *hold) keep(o origin, r *berthv1.Reservation) {
	h.origin, h.version, h.key = o, r, o.key(h.driver.cfg.ID)
	h.workers, h.numbers, h.outcome = map[int32]*worker{}, map[int32]int32{}, make(chan struct{})
	h.places, h.given = map[int32]place{}, ""
	for _, w := range r.GetWorkers() {
		h.numbers[w.GetIndex()] = w.GetNumber()
	}
	h.kept, h.expiry = true, time.Time{}
	if r.GetExpireAt() != nil {
		h.expiry = r.GetExpireAt().AsTime()
	}
	h.permanent, h.bound, h.rechecked, h.unsettled, h.binding = false, false, false, nil, nil
}

// drop gives up what the child keeps: the next step cancels it.
func (h *hold) drop() {
	h.driver.mu.Lock()
	defer h.driver.mu.Unlock()
	h.dropLocked()
}

// dropLocked is drop with d.mu locked.
func (h *hold) dropLocked() {
	h.version, h.leftover, h.bound = nil, true, false
	if h.follows != nil {
		h.follows()
		h.follows = nil
	}
	h.unwatch()
}

// release cancels what the child keeps or queues for the reservation, and reports whether it
// did. The epoch guards a later version against a call that is late.
func (h *hold) release() bool {
	ctx, cancel := h.driver.call()
	defer cancel()
	child := h.driver.cfg.Child
	for range 3 {
		r, err := child.Get(ctx, h.key)
		if fault.Is(err, fault.ReasonNotFound) || err == nil && client.Ended(r.GetState()) {
			return h.released()
		}
		if err == nil {
			_, err = child.CancelVersion(ctx, h.key, r.GetEpoch())
		}
		switch {
		case err == nil:
			h.log.Info("canceled the reservation of the child", "reservation", h.key)
			return h.released()
		case !fault.Is(err, fault.ReasonEpochMismatch):
			h.log.Debug("the reservation of the child is not canceled yet", "reservation", h.key, "error", err)
			return false
		}
	}
	return false
}

func (h *hold) released() bool {
	if h.kept {
		h.kept = false
		h.driver.freed()
	}
	return true
}

// answer sends an answer to the parent.
func (h *hold) answer(number int64, state berthv1.CellOffer_State, rating int32, reason fault.Reason, message string) {
	h.driver.answer(&controlv1.OfferAnswer{Uid: h.uid, Number: number, State: state, Rating: rating,
		Reason: string(reason), Message: message})
}

func (h *hold) reject(number int64, reason fault.Reason, message string) time.Duration {
	h.driver.mu.Lock()
	h.driver.refused = h.driver.refused || reason != fault.ReasonCycle
	h.driver.mu.Unlock()
	h.answered = number
	h.log.Info("rejected an offer", "number", number, "reason", reason, "message", message)
	h.answer(number, berthv1.CellOffer_REJECTED, 0, reason, message)
	return 0
}

func (h *hold) withdraw(number int64, reason fault.Reason, message string) {
	h.answered, h.withdrawn = number, number
	h.log.Warn("withdrew an offer", "number", number, "reason", reason, "message", message)
	h.answer(number, berthv1.CellOffer_WITHDRAWN, 0, reason, message)
}

// ask requests executors from the child and answers the offer.
func (h *hold) ask(in input) time.Duration {
	d, o := h.driver, in.offer
	number, within := o.GetNumber(), cmp.Or(o.GetAnswerWithin().AsDuration(), defaultAnswerWithin)
	path, ok := pathOf(d.cfg.ID, o, model.MaxPath)
	if !ok {
		return h.reject(number, fault.ReasonCycle, fmt.Sprintf("the reservation came through the cells %s; at most %d, each once",
			path, model.MaxPath))
	}
	of := originOf(o)
	d.mu.Lock()
	if h.live() {
		d.mu.Unlock()
		return 0 // a worker was started meanwhile
	}
	var numbers map[int32]int32
	if h.version != nil && h.origin.label() == of.label() {
		numbers = h.numbers // an earlier agent asked already
	}
	h.key, h.version = of.key(d.cfg.ID), nil
	d.mu.Unlock()
	ctx, cancel := context.WithDeadline(d.life, in.offered.Add(within*4/5))
	defer cancel()
	h.leftover = true
	r, err := h.reserve(ctx, of, o, path, within, numbers)
	if err == nil && r.GetLabels()[labelOffer] != of.label() {
		// A request of an earlier question was late. The next step cancels its reservation, and
		// the one after that asks again.
		h.log.Info("found the reservation of an earlier question", "reservation", h.key)
		return 0
	}
	why := fault.New(fault.Unavailable, fault.ReasonUnavailable, "the child does not answer")
	began, last := time.Now(), fault.Reason("")
	for pause := firstPoll; err == nil; pause = min(2*pause, lastPoll) {
		if now := h.take(); now.offer.GetNumber() != number || !wanted(now.offer) {
			return 0
		}
		if r, err = d.cfg.Child.Get(ctx, h.key); err != nil {
			break
		}
		reason := fault.Reason(r.GetReason())
		if reason != last {
			began, last = time.Now(), reason
		}
		switch {
		case r.GetState() == berthv1.Reservation_HELD && !chosen(r):
			if _, err = d.cfg.Child.Bind(ctx, &berthv1.BindReservationRequest{Job: h.key.Job, Stage: h.key.Stage,
				Name: h.key.Name, IfEpoch: r.GetEpoch(), KeepHeld: true}); fault.Is(err, fault.ReasonNotHeld) {
				err = nil
			}
		case r.GetState() == berthv1.Reservation_HELD:
			h.accept(of, r, number)
			return 0
		case client.Ended(r.GetState()):
			return h.reject(number, reason, cmp.Or(r.GetMessage(), "the reservation ended "+r.GetState().String()))
		case d.refuses(reason, time.Since(began)):
			return h.reject(number, reason, r.GetMessage())
		case reason != "":
			why = fault.New(fault.Unavailable, reason, "%s", cmp.Or(r.GetMessage(), "the child has not decided in time"))
		}
		if ctx.Err() == nil && err == nil {
			h.sleep(pause)
		}
	}
	switch f := fault.Of(err); {
	case d.life.Err() != nil:
		return forever
	case f.Kind == fault.Unavailable:
		return h.reject(number, why.Reason, why.Message)
	default:
		return h.reject(number, f.Reason, f.Message)
	}
}

// reserve requests executors from the child. Each worker has its index of the parent, so that the
// task finds the same index after each start, with the number in numbers, or else the next
// unused one of the child.
func (h *hold) reserve(ctx context.Context, of origin, o *controlv1.Offer, path string, within time.Duration,
	numbers map[int32]int32) (r *berthv1.Reservation, err error) {
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		if numbers == nil {
			if numbers, err = h.unused(ctx); err != nil {
				return nil, err
			}
		}
		r, err = h.driver.cfg.Child.Reserve(ctx, h.request(of, o, path, numbers, within, time.Now().Add(h.driver.cfg.TTL)))
		if !fault.Is(err, fault.ReasonWorkerIDUsed) || ctx.Err() != nil {
			return r, err
		}
		numbers = nil // another reservation of the stage was faster, or the list was older
		h.sleep(pause)
	}
}

// unused returns the next number of each worker index that the child's stage has used.
func (h *hold) unused(ctx context.Context) (map[int32]int32, error) {
	page, err := h.driver.cfg.Child.ListPage(ctx, &berthv1.ListReservationsRequest{Job: h.key.Job, Versions: true,
		PageSize: 1})
	if err != nil {
		return nil, err
	}
	next := map[int32]int32{}
	for _, stage := range page.GetStages() {
		if stage.GetStage() == h.key.Stage {
			for _, w := range stage.GetWorkers() {
				next[w.GetIndex()] = w.GetNumber() + 1
			}
		}
	}
	return next, nil
}

// request returns the request to the child for an offer. numbers has the numbers of the workers, 1
// by default. The request ID depends on the question and the expiry, so the child recognizes a
// repeated call.
func (h *hold) request(of origin, o *controlv1.Offer, path string, numbers map[int32]int32,
	within time.Duration, expiry time.Time) *berthv1.Reservation {
	var workers []*berthv1.WorkerID
	for id := range of.workers.All() {
		workers = append(workers, &berthv1.WorkerID{Index: id.Index, Number: cmp.Or(numbers[id.Index], 1)})
	}
	holdFor := o.GetHoldFor().AsDuration()
	if holdFor > 0 {
		holdFor += holdMargin
	}
	asked := o.GetConstraints()
	return &berthv1.Reservation{
		Job: h.key.Job, Stage: h.key.Stage, Name: h.key.Name, Workers: workers,
		// The parent has chosen the cell by pools, attributes and avoid.
		Constraints: &berthv1.Constraints{Resources: asked.GetResources(), Sku: asked.GetSku(), Role: asked.GetRole(),
			Cells: h.driver.cfg.IntoCells},
		Hold: berthv1.Hold_HOLD.Enum(), HoldTimeout: durationpb.New(holdFor), Batch: berthv1.Batch_STRICT,
		QueueTimeout: durationpb.New(within * 4 / 5), ExpireAt: timestamppb.New(expiry),
		// The parent decides what happens to a worker that fails.
		MaxAttempts: proto.Int32(1), OnAssignmentFailure: berthv1.OnAssignmentFailure_NOTIFY,
		Restart: proto.String("NEVER"), OnWorkerLoss: proto.String("NOTIFY"),
		Labels:    map[string]string{model.PathLabel: path, labelOffer: of.label(), model.GangLabel: "parent"},
		RequestId: proto.String(h.requestID(of.Number, fmt.Sprint(expiry.UnixNano()))),
	}
}

// requestID returns the ID of a call about a question.
func (h *hold) requestID(number int64, call string) string {
	return fmt.Sprintf("%.80s.%d.%s", h.uid, number, call)
}

// chosen reports whether a HELD reservation has its executors: it is not held in several cells.
func chosen(r *berthv1.Reservation) bool {
	for _, pool := range r.GetPools() {
		if pool.GetState() == berthv1.CellOffer_BOUND {
			return true
		}
	}
	return len(r.GetPools()) == 0
}

// refuses reports whether a reason why the child's reservation is pending, for some time, is an
// answer to the offer.
func (d *Driver) refuses(reason fault.Reason, since time.Duration) bool {
	switch reason {
	case "", fault.ReasonNotTried, fault.ReasonRegistryNotReady, fault.ReasonOffering:
		return false
	case fault.ReasonBehindHead:
		return since >= patience
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return since >= patience || time.Since(d.freedAt) > settleWithin
}

// accept records that the child holds executors, and answers the offer.
func (h *hold) accept(of origin, r *berthv1.Reservation, number int64) {
	d := h.driver
	d.mu.Lock()
	h.keep(of, r)
	h.watch()
	d.mu.Unlock()
	h.leftover, h.answered = false, number
	rating := r.GetRating()
	for _, pool := range r.GetPools() {
		if pool.GetState() == berthv1.CellOffer_BOUND && pool.Rating != nil {
			rating = pool.GetRating()
		}
	}
	rating = max(0, min(rating, 100))
	h.log.Info("accepted an offer", "number", number, "reservation", h.key, "rating", rating)
	h.answer(number, berthv1.CellOffer_ACCEPTED, rating, "", "")
}

// maintain keeps the executors of an accepted offer as long as the parent confirms the offer,
// and withdraws the answer if the child no longer holds them.
func (h *hold) maintain(in input) time.Duration {
	ttl, now := h.driver.cfg.TTL, time.Now()
	if in.changed || !h.permanent && now.After(h.expiry) {
		r, err := h.read()
		switch {
		case fault.Of(err) != nil && fault.Of(err).Kind == fault.Unavailable:
			if !h.permanent && now.After(h.expiry.Add(ttl/6)) { // more than the clocks differ
				h.drop()
				h.withdraw(in.number, fault.ReasonUnavailable, "the child does not answer, and the hold has expired")
				return 0
			}
			h.recheck()
			return retryAfter
		case err != nil || r.GetState() != berthv1.Reservation_HELD || r.GetEpoch() != h.version.GetEpoch() || !chosen(r):
			h.drop()
			h.withdraw(in.number, fault.Reason(r.GetReason()), cmp.Or(r.GetMessage(), "the child no longer holds the executors"))
			return 0
		}
	}
	// A bound reservation has the executors, unless it is held: then a cut-off cell frees them.
	bound := in.offer.GetState() == berthv1.CellOffer_BOUND && !in.offer.GetHeld()
	next := h.expiry.Add(-ttl * 2 / 3)
	var expiry time.Time // none
	switch {
	case h.permanent:
		return forever
	case bound:
	case now.Before(next):
		return next.Sub(now)
	default:
		if expiry = in.confirmed.Add(ttl); !expiry.After(h.expiry) {
			return ttl / 15
		}
	}
	if err := h.extend(expiry); err != nil {
		if fault.Of(err).Kind != fault.Unavailable {
			h.recheck()
		}
		h.log.Warn("the reservation of the child is not extended", "reservation", h.key, "error", err)
		return ttl / 15
	}
	return 0
}

// read reads the child's reservation.
func (h *hold) read() (*berthv1.Reservation, error) {
	ctx, cancel := h.driver.call()
	defer cancel()
	return h.driver.cfg.Child.Get(ctx, h.key)
}

// recheck makes the next step read the reservation.
func (h *hold) recheck() {
	h.driver.mu.Lock()
	defer h.driver.mu.Unlock()
	h.changed = true
}

// extend stores another expireAt in the child's reservation, or none. A call whose outcome is
// not known is repeated first: it must not take effect after a later one.
func (h *hold) extend(expiry time.Time) error {
	next := proto.CloneOf(h.version)
	next.IfEpoch, next.ExpireAt = proto.Int64(h.version.GetEpoch()), nil
	call := fmt.Sprintf("permanent-%d", time.Now().UnixMilli())
	if !expiry.IsZero() {
		next.ExpireAt, call = timestamppb.New(expiry), fmt.Sprint(expiry.UnixMilli())
	}
	next.RequestId = proto.String(h.requestID(h.origin.Number, call))
	for _, request := range []*berthv1.Reservation{h.unsettled, next} {
		if request == nil {
			continue
		}
		h.unsettled = request
		ctx, cancel := h.driver.call()
		_, err := h.driver.cfg.Child.Reserve(ctx, request)
		cancel()
		if err != nil && fault.Of(err).Kind == fault.Unavailable {
			return err
		}
		if h.unsettled = nil; err != nil && request == next {
			return err
		}
	}
	h.expiry, h.permanent = expiry, expiry.IsZero()
	return nil
}

// bind starts the workers in the child. Without an error and with h.bound not set, it must be
// called again. After an error of kind Unavailable the workers may be started.
func (h *hold) bind(in input) error {
	switch {
	case !in.held:
		return fault.New(fault.Conflict, fault.ReasonNotHeld, "the cell holds no executors for the reservation")
	case !h.permanent:
		return h.extend(time.Time{})
	case h.binding == nil:
		h.binding = &berthv1.BindReservationRequest{Job: h.key.Job, Stage: h.key.Stage, Name: h.key.Name,
			IfEpoch: h.version.GetEpoch(), Task: h.task(), RequestId: h.requestID(h.origin.Number, "bind")}
	}
	ctx, cancel := h.driver.call()
	defer cancel()
	_, err := h.driver.cfg.Child.Bind(ctx, h.binding)
	h.bound = err == nil
	return err
}

// task returns the task of the workers that the parent started.
func (h *hold) task() *berthv1.Task {
	h.driver.mu.Lock()
	defer h.driver.mu.Unlock()
	for _, w := range h.workers {
		spec := w.spec
		task := &berthv1.Task{Command: spec.Command, Args: spec.Args, Env: spec.Env, Payload: spec.Payload,
			StopGrace: durationpb.New(spec.Grace)}
		if spec.StopSignal != "" {
			task.StopSignal = proto.String(string(spec.StopSignal))
		}
		if spec.StartLimit > 0 {
			task.StartTimeout = durationpb.New(spec.StartLimit)
		}
		if spec.Readiness == model.ReadyReported {
			task.Readiness = berthv1.Readiness_REPORTED.Enum()
		}
		return task
	}
	return nil
}
