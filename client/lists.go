package client

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
)

// Assignments returns the assignments that the request selects. It reads the next page
// when the loop gets there. It ends at the first error.
func (c *Client) Assignments(ctx context.Context,
	request *berthv1.ListAssignmentsRequest) iter.Seq2[*berthv1.Assignment, error] {
	return items(request, func(q *berthv1.ListAssignmentsRequest, token string) ([]*berthv1.Assignment, string, error) {
		q.PageToken = token
		page, err := c.AssignmentsPage(ctx, q)
		return page.GetAssignments(), page.GetNextPageToken(), err
	})
}

// AssignmentsPage returns one page of Assignments.
func (c *Client) AssignmentsPage(ctx context.Context,
	request *berthv1.ListAssignmentsRequest) (*berthv1.ListAssignmentsAnswer, error) {
	return invoke(ctx, c, c.assignments.ListAssignments, request)
}

// ClearQuarantine declares that workers of an executor do not run, although their stop
// is overdue (the finding QUARANTINED). They become LOST, and their capacity is free at
// once. If the operator is wrong, they run on in addition to the workers that are
// placed there next. The workers are identified by their assignments, as listed.
// ClearQuarantine returns how many workers this call made LOST. Workers that have ended
// since are no error. If any of them is not quarantined, the call refuses all.
func (c *Client) ClearQuarantine(ctx context.Context, executor string, workers ...*berthv1.Assignment) (int, error) {
	q := &berthv1.ClearQuarantineRequest{Executor: executor, RequestId: requestID()}
	for _, w := range workers {
		q.Workers = append(q.Workers, &berthv1.AssignedWorker{
			Job: w.GetJob(), Stage: w.GetStage(), Index: w.GetIndex(), Number: w.GetNumber(), Epoch: w.GetEpoch(),
		})
	}
	answer, err := invoke(ctx, c, c.assignments.ClearQuarantine, q)
	return int(answer.GetCleared()), err
}

// Leaders lists the leader of each service, and its replicas.
func (c *Client) Leaders(ctx context.Context) (*berthv1.ListLeadersAnswer, error) {
	return invoke(ctx, c, c.leaders.ListLeaders, &berthv1.ListLeadersRequest{})
}

// Resign makes the leader of a service give up its term, so that a standby leads at
// once. The call may be repeated, since it names the term: if that term is already
// over, the answer has no replica. The error is Invalid for an unknown service, and
// Unavailable while the service has no leader.
func (c *Client) Resign(ctx context.Context, service string, term int64) (*berthv1.ResignAnswer, error) {
	return invoke(ctx, c, c.leaders.Resign, &berthv1.ResignRequest{Service: service, Term: term})
}

// Findings lists the problems that an operator should know, the oldest first. A service
// that does not answer is itself a finding, of kind SERVICE_UNAVAILABLE.
func (c *Client) Findings(ctx context.Context) (*berthv1.ListFindingsAnswer, error) {
	return invoke(ctx, c, c.findings.ListFindings, &berthv1.ListFindingsRequest{})
}

// paged is a request for a page of a list.
type paged interface {
	proto.Message
	GetPageToken() string
}

// items joins pages, from the page that the request names. fetch gets a copy of the
// request, so that the caller's request does not change.
func items[Q paged, T any](request Q, fetch func(q Q, token string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		q := proto.CloneOf(request)
		for token := q.GetPageToken(); ; {
			page, next, err := fetch(q, token)
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}
