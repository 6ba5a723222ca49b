package client

import (
	"cmp"
	"context"
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
// in another state, WaitFor returns the reservation and an error of kind Precondition. If
// ctx ends first, the error is of kind Unavailable, and WaitFor also returns the
// reservation if it could read it.
func (c *Client) WaitFor(ctx context.Context, key Key, states ...berthv1.Reservation_State) (*berthv1.Reservation,
	error) {
	return c.WaitUntil(ctx, key, func(r *berthv1.Reservation) bool { return slices.Contains(states, r.GetState()) })
}

// WaitUntil waits as WaitFor does, until done returns true for the reservation.
func (c *Client) WaitUntil(ctx context.Context, key Key, done func(*berthv1.Reservation) bool) (*berthv1.Reservation,
	error) {
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
		switch {
		case err != nil:
			return nil, err
		case done(r):
			return r, nil
		case Ended(r.GetState()):
			return r, endedElsewhere(key, r)
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

func endedElsewhere(key Key, r *berthv1.Reservation) *fault.Error {
	message := cmp.Or(r.GetMessage(), "it will not reach the requested state")
	return fault.New(fault.Precondition, fault.Reason(r.GetReason()), "%s ended %s: %s", key, r.GetState(), message)
}
