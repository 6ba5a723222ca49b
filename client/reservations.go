package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	berthv1 "berth.dev/api/berth/v1"
)

// Key is the name of a reservation. An empty Name stands for `main`.
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

// identified returns a copy of the request. If the request has no request ID, the copy
// gets a new one.
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
// request is durable. `change` in the answer is the effect of the call. Reserve uses
// `requestId` and `ifEpoch` of the message.
//
// For an invalid message the error is Invalid and names the invalid fields. The error is
// Conflict if `ifEpoch` names another version or a worker ID was used before.
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

// Get reads a reservation: of each worker index the newest worker, over all versions. The error
// is NotFound if the reservation does not exist.
func (c *Client) Get(ctx context.Context, key Key) (*berthv1.Reservation, error) {
	return invoke(ctx, c, c.reservations.GetReservation,
		&berthv1.GetReservationRequest{Job: key.Job, Stage: key.Stage, Name: key.name()})
}

// Bind starts the workers of a reservation that is HELD, with the task of the request or else
// the task of the reservation. It returns once the bind is durable. The error is NotFound if
// the reservation does not exist, and Conflict if it is not held or `ifEpoch` names another
// version.
func (c *Client) Bind(ctx context.Context, request *berthv1.BindReservationRequest) (*berthv1.Reservation, error) {
	return invoke(ctx, c, c.reservations.BindReservation, identified(request))
}

// Cancel cancels every live version of a reservation and returns the number of these
// versions. Once Cancel has returned, Berth starts no more of their workers and stops the
// running ones. Cancel succeeds if the reservation does not exist.
func (c *Client) Cancel(ctx context.Context, key Key) (int, error) {
	answer, err := invoke(ctx, c, c.reservations.CancelReservation, &berthv1.CancelReservationRequest{
		Job: key.Job, Stage: key.Stage, Name: key.name(), RequestId: requestID(),
	})
	return int(answer.GetCancelled()), err
}

// CancelWith cancels like Cancel, and like CancelJob if the key has no stage. If grace is not nil, it
// shortens the time that the workers have to end after their termination signal, also if they are
// being stopped already. It never makes this time longer. 0 kills the workers at once. The count
// includes the versions whose stop becomes shorter. A registry of version 0.1 ignores grace.
//
// CancelWith also reports whether Berth knows the name: it is not known if no reservation with it has
// existed, or if its last one ended so long ago that Berth has deleted its records. A control plane of
// version 0.1 reports every name as known.
func (c *Client) CancelWith(ctx context.Context, key Key, grace *time.Duration) (count int, known bool, err error) {
	var answer *berthv1.CancelAnswer
	if key.Stage == "" {
		answer, err = invoke(ctx, c, c.reservations.CancelJob,
			&berthv1.CancelJobRequest{Job: key.Job, RequestId: requestID(), Grace: graceOf(grace)})
	} else {
		answer, err = invoke(ctx, c, c.reservations.CancelReservation, &berthv1.CancelReservationRequest{
			Job: key.Job, Stage: key.Stage, Name: key.name(), RequestId: requestID(), Grace: graceOf(grace),
		})
	}
	return int(answer.GetCancelled()), !answer.GetUnknown(), err
}

func graceOf(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

// CancelVersion cancels a reservation only if its newest version has the given epoch.
// Otherwise the error is Conflict.
func (c *Client) CancelVersion(ctx context.Context, key Key, epoch int64) (int, error) {
	answer, err := invoke(ctx, c, c.reservations.CancelReservation, &berthv1.CancelReservationRequest{
		Job: key.Job, Stage: key.Stage, Name: key.name(), RequestId: requestID(), IfEpoch: epoch,
	})
	return int(answer.GetCancelled()), err
}

// CancelJob cancels every reservation of a job and returns the number of these
// reservations.
func (c *Client) CancelJob(ctx context.Context, job string) (int, error) {
	answer, err := invoke(ctx, c, c.reservations.CancelJob,
		&berthv1.CancelJobRequest{Job: job, RequestId: requestID()})
	return int(answer.GetCancelled()), err
}

// CancelWorkers removes individual workers of a stage, whether they are queued, leased or
// running. It returns the number of workers that this call removes. A worker that does
// not exist is not an error. Once the call has returned, Berth starts none of these
// workers. If a worker was queued again after a failed start, the number of the failed
// worker also removes the queued one.
func (c *Client) CancelWorkers(ctx context.Context, job, stage string, workers ...*berthv1.WorkerID) (int, error) {
	answer, err := invoke(ctx, c, c.reservations.CancelWorkers, &berthv1.CancelWorkersRequest{
		Job: job, Stage: stage, Workers: workers, RequestId: requestID(),
	})
	return int(answer.GetCancelled()), err
}

// CancelWorkersWith cancels like CancelWorkers, with a grace as in CancelWith. It also reports whether
// the stage has used one of the worker IDs.
func (c *Client) CancelWorkersWith(ctx context.Context, job, stage string, grace *time.Duration,
	workers ...*berthv1.WorkerID) (count int, known bool, err error) {
	answer, err := invoke(ctx, c, c.reservations.CancelWorkers, &berthv1.CancelWorkersRequest{
		Job: job, Stage: stage, Workers: workers, RequestId: requestID(), Grace: graceOf(grace),
	})
	return int(answer.GetCancelled()), !answer.GetUnknown(), err
}

// List returns the reservations that the request selects, ordered by job, stage and name. With
// a group, it returns the queue of the group in its order.
// The reservations have `count` but not `workers`. List reads each page only when the
// loop needs it. The sequence ends at the first error.
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

// Jobs returns the jobs that have a reservation that has not ended, ordered by name, with
// the numbers of their reservations and workers. Jobs reads each page only when the loop
// needs it. The sequence ends at the first error.
func (c *Client) Jobs(ctx context.Context, request *berthv1.ListJobsRequest) iter.Seq2[*berthv1.Job, error] {
	return items(request, func(q *berthv1.ListJobsRequest, token string) ([]*berthv1.Job, string, error) {
		q.PageToken = token
		page, err := c.JobsPage(ctx, q)
		return page.GetJobs(), page.GetNextPageToken(), err
	})
}

// JobsPage returns one page of Jobs, with its revision and the token of the next page.
func (c *Client) JobsPage(ctx context.Context, request *berthv1.ListJobsRequest) (*berthv1.ListJobsAnswer, error) {
	return invoke(ctx, c, c.reservations.ListJobs, request)
}

// Pending lists all queues, ordered by the ID of the group: one row for each group, with the
// reason why the head of its queue is pending. It reads as many pages as necessary; the
// answer has the revision and the totals of the last page. Until the registry is ready, the
// error is Unavailable with reason REGISTRY_NOT_READY.
func (c *Client) Pending(ctx context.Context) (*berthv1.ListPendingAnswer, error) {
	var groups []*berthv1.PendingGroup
	for request := (&berthv1.ListPendingRequest{PageSize: maxPage}); ; {
		page, err := c.PendingPage(ctx, request)
		if err != nil {
			return nil, err
		}
		groups = append(groups, page.GetGroups()...)
		if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
			page.Groups = groups
			return page, nil
		}
	}
}

// maxPage is the largest size of a page.
const maxPage = 1000

// PendingPage returns one page of Pending, with its revision, the totals of all pages and the
// token of the next page.
func (c *Client) PendingPage(ctx context.Context,
	request *berthv1.ListPendingRequest) (*berthv1.ListPendingAnswer, error) {
	return invoke(ctx, c, c.reservations.ListPending, request)
}

// PendingHistory returns how many groups, reservations and workers were queued in the last
// hour, as the leader of the registry saw it, the oldest point first.
func (c *Client) PendingHistory(ctx context.Context) (*berthv1.GetPendingHistoryAnswer, error) {
	return invoke(ctx, c, c.reservations.GetPendingHistory, &berthv1.GetPendingHistoryRequest{})
}

// Explain returns why a reservation is pending and what it waits for. If executor-state
// does not answer, the explanation has no executorRevision and no information about
// capacity. The error is NotFound if the reservation does not exist.
func (c *Client) Explain(ctx context.Context, key Key) (*berthv1.Explanation, error) {
	return invoke(ctx, c, c.explanations.ExplainReservation,
		&berthv1.ExplainReservationRequest{Job: key.Job, Stage: key.Stage, Name: key.name()})
}

// MarkReady declares that all job services have repeated their requests, and returns the
// time at which the registry became ready. It is needed once for a new cluster, and after
// a restore. A repeat of the call changes nothing.
func (c *Client) MarkReady(ctx context.Context) (time.Time, error) {
	answer, err := invoke(ctx, c, c.reservations.MarkReady, &berthv1.MarkReadyRequest{RequestId: requestID()})
	if err != nil {
		return time.Time{}, err
	}
	return answer.GetReadySince().AsTime(), nil
}

// FlushJob cancels all queued reservations of a job and returns the number of these
// reservations. It does not cancel dispatched reservations.
func (c *Client) FlushJob(ctx context.Context, job string) (int, error) {
	count, _, err := c.FlushKnown(ctx, &berthv1.FlushReservationsRequest{Job: job})
	return count, err
}

// FlushGroup cancels all queued reservations of a group and returns the number of these
// reservations. group is the ID of the group in the answer of Pending.
func (c *Client) FlushGroup(ctx context.Context, group string) (int, error) {
	count, _, err := c.FlushKnown(ctx, &berthv1.FlushReservationsRequest{Group: group})
	return count, err
}

// FlushKnown flushes the queued reservations of the job or the group in the request. It also reports
// whether Berth knows the job or the group, like CancelWith.
func (c *Client) FlushKnown(ctx context.Context,
	request *berthv1.FlushReservationsRequest) (count int, known bool, err error) {
	answer, err := invoke(ctx, c, c.reservations.FlushReservations, identified(request))
	return int(answer.GetCancelled()), !answer.GetUnknown(), err
}
