package client

import (
	"context"
	"crypto/rand"
	"iter"
	"time"

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

// Reserve asks for a batch of workers, or changes what was asked. The answer is
// given once the request is durable; its `change` says what the call did. The
// message's `requestId` and `ifEpoch` are honoured.
//
// Errors: Invalid with the fields that are wrong; Conflict when `ifEpoch` names
// another version or a worker id was used before.
func (c *Client) Reserve(ctx context.Context, r *berthv1.Reservation) (*berthv1.Reservation, error) {
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

// CancelWorkers removes single workers of a stage, wherever they are: queued,
// leased or running. It answers how many of them this call removes; workers
// that are not there are no error. Once it answers, none of them will be
// started any more. One that was queued again after a failed start goes by the
// number of the worker that failed, too.
func (c *Client) CancelWorkers(ctx context.Context, job, stage string, workers ...*berthv1.WorkerID) (int, error) {
	answer, err := invoke(ctx, c, c.reservations.CancelWorkers, &berthv1.CancelWorkersRequest{
		Job: job, Stage: stage, Workers: workers, RequestId: requestID(),
	})
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

// Pending shows the queue: one row a group, with what its head waits for. Until
// the registry is ready the error is Unavailable with reason REGISTRY_NOT_READY.
func (c *Client) Pending(ctx context.Context) (*berthv1.ListPendingAnswer, error) {
	return invoke(ctx, c, c.reservations.ListPending, &berthv1.ListPendingRequest{})
}

// Explain says why a reservation waits, and what would let it go on. Where
// executor-state does not answer, the explanation has no executorRevision and
// says nothing of what fits. The error is NotFound when there is no such
// reservation.
func (c *Client) Explain(ctx context.Context, key Key) (*berthv1.Explanation, error) {
	return invoke(ctx, c, c.explanations.ExplainReservation,
		&berthv1.ExplainReservationRequest{Job: key.Job, Stage: key.Stage, Name: key.name()})
}

// MarkReady tells the registry that all job services have asked again for what
// they want, and answers when it became ready. It is needed once in a cluster's
// life, and after a restore; repeating it changes nothing.
func (c *Client) MarkReady(ctx context.Context) (time.Time, error) {
	answer, err := invoke(ctx, c, c.reservations.MarkReady, &berthv1.MarkReadyRequest{RequestId: requestID()})
	if err != nil {
		return time.Time{}, err
	}
	return answer.GetReadySince().AsTime(), nil
}

// FlushJob cancels all that is queued of a job and answers how many
// reservations it was. What was dispatched stays.
func (c *Client) FlushJob(ctx context.Context, job string) (int, error) {
	return c.flush(ctx, &berthv1.FlushReservationsRequest{Job: job})
}

// FlushGroup cancels all that is queued in a group, named by its id in the
// pending view, and answers how many reservations it was.
func (c *Client) FlushGroup(ctx context.Context, group string) (int, error) {
	return c.flush(ctx, &berthv1.FlushReservationsRequest{Group: group})
}

func (c *Client) flush(ctx context.Context, request *berthv1.FlushReservationsRequest) (int, error) {
	request.RequestId = requestID()
	answer, err := invoke(ctx, c, c.reservations.FlushReservations, request)
	return int(answer.GetCancelled()), err
}
