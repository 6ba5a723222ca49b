package client

import (
	"context"
	"slices"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// waitPoll is how often WaitFor reads when no event wakes it. It bounds what a
// missing event can cost.
const waitPoll = 5 * time.Second

// WaitFor waits until the newest version of a reservation is in one of the
// given states and answers it. Events of the job wake it.
//
// Errors: NotFound when there is no such reservation; Precondition, with the
// reservation as it is, when it has ended in another state and so never gets
// there; Unavailable, with the reservation when it could be read, when ctx ends
// first.
func (c *Client) WaitFor(ctx context.Context, key Key, states ...berthv1.Reservation_State) (*berthv1.Reservation, error) {
	// Events before now have been seen to by the first look.
	now, err := c.ListPage(ctx, &berthv1.ListReservationsRequest{Job: key.Job, Stage: key.Stage, PageSize: 1})
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	woken := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range c.Events(watching, key.Job, now.GetCursor()) { //nolint:errcheck // after an error the poll below finds the change
			select {
			case woken <- struct{}{}:
			default:
			}
		}
	}()
	defer func() {
		stop()
		<-done
	}()

	poll := time.NewTicker(waitPoll)
	defer poll.Stop()
	for {
		r, err := c.Get(ctx, key)
		switch {
		case err != nil:
			return nil, err
		case slices.Contains(states, r.GetState()):
			return r, nil
		case Ended(r.GetState()):
			return r, endedElsewhere(key, r)
		}
		select {
		case <-woken:
		case <-poll.C:
		case <-ctx.Done():
			return r, fault.New(fault.Unavailable, fault.Reason(r.GetReason()), "%s is still %s", key, r.GetState()).Because(ctx.Err())
		}
	}
}

// Ended says whether a reservation in this state has ended.
func Ended(state berthv1.Reservation_State) bool {
	switch state {
	case berthv1.Reservation_COMPLETED, berthv1.Reservation_CANCELLED, berthv1.Reservation_EXPIRED,
		berthv1.Reservation_FAILED, berthv1.Reservation_REPLACED:
		return true
	}
	return false
}

func endedElsewhere(key Key, r *berthv1.Reservation) *fault.Error {
	message := r.GetMessage()
	if message == "" {
		message = "it never reaches the state waited for"
	}
	return fault.New(fault.Precondition, fault.Reason(r.GetReason()), "%s ended %s: %s", key, r.GetState(), message)
}
