package client

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
)

// Assignments gives the workers on their executors that the request selects,
// page after page as they are asked for. It ends at the first error.
func (c *Client) Assignments(ctx context.Context, request *berthv1.ListAssignmentsRequest) iter.Seq2[*berthv1.Assignment, error] {
	return items(request, func(q *berthv1.ListAssignmentsRequest, token string) ([]*berthv1.Assignment, string, error) {
		q.PageToken = token
		page, err := c.AssignmentsPage(ctx, q)
		return page.GetAssignments(), page.GetNextPageToken(), err
	})
}

// AssignmentsPage gives one page of Assignments.
func (c *Client) AssignmentsPage(ctx context.Context, request *berthv1.ListAssignmentsRequest) (*berthv1.ListAssignmentsAnswer, error) {
	return invoke(ctx, c, c.assignments.ListAssignments, request)
}

// ClearQuarantine is an operator's word that workers of an executor, whose stop
// is overdue (the finding QUARANTINED), are gone: they become LOST, and their
// capacity is given out again at once. Where the word is wrong they run on beside
// what is placed there next. The workers are named by their assignments, as they
// were listed. It answers how many this call made LOST; those that have ended
// meanwhile are no error, and one that is not quarantined refuses all of them.
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

// Leaders shows who leads each service, and its replicas.
func (c *Client) Leaders(ctx context.Context) (*berthv1.ListLeadersAnswer, error) {
	return invoke(ctx, c, c.leaders.ListLeaders, &berthv1.ListLeadersRequest{})
}

// Resign has the leader of a service give up its term, so that a standby leads at
// once. The call may be repeated: it names the term, and of one that is over
// already it answers no replica. The errors are Invalid for a service that there is
// none of, and Unavailable while it has no leader.
func (c *Client) Resign(ctx context.Context, service string, term int64) (*berthv1.ResignAnswer, error) {
	return invoke(ctx, c, c.leaders.Resign, &berthv1.ResignRequest{Service: service, Term: term})
}

// Findings lists what an operator should know of, longest standing first. A
// service that does not answer is a finding itself, of kind
// SERVICE_UNAVAILABLE.
func (c *Client) Findings(ctx context.Context) (*berthv1.ListFindingsAnswer, error) {
	return invoke(ctx, c, c.findings.ListFindings, &berthv1.ListFindingsRequest{})
}

// paged is a request for a list.
type paged interface {
	proto.Message
	GetPageToken() string
}

// items strings pages together, from the page that the request names. The
// fetch gets a copy of the request, which stays as the caller made it.
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
