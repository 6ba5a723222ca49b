package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

const (
	// waitPoll is the interval at which WaitFor reads the reservation if no event wakes it.
	// It limits the delay if the stream of events has ended.
	waitPoll = 5 * time.Second
	// waitAgain is when WaitFor reads the reservation again after an event. The event may be of
	// a change by another service, which the registry has not seen yet. The interval doubles up to
	// waitPoll.
	waitAgain = 10 * time.Millisecond
)

// WaitFor waits until a reservation is in one of the given states, and returns it. After an
// upsert that adds workers, it is ACTIVE once these are dispatched too. WaitFor reads the
// reservation after each event of the job, and at intervals.
//
// The error is NotFound if the reservation does not exist. If the reservation has ended
// in another state, or cannot reach any of the states without another request, WaitFor returns
// the reservation and an error of kind Precondition. If ctx ends first, the error is of kind
// Unavailable, and WaitFor also returns the reservation if it could read it.
func (c *Client) WaitFor(ctx context.Context, key Key, states ...berthv1.Reservation_State) (*berthv1.Reservation,
	error) {
	return c.waitUntil(ctx, key, func(r *berthv1.Reservation) (bool, error) {
		return slices.Contains(states, r.GetState()), unreachable(key, r, states)
	})
}

// WaitRunning waits as WaitFor does, until every worker runs that the latest request for the
// reservation names: of each worker index the newest one.
//
// If such a worker has ended and Berth does not queue it again, WaitRunning returns the
// reservation and an error of kind Precondition that names the worker and why it ended.
func (c *Client) WaitRunning(ctx context.Context, key Key) (*berthv1.Reservation, error) {
	return c.waitUntil(ctx, key, func(r *berthv1.Reservation) (bool, error) { return c.running(ctx, key, r) })
}

// WaitUntil waits as WaitFor does, until done returns true for the reservation.
func (c *Client) WaitUntil(ctx context.Context, key Key, done func(*berthv1.Reservation) bool) (*berthv1.Reservation,
	error) {
	return c.waitUntil(ctx, key, func(r *berthv1.Reservation) (bool, error) { return done(r), nil })
}

// waitUntil waits until done returns true. It ends with the first error of done.
func (c *Client) waitUntil(ctx context.Context, key Key,
	done func(*berthv1.Reservation) (bool, error)) (*berthv1.Reservation, error) {
	// The first Get below reads the effects of all events before the cursor of this list.
	now, err := c.ListPage(ctx, &berthv1.ListReservationsRequest{Job: key.Job, Stage: key.Stage, PageSize: 1})
	if err != nil {
		return nil, err
	}
	// The stream has no deadline. A gateway that ends it at the deadline, just before ctx
	// ends, would look like a failure.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	woken := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range c.Events(watching, key.Job, now.GetCursor()) { //nolint:errcheck // after an error the poll finds every change
			select {
			case woken <- struct{}{}:
			default:
			}
		}
	}()
	defer func() {
		stop()
		<-ended
	}()

	pause := waitPoll
	poll := time.NewTimer(pause)
	defer poll.Stop()
	for {
		r, err := c.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		isDone, err := done(r)
		switch {
		case isDone:
			return r, nil
		case Ended(r.GetState()):
			return r, endedElsewhere(key, r)
		case err != nil && ctx.Err() == nil:
			return r, err
		}
		select {
		case <-woken:
			pause = waitAgain
			poll.Reset(pause)
		case <-poll.C:
			pause = min(2*pause, waitPoll)
			poll.Reset(pause)
		case <-ctx.Done():
			return r, fault.New(fault.Unavailable, fault.Reason(r.GetReason()), "%s is still %s", key,
				r.GetState()).Because(ctx.Err())
		}
	}
}

// Ended reports whether a reservation in this state has ended.
func Ended(state berthv1.Reservation_State) bool {
	switch state {
	case berthv1.Reservation_COMPLETED, berthv1.Reservation_CANCELLED, berthv1.Reservation_EXPIRED,
		berthv1.Reservation_FAILED, berthv1.Reservation_REPLACED:
		return true
	}
	return false
}

// unreachable returns an error if a reservation that has not ended will reach none of the states
// without another request; nil if it may.
func unreachable(key Key, r *berthv1.Reservation, states []berthv1.Reservation_State) error {
	text := ""
	switch state := r.GetState(); {
	case state == berthv1.Reservation_CANCELLING && !slices.ContainsFunc(states, func(s berthv1.Reservation_State) bool {
		return s == state || slices.Contains(endsFrom(fault.Reason(r.GetReason())), s)
	}):
		text = "it will not reach the requested state"
	case len(states) != 1 || states[0] != berthv1.Reservation_HELD:
	case r.GetHold() != berthv1.Hold_HOLD:
		text = "it requests no hold"
	case state == berthv1.Reservation_ASSIGNING, state == berthv1.Reservation_ACTIVE:
		text = "its hold is bound"
	}
	if text == "" {
		return nil
	}
	return fault.New(fault.Precondition, fault.Reason(r.GetReason()), "%s is %s: %s", key, r.GetState(), text)
}

// endsFrom returns the states in which a reservation may end that is CANCELLING for a reason. If a
// later control plane has another reason, the end is not known.
func endsFrom(reason fault.Reason) []berthv1.Reservation_State {
	switch reason {
	case fault.ReasonCompletesWith:
		return []berthv1.Reservation_State{berthv1.Reservation_COMPLETED}
	case fault.ReasonGangFailed:
		return []berthv1.Reservation_State{berthv1.Reservation_FAILED}
	case fault.ReasonCancelled, fault.ReasonExpired: // the last version that ends decides
		return []berthv1.Reservation_State{berthv1.Reservation_CANCELLED, berthv1.Reservation_EXPIRED}
	}
	return []berthv1.Reservation_State{berthv1.Reservation_COMPLETED, berthv1.Reservation_FAILED,
		berthv1.Reservation_CANCELLED, berthv1.Reservation_EXPIRED}
}

// running reports whether every requested worker of a reservation runs. It returns an error if one
// never will.
//
// The counts of the reservation suffice as long as all its workers run or may run. Otherwise the
// members of the gang tell if a worker that has ended is queued again.
func (c *Client) running(ctx context.Context, key Key, r *berthv1.Reservation) (bool, error) {
	err := unreachable(key, r, []berthv1.Reservation_State{berthv1.Reservation_ACTIVE})
	if err != nil || Ended(r.GetState()) {
		return false, err
	}
	wanted, counts := RequestedWorkers(r), r.GetWorkerCounts()
	isAll := len(wanted) == len(r.GetWorkers())
	switch {
	case r.GetState() == berthv1.Reservation_ACTIVE && counts["RUNNING"] == r.GetCount():
		return true, nil
	case isAll && (len(counts) == 0 ||
		counts["QUEUED"]+counts["ASSIGNED"]+counts["STARTING"]+counts["RUNNING"] == r.GetCount()):
		return false, nil
	}
	gang, err := c.Members(ctx, &berthv1.ListMembersRequest{Job: key.Job, Stage: key.Stage, Name: key.name()})
	if err != nil || gang.GetRevision() < r.GetEpoch() { // the assigner has not seen the request yet
		return false, err
	}
	isLeft := mayRun(gang)
	for _, w := range wanted {
		if !isLeft(w.GetIndex()) {
			return false, c.neverRuns(ctx, key, r, w)
		}
	}
	if isAll || len(wanted) == 0 {
		return false, nil
	}
	runs := map[[2]int32]bool{}
	for a, err := range c.Assignments(ctx, &berthv1.ListAssignmentsRequest{Job: key.Job, Stage: key.Stage,
		Reservation: key.name(), State: berthv1.Assignment_RUNNING, PageSize: maxPage}) {
		if err != nil {
			return false, err
		}
		runs[[2]int32{a.GetIndex(), a.GetNumber()}] = true
	}
	return !slices.ContainsFunc(wanted, func(w *berthv1.WorkerID) bool {
		return !runs[[2]int32{w.GetIndex(), w.GetNumber()}]
	}), nil
}

// RequestedWorkers returns the newest workers of the indexes that the latest request for a reservation
// names.
func RequestedWorkers(r *berthv1.Reservation) []*berthv1.WorkerID {
	named := map[int32]bool{}
	for _, w := range r.GetRequestedWorkers() {
		named[w.GetIndex()] = true
	}
	var wanted []*berthv1.WorkerID
	for _, w := range r.GetWorkers() {
		count := r.GetRequestedCount()
		if count == 0 && len(named) == 0 || w.GetIndex() < count || named[w.GetIndex()] {
			wanted = append(wanted, w)
		}
	}
	return wanted
}

// mayRun returns a function that reports whether the worker of an index of a gang runs or may run. If
// a control plane does not say what became of an index, its worker may run.
func mayRun(gang *berthv1.ListMembersAnswer) func(index int32) bool {
	in := map[int32]bool{}
	set := func(ranges []*berthv1.IndexRange, value bool) {
		for _, run := range ranges {
			for index := run.GetFirst(); index <= run.GetLast(); index++ {
				in[index] = value
			}
		}
	}
	for _, m := range gang.GetMembers() {
		in[m.GetIndex()] = true
	}
	set(gang.GetWaiting(), true)
	set(gang.GetEnded(), false)
	set(gang.GetGaveUp(), false)
	isComplete := len(in) > 0 && len(in) >= int(gang.GetWorkers())
	return func(index int32) bool {
		left, known := in[index]
		return left || !known && !isComplete
	}
}

// neverRuns returns the error for a worker that has ended and is not queued again.
func (c *Client) neverRuns(ctx context.Context, key Key, r *berthv1.Reservation, w *berthv1.WorkerID) error {
	how, reason, message := "has ended", fault.Reason(r.GetReason()), r.GetMessage()
	for _, ends := range r.GetEnds() {
		if ends.GetState() != "" && slices.ContainsFunc(ends.GetWorkers(), func(run *berthv1.WorkerRange) bool {
			return run.GetFirst() <= w.GetIndex() && w.GetIndex() <= run.GetLast() && run.GetNumber() == w.GetNumber()
		}) {
			how = "is " + ends.GetState()
			if ends.GetGaveUp() {
				reason = fault.ReasonRoundsExhausted
			}
		}
	}
	for a, err := range c.Assignments(ctx, &berthv1.ListAssignmentsRequest{Job: key.Job, Stage: key.Stage,
		Reservation: key.name(), PageSize: maxPage}) {
		if err != nil {
			return err
		}
		if a.GetIndex() == w.GetIndex() && a.GetNumber() == w.GetNumber() {
			how, reason, message = "is "+a.GetState().String(), cmp.Or(fault.Reason(a.GetReason()), reason), ""
			if text := a.GetLastError(); text != "" && text != a.GetReason() {
				how += " (" + text + ")"
			} else if a.ExitCode != nil {
				how += fmt.Sprintf(" (exit code %d)", a.GetExitCode())
			}
			break
		}
	}
	text := fmt.Sprintf("%s is %s, and will not run as a whole: worker %d.%d %s and is not queued again", key, r.GetState(),
		w.GetIndex(), w.GetNumber(), how)
	if message != "" {
		text += "; " + message
	}
	return fault.New(fault.Precondition, reason, "%s", text)
}

func endedElsewhere(key Key, r *berthv1.Reservation) *fault.Error {
	message := cmp.Or(r.GetMessage(), "it will not reach the requested state")
	return fault.New(fault.Precondition, fault.Reason(r.GetReason()), "%s ended %s: %s", key, r.GetState(), message)
}
