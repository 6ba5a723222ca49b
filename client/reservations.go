package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	berthv1 "berth.dev/api/berth/v1"
)

// Key names a reservation. An empty name means `main`.
type Key struct {
	Job, Stage, Name string
}

func (k Key) String() string { return k.Job + "/" + k.Stage + "/" + k.name() }

func (k Key) name() string { return cmp.Or(k.Name, "main") }

// KeyOf returns the key of a reservation.
func KeyOf(r *berthv1.Reservation) Key {
	return Key{Job: r.GetJob(), Stage: r.GetStage(), Name: r.GetName()}
}

// requestID returns 130 random bits.
func requestID() string { return rand.Text() }

// identified returns a copy of the request that has a request ID.
func identified[Q interface {
	proto.Message
	GetRequestId() string
}](request Q) Q {
	q := proto.CloneOf(request)
	if q.GetRequestId() == "" {
		m := q.ProtoReflect()
		m.Set(m.Descriptor().Fields().ByName("request_id"), protoreflect.ValueOfString(requestID()))
	}
	return q
}

// Reserve requests a gang of workers, or changes such a request. It returns once the
// request is durable; the `change` in the answer is the effect of the call. The call
// honors the message's `requestId` and `ifEpoch`.
//
// The error is Invalid with the invalid fields, or Conflict if `ifEpoch` names another
// version or a worker ID was used before.
func (c *Client) Reserve(ctx context.Context, r *berthv1.Reservation) (*berthv1.Reservation, error) {
	body := proto.CloneOf(r)
	request := &berthv1.UpsertReservationRequest{
		Reservation: body,
		RequestId:   cmp.Or(body.GetRequestId(), requestID()),
		IfEpoch:     body.GetIfEpoch(),
	}
	body.RequestId, body.IfEpoch = nil, nil
	return invoke(ctx, c, c.reservations.UpsertReservation, request)
}

// Get reads the newest version of a reservation with its workers. The error is NotFound
// if there is none.
func (c *Client) Get(ctx context.Context, key Key) (*berthv1.Reservation, error) {
	return invoke(ctx, c, c.reservations.GetReservation,
		&berthv1.GetReservationRequest{Job: key.Job, Stage: key.Stage, Name: key.name()})
}

// Cancel ends every live version of a reservation and returns their number. Once it
// returns, no worker of them is started any more; running workers are stopped. It
// succeeds if the reservation does not exist.
func (c *Client) Cancel(ctx context.Context, key Key) (int, error) {
	answer, err := invoke(ctx, c, c.reservations.CancelReservation, &berthv1.CancelReservationRequest{
		Job: key.Job, Stage: key.Stage, Name: key.name(), RequestId: requestID(),
	})
	return int(answer.GetCancelled()), err
}

// CancelVersion cancels a reservation only if its newest version has the given epoch.
// Otherwise the error is Conflict.
func (c *Client) CancelVersion(ctx context.Context, key Key, epoch int64) (int, error) {
	answer, err := invoke(ctx, c, c.reservations.CancelReservation, &berthv1.CancelReservationRequest{
		Job: key.Job, Stage: key.Stage, Name: key.name(), RequestId: requestID(), IfEpoch: epoch,
	})
	return int(answer.GetCancelled()), err
}

// CancelJob ends every reservation of a job and returns their number.
func (c *Client) CancelJob(ctx context.Context, job string) (int, error) {
	answer, err := invoke(ctx, c, c.reservations.CancelJob,
		&berthv1.CancelJobRequest{Job: job, RequestId: requestID()})
	return int(answer.GetCancelled()), err
}

// CancelWorkers removes individual workers of a stage, whether they are queued, leased
// or running. It returns how many of them this call removes; workers that do not exist
// are no error. Once it returns, none of them is started any more. A worker that was
// queued again after a failed start is also removed under the number of the worker that
// failed.
func (c *Client) CancelWorkers(ctx context.Context, job, stage string, workers ...*berthv1.WorkerID) (int, error) {
	answer, err := invoke(ctx, c, c.reservations.CancelWorkers, &berthv1.CancelWorkersRequest{
		Job: job, Stage: stage, Workers: workers, RequestId: requestID(),
	})
	return int(answer.GetCancelled()), err
}

// List returns the reservations that the request selects, ordered by job, stage and
// name. It reads the next page when the loop gets there. It leaves out their `workers`:
// `count` is the number. It ends at the first error.
func (c *Client) List(ctx context.Context, request *berthv1.ListReservationsRequest) iter.Seq2[*berthv1.Reservation,
	error] {
	return items(request, func(q *berthv1.ListReservationsRequest, token string) ([]*berthv1.Reservation, string, error) {
		q.PageToken = token
		page, err := c.ListPage(ctx, q)
		return page.GetReservations(), page.GetNextPageToken(), err
	})
}

// ListPage returns one page of List, with its revision and the token of the next page.
func (c *Client) ListPage(ctx context.Context,
	request *berthv1.ListReservationsRequest) (*berthv1.ListReservationsAnswer, error) {
	return invoke(ctx, c, c.reservations.ListReservations, request)
}

// Pending lists the queue: one row for each group, with the reason why its head is
// pending. Until the registry is ready, the error is Unavailable with reason
// REGISTRY_NOT_READY.
func (c *Client) Pending(ctx context.Context) (*berthv1.ListPendingAnswer, error) {
	return invoke(ctx, c, c.reservations.ListPending, &berthv1.ListPendingRequest{})
}

// Explain returns the reason why a reservation is pending, and what would let it
// proceed. If executor-state does not answer, the explanation has no executorRevision
// and nothing about capacity. The error is NotFound if there is no such reservation.
func (c *Client) Explain(ctx context.Context, key Key) (*berthv1.Explanation, error) {
	return invoke(ctx, c, c.explanations.ExplainReservation,
		&berthv1.ExplainReservationRequest{Job: key.Job, Stage: key.Stage, Name: key.name()})
}

// MarkReady declares that all job services have repeated their requests, and returns
// when the registry became ready. It is needed once in a cluster's life, and after a
// restore. Repeating it changes nothing.
func (c *Client) MarkReady(ctx context.Context) (time.Time, error) {
	answer, err := invoke(ctx, c, c.reservations.MarkReady, &berthv1.MarkReadyRequest{RequestId: requestID()})
	if err != nil {
		return time.Time{}, err
	}
	return answer.GetReadySince().AsTime(), nil
}

// FlushJob cancels all queued reservations of a job and returns their number.
// Dispatched reservations stay.
func (c *Client) FlushJob(ctx context.Context, job string) (int, error) {
	return c.flush(ctx, &berthv1.FlushReservationsRequest{Job: job})
}

// FlushGroup cancels all queued reservations of a group, given by its ID in the pending
// view, and returns their number.
func (c *Client) FlushGroup(ctx context.Context, group string) (int, error) {
	return c.flush(ctx, &berthv1.FlushReservationsRequest{Group: group})
}

func (c *Client) flush(ctx context.Context, request *berthv1.FlushReservationsRequest) (int, error) {
	request.RequestId = requestID()
	answer, err := invoke(ctx, c, c.reservations.FlushReservations, request)
	return int(answer.GetCancelled()), err
}
