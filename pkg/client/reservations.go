package client

import (
	"context"
	"crypto/rand"
	"iter"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
)

// Key names a reservation. An empty name means `main`.
type Key struct {
	Job, Stage, Name string
}

func (k Key) String() string { return k.Job + "/" + k.Stage + "/" + k.name() }

func (k Key) name() string {
	if k.Name == "" {
		return "main"
	}
	return k.Name
}

// KeyOf answers the key of a reservation.
func KeyOf(r *berthv1.Reservation) Key {
	return Key{Job: r.GetJob(), Stage: r.GetStage(), Name: r.GetName()}
}

// requestID makes an id of 130 random bits.
func requestID() string { return rand.Text() }

// Upsert asks for a batch of workers, or changes what was asked. The answer is
// given once the request is durable; its `change` says what the call did. The
// message's `requestId` and `ifEpoch` are honoured.
//
// Errors: Invalid with the fields that are wrong; Conflict when `ifEpoch` names
// another version or a worker id was used before.
func (c *Client) Upsert(ctx context.Context, r *berthv1.Reservation) (*berthv1.Reservation, error) {
	body := proto.CloneOf(r)
	request := &berthv1.UpsertReservationRequest{
		Reservation: body,
		RequestId:   body.GetRequestId(),
		IfEpoch:     body.GetIfEpoch(),
	}
	body.RequestId, body.IfEpoch = nil, nil
	if request.RequestId == "" {
		request.RequestId = requestID()
	}
	return invoke(ctx, c, c.reservations.UpsertReservation, request)
}

// Get reads the newest version of a reservation, its workers included. The
// error is NotFound when there is none.
func (c *Client) Get(ctx context.Context, key Key) (*berthv1.Reservation, error) {
	return invoke(ctx, c, c.reservations.GetReservation,
		&berthv1.GetReservationRequest{Job: key.Job, Stage: key.Stage, Name: key.name()})
}

// Cancel ends every version of a reservation that has not ended, and answers
// how many it was. Once it answers, nothing of them will be started any more;
// workers that run are told to go. Cancelling what is not there succeeds.
func (c *Client) Cancel(ctx context.Context, key Key) (int, error) {
	answer, err := invoke(ctx, c, c.reservations.CancelReservation, &berthv1.CancelReservationRequest{
		Job: key.Job, Stage: key.Stage, Name: key.name(), RequestId: requestID(),
	})
	return int(answer.GetCancelled()), err
}

// CancelVersion cancels a reservation only if its newest version has the given
// epoch. The error is Conflict when it has another.
func (c *Client) CancelVersion(ctx context.Context, key Key, epoch int64) (int, error) {
	answer, err := invoke(ctx, c, c.reservations.CancelReservation, &berthv1.CancelReservationRequest{
		Job: key.Job, Stage: key.Stage, Name: key.name(), RequestId: requestID(), IfEpoch: epoch,
	})
	return int(answer.GetCancelled()), err
}

// CancelJob ends every reservation of a job and answers how many it was.
func (c *Client) CancelJob(ctx context.Context, job string) (int, error) {
	answer, err := invoke(ctx, c, c.reservations.CancelJob,
		&berthv1.CancelJobRequest{Job: job, RequestId: requestID()})
	return int(answer.GetCancelled()), err
}

// List gives the reservations that the request selects, ordered by job, stage
// and name, page after page as they are asked for. Their `workers` are left
// out: `count` says how many there are. It ends at the first error.
func (c *Client) List(ctx context.Context, request *berthv1.ListReservationsRequest) iter.Seq2[*berthv1.Reservation, error] {
	return items(request, func(q *berthv1.ListReservationsRequest, token string) ([]*berthv1.Reservation, string, error) {
		q.PageToken = token
		page, err := c.ListPage(ctx, q)
		return page.GetReservations(), page.GetNextPageToken(), err
	})
}

// ListPage gives one page of List, with the revision it shows and the token of
// the next.
func (c *Client) ListPage(ctx context.Context, request *berthv1.ListReservationsRequest) (*berthv1.ListReservationsAnswer, error) {
	return invoke(ctx, c, c.reservations.ListReservations, request)
}

// Pending shows the queue: one row a group, with what its head waits for. The
// answer says whether the registry is ready; until it is, the rows are left out.
func (c *Client) Pending(ctx context.Context) (*berthv1.ListPendingAnswer, error) {
	return invoke(ctx, c, c.reservations.ListPending, &berthv1.ListPendingRequest{})
}
